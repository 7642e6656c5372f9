"""Does a run that is killed end as if it had never been? kill −9 at random instants, resume, compare every bit.

    python -m verification.kills [--kills 20] [--seed 0] [--processes 1]

Each trial trains a tiny run, kills it one to three times and lets it finish. Compared with a run of the same spec that
nobody disturbed: the sha256 of the model's and the optimiser's tensors in the last checkpoint, and every row of log and
evaluations but for the clock.

One process (with one thread): half of the kills fall at a random time, half as soon as a checkpoint is seen being
written, a random moment later. Trials differ in router and in how often they save.

`--processes 2`: experts lie on two processes; whoever started them, or one of the two, is killed at a random step.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.script import run as run_script
from benchmarks.script import use_one_thread
from routelaw.bench.results import Row, row
from routelaw.corpus import Corpus, Reading, build_corpus
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.training.checkpoint import list_checkpoints, read_state

ROUTERS = ("s-base", "rl-r")
EXECUTION = ExecutionSpec(device="cpu", threads=1, evaluate_every=5, evaluate_tokens=128, log_every=1)
CLOCK = ("tokens_per_second", "seconds")


@dataclass(frozen=True)
class Options:
    kills: int = 20
    seed: int = 0
    processes: int = 1


def seeded_corpus(place: Path) -> Corpus:
    """A few words in random order, in `place`/corpus."""
    draw = random.Random(3)
    words = ["".join(draw.choices("aeiobdglmnrst", k=4)) for _ in range(40)]
    (place / "text.txt").write_text("".join(" ".join(draw.choices(words, k=20)) + "\n" for _ in range(200)))
    reading = Reading(documents="line")
    return build_corpus(
        [place / "text.txt"], place / "corpus", vocabulary=300, validation=0.1, reading=reading, workers=1
    )


def outcome(folder: Path) -> tuple[object, ...]:
    state = read_state(list_checkpoints(folder / "checkpoints")[-1])
    rows = [
        [{k: v for k, v in json.loads(line).items() if k not in CLOCK} for line in (folder / name).open()]
        for name in ("log.jsonl", "evaluations.jsonl")
    ]
    return state["step"], state["counters"], state["sha256"], rows


class OneProcess:
    """Runs in a process forked from this one, which has imported torch."""

    def __init__(self, place: Path, draw: random.Random) -> None:
        import torch._dynamo  # noqa: F401  the optimiser would import it in every process: longer than the run takes

        self.draw, self.corpus = draw, seeded_corpus(place)
        self.trial = self.kills = 0
        self.seconds: dict[str, float] = {}

    @property
    def name(self) -> str:
        return ROUTERS[self.trial % len(ROUTERS)]

    def finish(self, folder: Path) -> bool:
        begun = time.perf_counter()
        _, status = os.waitpid(self._start(folder), 0)
        self.seconds.setdefault(self.name, time.perf_counter() - begun)
        return status == 0

    def kill(self, folder: Path) -> bool | None:
        """Train and kill; whether a checkpoint was being written, or None if the run was over before."""
        begun = time.time()
        process, seconds, at_writing = self._start(folder), self.seconds[self.name], self.kills % 2 == 1
        time.sleep(self.draw.uniform(0, seconds * (0.4 if at_writing else 0.9)))
        if at_writing:
            until = time.perf_counter() + seconds
            while time.perf_counter() < until and not _unfinished(folder, begun):
                pass
            time.sleep(self.draw.uniform(0, 0.002))
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            return None
        self.kills += 1
        return _unfinished(folder, begun)

    def _start(self, folder: Path) -> int:
        from routelaw.training.run import run

        spec = RunSpec(
            model=ModelSpec(Architecture(32, 2, 2, 16), vocabulary=self.corpus.vocabulary, sequence_length=16),
            router=RouterSpec(self.name, 4, group_tokens=32),
            train=TrainSpec(steps=20, batch=4, learning_rate=1e-2),
            corpus=self.corpus.id,
        )
        execution = replace(EXECUTION, save_every=1 + self.trial % 3, keep=1 + self.trial % 2)
        sys.stdout.flush()
        process = os.fork()
        if process:
            return process
        try:
            run(spec, execution, self.corpus, folder)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)


def _unfinished(folder: Path, begun: float) -> bool:
    """Whether a checkpoint begun since then lies there; those of processes killed earlier may, too."""
    try:
        with os.scandir(folder / "checkpoints") as entries:
            return any(entry.name.endswith(".unfinished") and entry.stat().st_mtime >= begun for entry in entries)
    except FileNotFoundError:
        return False


class TwoProcesses:
    """Runs of `routelaw train`, on two processes."""

    name = "s-base"

    def __init__(self, place: Path, draw: random.Random) -> None:
        self.draw, self.corpus, self.trial = draw, seeded_corpus(place), 0

    def finish(self, folder: Path) -> bool:
        return self._start(folder).wait() == 0

    def kill(self, folder: Path) -> bool | None:
        """Train until some step, then kill the launcher or one of its processes; None if it had ended."""
        process, wanted = self._start(folder), _steps(folder) + self.draw.randint(1, 12)
        while process.poll() is None and _steps(folder) < wanted:
            time.sleep(0.005)
        time.sleep(self.draw.uniform(0, 0.05))
        with suppress(OSError):  # it may just have ended
            os.kill(self.draw.choice([process.pid, *children(process.pid)]), signal.SIGKILL)
        return False if process.wait() else None

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        words = {
            "corpus": self.corpus.path, "size": "0.05M", "router": self.name, "experts": 4, "steps": 40, "batch": 8,
            "expert": 2, "sequence-length": 16, "device": "cpu", "evaluate-every": 10, "save-every": 4, "out": folder,
        }  # fmt: skip
        given = [str(word) for name, value in words.items() for word in (f"--{name}", value)]
        given += ["--set", "router.group_tokens=16", "--set", "execution.log_every=1"]
        command = [sys.executable, "-m", "routelaw", "train", *given]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def children(process: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def _steps(folder: Path) -> int:
    try:
        return len((folder / "log.jsonl").read_bytes().splitlines())
    except FileNotFoundError:
        return 0


def rows(options: Options) -> Iterator[Row]:
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        runs = (OneProcess if options.processes == 1 else TwoProcesses)(Path(place), draw)
        wanted, kills = {}, 0
        while kills < options.kills:
            if runs.name not in wanted:
                assert runs.finish(Path(place) / runs.name), "the undisturbed run fails"
                wanted[runs.name] = outcome(Path(place) / runs.name)
            folder, writing = Path(place) / f"trial-{runs.trial}", []
            for _ in range(min(draw.randint(1, 3), options.kills - kills)):
                while (hit := runs.kill(folder)) is None:
                    folder = folder.with_name(f"{folder.name}-again")  # the run had finished first: begin it again
                writing.append(hit)
            same = runs.finish(folder) and outcome(folder) == wanted[runs.name]
            kills += len(writing)
            figures = {"kills": len(writing), "while_writing": sum(writing), "equal": same}
            yield row(f"trial {runs.trial} {runs.name}", figures)
            runs.trial += 1


def main() -> None:
    found = run_script("kills", __doc__, Options, rows, lambda o: f"seeded words, {o.processes} processes",
                       wanted={"equal": (1, 1)})  # fmt: skip
    kills, writing, equal = (int(sum(r.figures[name] for r in found)) for name in ("kills", "while_writing", "equal"))
    print(f"{kills} kills, {writing} while a checkpoint was being written; {equal} of {len(found)} runs ended equal")


if __name__ == "__main__":
    use_one_thread()
    main()
