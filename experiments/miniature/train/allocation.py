"""One bounded allocation of a machine: train what is missing, in order, stop in time, and pack what has ended.

    python -m experiments.miniature.train.allocation --minutes 9 --texts FOLDER --out OUT

What the tables (data/) have is not trained again: add the pack to them (tables.py) and the next
allocation goes on from there. A run that an allocation did not finish begins again in the next, or goes on where its
machine is the same. Nothing but rates.toml is trained until that has ended; then chosen_rates.toml is written, here and
to OUT, and the others follow with it. RL-R's runs with weights that were looked for wait until rl_weights.toml has
ended and chosen.toml has the best of it; --as-chosen trains them as things stand. When a run began is written when it
begins, and what has ended is packed every few runs, so that the machine may go at any time. The blind test is trained
only if it is asked for, --only largest, and only where predictions/predictions.json is there, committed if that
can be told; every run records its hash, and whether it was. `--quick` does it all in seconds on a CPU, with a text of
no meaning."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

import torch

from experiments.miniature.analysis.preregistration import FILE, check_before_training, committed_here, hash_of
from experiments.miniature.studies import (
    DATA,
    HERE,
    MAIN,
    OF_LARGEST,
    ON_REQUEST,
    PREDICTIONS,
    QUICK,
    RATES,
    STUDIES,
    SWEEPS,
    WEIGHTS_OF_RL,
    EndedRun,
    ended_in,
    recorded_in,
    run_program,
)
from experiments.miniature.train.machine import machine_for
from experiments.miniature.train.rates import FILE as CHOSEN
from experiments.miniature.train.rates import write_chosen
from experiments.miniature.train.tables import ALLOCATION, HELD, pack
from routelaw.corpus import Reading, build_corpus
from routelaw.corpus.manifest import MANIFEST
from routelaw.corpus.shards import Corpus, open_corpus
from routelaw.errors import InputError
from routelaw.files import write_atomically
from routelaw.runs.store import OUTPUT, Store, StoredRun
from routelaw.specs.run import RunSpec, describe
from routelaw.sweeps.local import Machine, run_local
from routelaw.sweeps.progress import Lost, RunEnded, RunFailed, Started
from routelaw.sweeps.sweep import PlannedRun, read_sweep
from routelaw.sweeps.task import Task
from routelaw.training.run import check_run

TOKENIZER = DATA / "tokenizer.model"
"""Trained once: routelaw corpus build mix.txt.xz --vocabulary 8192 --validation 0.01."""
TRAINING, VALIDATION_SHARE = "corpus", 0.01
TEXTS = {
    TRAINING: ("mix.txt.xz", "separator"),
    "wikitext103": ("eval/wikitext103_test.detok.txt.xz", "separator"),
    "c4": ("eval/c4_sample.jsonl.xz", "separator"),
    "pile_cc": ("eval/pile_test_pile_cc.jsonl.xz", "separator"),
    "lambada_text": ("eval/lambada_dev_plain_text.txt.xz", "line"),
}
"""Corpus → its file in the folder of texts, and what a document is there."""
QUICK_VOCABULARY = 320
SPARE = 35.0
"""Seconds before the end at which workers are told to stop: they are waited for, and there is packing to do."""
PACK = "runs.tar.gz"
PACK_EVERY = 3
"""Ended runs from one packing to the next; the first is packed at once."""
BEGUN = "begun"
"""Folder beside the store: what was known of each run when it first began."""
RL_R = "rl-r"
"""The router with settings of its own in chosen.toml, chosen from a study."""
LAST_LINES, TOLD = 20, 3
"""Lines of a failed run's output, shown for so many runs: what fails often fails alike."""


def build_corpora(place: Path, texts: Path | None, say: Callable[[str], None]) -> None:
    """Make those that are not there yet; each appears whole or not at all."""
    for name, (file, documents) in TEXTS.items():
        if (place / name / MANIFEST).is_file():
            continue
        if texts is None:
            raise InputError(f"{place / name} is not there: say where the texts are, with --texts.")
        share = VALIDATION_SHARE if name == TRAINING else 0.0
        reading = Reading(documents=documents)
        corpus = build_corpus([texts / file], place / name, tokenizer=TOKENIZER, validation=share, reading=reading)
        say(f"{name}: {sum(len(split.tokens) for split in corpus.splits.values()):,} tokens, id {corpus.id[:12]}")


def build_quick_corpora(place: Path) -> None:
    """Text of no meaning, for all of them."""
    draw = random.Random(7)
    words = ["".join(draw.choices("aeiobdglmnrst", k=draw.randint(2, 6))) for _ in range(60)]
    text = place / "text.txt"
    place.mkdir(parents=True, exist_ok=True)
    text.write_text("".join(" ".join(draw.choices(words, k=40)) + "\n" for _ in range(200)))
    reading, tokenizer = Reading(documents="line"), None
    for name in TEXTS:
        if not (place / name / MANIFEST).is_file():
            build_corpus(
                [text],
                place / name,
                vocabulary=QUICK_VOCABULARY,
                tokenizer=tokenizer,
                validation=0.1,
                reading=reading,
                workers=1,
            )
        tokenizer = place / TRAINING / "tokenizer.model"


@dataclass
class Allocation:
    store: Store
    place: Path
    """The folder with sweeps/, data/ and predictions/."""
    jobs: int
    until: float
    """By the monotonic clock, when workers are to stop."""
    recorded: dict[str, EndedRun] = field(default_factory=dict)
    """What the tables have."""
    pack_to: Path | None = None
    """The file that ended runs are packed to, every few of them."""
    as_chosen: bool = False
    """RL-R's runs do not wait until its weights are chosen for good."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    stopped: bool = False
    """Asked to stop from outside."""
    corpora: dict[str, Corpus] = field(default_factory=dict)
    """Those opened so far: each is checked byte by byte once."""

    @property
    def over(self) -> bool:
        return self.stopped or time.monotonic() >= self.until

    def train(self, studies: Sequence[str]) -> dict[str, str]:
        """What the studies lack, in their order, each run once, by workers that stay; returns why runs failed."""
        planned = self.planned(studies)
        missing = self._decided([run for run in planned.values() if not self.ended(run.spec.run_id)])
        if not missing or self.over:
            return {}
        self.store.check_writable()
        machine, fewer = machine_for(missing, self.store, self.jobs)
        if fewer:
            say(fewer)
        tasks = [Task.of(run, machine.execution(run.execution), self.store, ()) for run in missing]
        failed: dict[str, str] = {}
        ended = 0
        events = run_local(tasks, self.store, devices=machine.devices, threads=machine.threads)
        for event in events:
            if isinstance(event, Started):
                self._begin(event.run_id, machine)
            elif isinstance(event, RunEnded):
                ended += 1
                self.pack() if ended % PACK_EVERY == 1 else self.record()
            elif isinstance(event, RunFailed):
                failed[event.run_id] = event.reason
                say(f"FAILED {describe(planned[event.run_id].spec)}: {event.reason}")
                if len(failed) <= TOLD:
                    say(self._last_words(event.run_id))
            elif isinstance(event, Lost):
                say(f"lost {describe(planned[event.run_id].spec)}: {event.reason}")
            if self.over:
                break
        events.close()  # pyrefly: ignore
        self.record()  # what ended while workers were being stopped
        return failed

    def pack(self) -> int:
        """Every ended run of the store, none without what is known of it, and beside them how long the device was held
        so far; returns how many."""
        self.record()
        if self.pack_to is None:
            return 0
        held = {"began": self.began.isoformat(timespec="seconds"), "jobs": self.jobs}
        held["seconds"] = round((datetime.now(UTC) - self.began).total_seconds())
        write_atomically(json.dumps(held).encode(), self.pack_to.with_name(HELD), force=True)
        return pack(self.store, self.pack_to)

    def record(self) -> None:
        """What is known of each ended run that lacks it, also where an earlier allocation was killed."""
        for run in self.store.runs():
            if run.ended and not (run.folder / ALLOCATION).is_file() and self._begun(run.run_id).is_file():
                self._record(run)

    def ended(self, run_id: str) -> bool:
        return run_id in self.recorded or self.store.ended(run_id)

    def check_text(self, path: Path) -> None:
        """Rates chosen on one text are not for another."""
        corpus = self._opened(path)
        if any(run.spec.corpus != corpus.id for run in self.recorded.values()):
            raise InputError(f"{self.place}: its tables are of another text than {path}; work in another --root.")

    def planned(self, studies: Iterable[str]) -> dict[str, PlannedRun]:
        """By id, in the order of the studies and their files, with everything checked that would fail later."""
        found: dict[str, PlannedRun] = {}
        for study in studies:
            for run in read_sweep(self.place / SWEEPS.name / f"{study}.toml", opened=self._opened).runs:
                others = {name: self._opened(path) for name, path in run.others.items()}
                check_run(run.spec, run.execution, {"validation": self._opened(run.corpus), **others})
                found.setdefault(run.spec.run_id, run)
        return found

    def _decided(self, runs: list[PlannedRun]) -> list[PlannedRun]:
        """Without RL-R's runs whose weights may still change: one sentence says so."""
        waiting = {run.spec.run_id for run in runs if has_chosen_weights(run.spec)}
        if self.as_chosen or not waiting:
            return runs
        tried = self.planned([WEIGHTS_OF_RL])
        waiting -= tried.keys()
        why = self._undecided(tried)
        if not why or not waiting:
            return runs
        say(f"{len(waiting)} runs of {RL_R} wait for its weights: {why} (--as-chosen trains them all the same).")
        return [run for run in runs if run.spec.run_id not in waiting]

    def _undecided(self, tried: Mapping[str, PlannedRun]) -> str:
        """Why the weights in chosen.toml may change; empty where they are the best, by the mean loss, of all tried."""
        left = sum(not self.ended(run_id) for run_id in tried)
        if left:
            return f"{left} of {len(tried)} runs of {WEIGHTS_OF_RL} have not ended"
        known = self.recorded | ended_in(self.store)
        losses: dict[str, list[float]] = {}
        for run_id, run in tried.items():
            losses.setdefault(run.spec.variant, []).append(known[run_id].loss)
        best = min(losses, key=lambda variant: fmean(losses[variant]))
        chosen = {run.spec.variant for run in self.planned([MAIN]).values() if run.spec.router.name == RL_R}
        return "" if chosen == {best} else f"chosen.toml does not have the best of {WEIGHTS_OF_RL}, {best}"

    def _last_words(self, run_id: str) -> str:
        """The end of a failed run's output: it stays behind with the machine."""
        outputs = [folder / OUTPUT for _, folder in self.store.attempts(run_id) if (folder / OUTPUT).is_file()]
        return "\n".join(outputs[-1].read_text(errors="replace").splitlines()[-LAST_LINES:]) if outputs else ""

    def _opened(self, path: str | Path) -> Corpus:
        if str(path) not in self.corpora:
            self.corpora[str(path)] = open_corpus(path, verify=True)
        return self.corpora[str(path)]

    def _begun(self, run_id: str) -> Path:
        return self.store.path.with_name(BEGUN) / f"{run_id}.json"

    def _beginning(self) -> dict[str, str | None]:
        """What tells later whether a run was predicted before it began."""
        now, predictions = datetime.now(UTC).isoformat(timespec="seconds"), self.place / PREDICTIONS.name / FILE
        return {"began": now, "predictions": hash_of(predictions), "committed": committed_here(predictions)}

    def _begin(self, run_id: str, machine: Machine) -> None:
        """Written at once. A run that goes on keeps its first beginning."""
        file, beginning = self._begun(run_id), self._beginning()
        if file.is_file():
            first = json.loads(file.read_bytes())
            beginning = {name: first[name] for name in beginning}
        made_by = {"torch": torch.__version__, "python": platform.python_version()}
        about = {"runs_at_a_time": machine.jobs, **made_by, **beginning}
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(json.dumps(about).encode(), file, force=True)

    def _record(self, run: StoredRun) -> None:
        about = {
            "machine": f"{run.result['device']}, {os.cpu_count()} cores",
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            **json.loads(self._begun(run.run_id).read_bytes()),
        }
        write_atomically(json.dumps(about).encode(), run.folder / ALLOCATION, force=True)
        loss, seconds = run.result["loss_validation"], run.result["seconds"]
        shown = run.status if loss is None else f"{loss:.4f}"
        say(f"{describe(run.spec)}, rate {run.spec.train.learning_rate:g}: {shown}, {seconds:.0f} s")


def main() -> None:
    begun = time.monotonic()
    given = arguments()
    root, out = given.root.resolve(), given.out
    place = root / "experiments" / "miniature"
    corpora, store = root / "out" / "miniature", Store(root / "out" / "miniature" / "runs")
    until = begun + given.minutes * 60 - SPARE
    allocation = Allocation(
        store, place, given.jobs, until, recorded_in(place / DATA.name), out / PACK, given.as_chosen
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(allocation, "stopped", True))
    if place != HERE:
        shutil.copytree(SWEEPS, place / SWEEPS.name, dirs_exist_ok=True)
    build_quick_corpora(corpora) if given.quick else build_corpora(corpora, given.texts, say)
    allocation.check_text(corpora / TRAINING)
    out.mkdir(parents=True, exist_ok=True)
    say(f"ready after {time.monotonic() - begun:.0f} s; {len(allocation.recorded)} runs are in the tables")
    if set(OF_LARGEST) & set(given.only or ()):
        say(check_before_training(place / PREDICTIONS.name / FILE))
    studies = given.only or ((QUICK,) if given.quick else tuple(s for s in STUDIES if s not in ON_REQUEST))
    try:
        failed = allocation.train([study for study in studies if study == RATES])
        others = [study for study in studies if study != RATES]
        if others and not given.quick:
            others = others if chosen_rates(allocation, out) else []
        failed |= allocation.train(others)
    finally:  # whatever happens, what has ended is not lost with the machine
        say(f"{allocation.pack()} ended runs in {out / PACK}")
    for study in studies:
        runs = allocation.planned([study])
        ended = sum(map(allocation.ended, runs))
        say(f"{study}: {ended} of {len(runs)} runs have ended")
    say(f"{time.monotonic() - begun:.0f} s in all, {len(failed)} failed")


def has_chosen_weights(spec: RunSpec) -> bool:
    """Whether it is RL-R with weights that were searched for, not the technique's defaults."""
    return spec.router.name == RL_R and bool(spec.router.options or spec.router.balance_weight is not None)


def chosen_rates(allocation: Allocation, out: Path) -> bool:
    """Written here and to `out`, once they can be told."""
    file = allocation.place / SWEEPS.name / CHOSEN.name
    found = write_chosen(allocation.recorded | ended_in(allocation.store), file)
    if not found:
        say("the learning rates are not chosen yet: nothing else is trained.")
        return False
    say(f"learning rates: {', '.join(found)}")
    shutil.copy(file, out)
    return True


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, required=True, help="how long all of it may take")
    parser.add_argument(
        "--texts", type=Path, help="folder with mix.txt.xz and eval/; not needed where corpora are built"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for runs.tar.gz and chosen_rates.toml")
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time, if they fit; they share the GPU")
    parser.add_argument("--only", nargs="+", choices=(*STUDIES, QUICK), help="these studies, in this order")
    parser.add_argument(
        "--root",
        type=Path,
        default=HERE.parents[1],
        help="where out/miniature is made; another one gets the sweep files and has tables and predictions of its own",
    )
    parser.add_argument(
        "--as-chosen", action="store_true", help="train RL-R with the weights of chosen.toml though they may change"
    )
    parser.add_argument("--quick", action="store_true", help="five runs of twenty steps on a CPU")
    return parser.parse_args()


def say(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    run_program(main)
