"""Does a run that is killed end as if it had never been? kill −9 at random instants, resume, compare every bit.

    python benchmarks/kill_resume.py [--kills 20] [--seed 0] [--no-record]

Each trial trains a tiny run in a process of its own (one thread), kills it one to three times and lets it finish. Half
of the kills fall at a random time, half as soon as a checkpoint is seen being written, a random moment later. Compared
with a run of the same spec that nobody disturbed: the sha256 of the model's and the optimiser's tensors in the last
checkpoint, and every row of log and evaluations but for the clock. Trials differ in router and in how often they save.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch._dynamo  # noqa: F401  the optimiser would import it in every process, which takes longer than the run
from ledger import append, use_one_thread

from routelaw.corpus import Corpus, Reading, build_corpus
from routelaw.specs.architecture import Architecture
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.training.checkpoint import list_checkpoints, read_state
from routelaw.training.run import run

ROUTERS = ("s-base", "rl-r")
EXECUTION = ExecutionSpec(device="cpu", threads=1, evaluate_every=5, evaluate_tokens=128, log_every=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-record", action="store_true", help="leave results.jsonl alone")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        corpus = _corpus(Path(place))
        undisturbed, seconds = {}, {}
        for name in ROUTERS:
            folder, begun = Path(place) / name, time.perf_counter()
            assert _finish(_spec(corpus, name), EXECUTION, corpus, folder)
            undisturbed[name], seconds[name] = _outcome(folder), time.perf_counter() - begun
        kills = writing = trials = equal = 0
        while kills < asked.kills:
            name, folder = ROUTERS[trials % len(ROUTERS)], Path(place) / f"trial-{trials}"
            execution = replace(EXECUTION, save_every=1 + trials % 3, keep=1 + trials % 2)
            for _ in range(min(draw.randint(1, 3), asked.kills - kills)):
                while True:
                    hit = _killed(_spec(corpus, name), execution, corpus, folder, seconds[name], kills % 2 == 1, draw)
                    if hit is not None:
                        break  # else the run had finished first: begin it again
                    folder = folder.with_name(f"{folder.name}-again")
                kills, writing = kills + 1, writing + hit
            same = _finish(_spec(corpus, name), execution, corpus, folder) and _outcome(folder) == undisturbed[name]
            trials, equal = trials + 1, equal + same
            if not same:
                print(f"trial {trials} ({name}, save_every {execution.save_every}): the end differs", file=sys.stderr)
    print(
        f"{kills} kills, {writing} of them while a checkpoint was being written; {equal} of {trials} runs ended equal"
    )
    if not asked.no_record:
        figures = {"kills": kills, "while_writing": writing, "runs": trials, "equal": equal}
        append("kill_resume", "seeded words", figures)
    return 0 if equal == trials else 1


def _killed(
    spec: RunSpec,
    execution: ExecutionSpec,
    corpus: Corpus,
    folder: Path,
    seconds: float,
    at_writing: bool,
    draw: random.Random,
) -> bool | None:
    """Train and kill; whether a checkpoint was being written, or None if the run was over before."""
    process = _start(spec, execution, corpus, folder)
    time.sleep(draw.uniform(0, seconds * (0.4 if at_writing else 0.9)))
    if at_writing:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until and not _unfinished(folder, process):
            pass
        time.sleep(draw.uniform(0, 0.002))
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return _unfinished(folder, process) if os.WIFSIGNALED(status) else None


def _unfinished(folder: Path, process: int) -> bool:
    """Whether a checkpoint begun by this process lies there; those of processes killed earlier may, too."""
    try:
        with os.scandir(folder / "checkpoints") as entries:
            return any(entry.name.startswith(".step-") and entry.name.endswith(f".{process}") for entry in entries)
    except FileNotFoundError:
        return False


def _finish(spec: RunSpec, execution: ExecutionSpec, corpus: Corpus, folder: Path) -> bool:
    _, status = os.waitpid(_start(spec, execution, corpus, folder), 0)
    return status == 0


def _start(spec: RunSpec, execution: ExecutionSpec, corpus: Corpus, folder: Path) -> int:
    """A process that trains. Forked: it need not import torch again."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    try:
        run(spec, execution, corpus, folder)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _outcome(folder: Path) -> tuple[object, ...]:
    state = read_state(list_checkpoints(folder / "checkpoints")[-1])
    lines = [(folder / name).read_text().splitlines() for name in ("log.jsonl", "evaluations.jsonl")]
    rows = [
        [{k: v for k, v in json.loads(line).items() if k not in ("tokens_per_second", "seconds")} for line in file]
        for file in lines
    ]
    return state["step"], state["counters"], state["sha256"], rows


def _spec(corpus: Corpus, router: str) -> RunSpec:
    return RunSpec(
        model=ModelSpec(Architecture(32, 2, 2, 16), vocabulary=corpus.vocabulary, sequence_length=16),
        router=RouterSpec(router, 4, group_tokens=32),
        train=TrainSpec(steps=20, batch=4, learning_rate=1e-2),
        corpus=corpus.id,
    )


def _corpus(place: Path) -> Corpus:
    draw = random.Random(3)
    words = ["".join(draw.choices("aeiobdglmnrst", k=4)) for _ in range(40)]
    (place / "text.txt").write_text("".join(" ".join(draw.choices(words, k=20)) + "\n" for _ in range(200)))
    reading = Reading(documents="line")
    return build_corpus(
        [place / "text.txt"], place / "corpus", vocabulary=300, validation=0.1, reading=reading, workers=1
    )


if __name__ == "__main__":
    use_one_thread()
    sys.exit(main())
