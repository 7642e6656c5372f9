"""Does a disturbed sweep end as if nothing had happened? Kill it, fill its disk, lose a node; compare the run table.

    python -m verification.sweep_faults [--trials 20] [--faults worker parent disk node twice] [--most 3] [--seed 0]

Every trial runs the same sweep of 12 tiny runs (6 with --few) with two jobs in a fresh store, disturbs it one to three
times at random instants, and gives the same command again until it ends well. Then the exported table must be that of
the undisturbed sweep, byte for byte, and nothing may lie unfinished.

    worker   kill −9 of one worker process: the sweep must end by itself
    parent   kill −9 of the sweep
    disk     the store lies on a small tmpfs that is filled up (needs root)
    node     a two-node Ray cluster on loopback, one node killed and never back
    twice    two sweeps on one store at once: every run must have been begun exactly once
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.script import run
from routelaw.bench.results import Row, row
from routelaw.runs.store import OUTPUT, UNFINISHED, Store
from verification.kills import children, seeded_corpus

SWEEP = """
corpus = "corpus"
model = { d_model = 16, blocks = 2, heads = 2, kv_size = 8, sequence_length = 16 }
train = { steps = STEPS, batch = 4, learning_rate = 1e-2 }
execution = { device = "cpu", threads = 1, evaluate_every = 10, evaluate_tokens = 128, log_every = 2, save_every = 5 }
[[grid]]
router.name = ["dense", "s-base", "hash"]
router.experts = MANY
router.group_tokens = 32
[[grid]]
router.name = ["switch", "rl-r"]
router.experts = SOME
router.group_tokens = 32
[[grid]]
router.name = "dense"
train.seed = 1
"""
FULL, FEW = ("[2, 4, 8]", "[2, 4]", 12), ("2", "2", 6)
"""MANY, SOME, and how many runs come of them."""
LIMIT = 240.0
"""Seconds after which a sweep is taken to hang."""


@dataclass(frozen=True)
class Options:
    trials: int = 20
    faults: tuple[str, ...] = ("worker", "parent", "disk")
    most: int = 3
    """Times that a trial is disturbed, at most."""
    few: bool = False
    """Sweeps of 6 runs."""
    steps: int = 40
    seed: int = 0


def rows(options: Options) -> Iterator[Row]:
    draw = random.Random(options.seed)
    many, some, runs = FEW if options.few else FULL
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        seeded_corpus(place)
        sweep = SWEEP.replace("STEPS", str(options.steps)).replace("MANY", many).replace("SOME", some)
        (place / "sweep.toml").write_text(sweep)
        undisturbed = DisturbedSweep(place, place / "undisturbed", draw, options.most, runs)
        assert not undisturbed.finish(), "the undisturbed sweep fails"
        wanted = undisturbed.table()
        for number in range(options.trials):
            fault = options.faults[number % len(options.faults)]
            trial = DisturbedSweep(place, place / f"trial-{number}", draw, options.most, runs)
            hit, ended = FAULTS[fault](trial)
            problem = ended or trial.difference(wanted)
            _unmount(trial.store)
            name = f"trial {number + 1}: {fault}"
            yield row(name, {"times": hit, "equal": not problem}, {"ended": problem} if problem else None)


@dataclass(frozen=True)
class DisturbedSweep:
    place: Path
    store: Path
    draw: random.Random
    most: int
    """Times that it is disturbed, at most."""
    runs: int

    def wait(self, process: subprocess.Popen[str]) -> None:
        """Until a random share of what is left has been done, and a random moment longer."""
        ended = _ended(self.store)
        wanted = self.draw.randint(ended, max(ended, self.runs - 3))
        until = time.monotonic() + LIMIT
        while process.poll() is None and time.monotonic() < until:
            if _ended(self.store) >= wanted and list(self.store.glob(f"{UNFINISHED}/*/spec.json")):
                break
            time.sleep(0.02)
        time.sleep(self.draw.uniform(0, 0.5))

    def start(self, *more: str) -> subprocess.Popen[str]:
        words = ["sweep", str(self.place / "sweep.toml"), "--store", str(self.store), *(more or ("--jobs", "2"))]
        return subprocess.Popen(_command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def finish(self) -> str:
        """Empty, or why the same command does not end well."""
        return _ended_well(self.start())

    def table(self) -> bytes:
        out = self.place / "table.csv"
        words = _command("runs", "export", str(self.store), "--out", str(out), "--force")
        subprocess.run(words, check=True, capture_output=True)
        return out.read_bytes()

    def difference(self, wanted: bytes) -> str:
        left = [path.name for path in (self.store / UNFINISHED).iterdir()]
        if left:
            return f"left unfinished: {left}"
        return "" if self.table() == wanted else "the table differs"


def _worker(trial: DisturbedSweep) -> tuple[int, str]:
    """The sweep itself goes on; it is not started again."""
    process, hit = trial.start(), 0
    for _ in range(trial.draw.randint(1, trial.most)):
        trial.wait(process)
        workers = children(process.pid)
        if process.poll() is None and workers:
            os.kill(trial.draw.choice(workers), signal.SIGKILL)
            hit += 1
    return hit, _ended_well(process)


def _parent(trial: DisturbedSweep) -> tuple[int, str]:
    hit = 0
    for _ in range(trial.draw.randint(1, trial.most)):
        process = trial.start()
        trial.wait(process)
        if process.poll() is None:
            process.kill()
            process.communicate()
            hit += 1
    return hit, trial.finish()


def _disk(trial: DisturbedSweep) -> tuple[int, str]:
    """Filled to the last byte while the sweep goes on: it must stop with code 2, a sentence, and no traceback."""
    trial.store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(trial.store)], check=True)
    hit = 0
    for _ in range(trial.draw.randint(1, min(trial.most, 2))):
        process = trial.start()
        trial.wait(process)
        ballast = trial.store / ".ballast"
        _fill(ballast)
        words = process.communicate(timeout=LIMIT)[1]
        ballast.unlink()
        if process.returncode == 2 and "No space left" in words and "Traceback" not in words:
            hit += 1
        elif process.returncode != 0:  # 0: it had nothing left to write
            return hit, f"a full disk ended it with code {process.returncode}: {words[-500:]}"
    return hit, trial.finish()


def _node(trial: DisturbedSweep) -> tuple[int, str]:
    """Never started again: what the lost node had must go on elsewhere."""
    with _two_nodes() as (cluster, second):
        process = trial.start("--backend", "ray", "--address", cluster.address)
        trial.wait(process)
        running = process.poll() is None
        cluster.remove_node(second, allow_graceful=False)
        return int(running), _ended_well(process)


def _twice(trial: DisturbedSweep) -> tuple[int, str]:
    """With a worker each, so that both want the same runs in the same order."""
    first = trial.start("--jobs", "1")
    time.sleep(trial.draw.uniform(0, 0.5))
    second = trial.start("--jobs", "1")
    trial.wait(first)
    both = first.poll() is None and second.poll() is None
    problem = _ended_well(first) or _ended_well(second)
    begun = [len((run.folder / OUTPUT).read_text().splitlines()) for run in Store(trial.store).runs()]
    return int(both), problem or ("" if begun == [1] * trial.runs else f"runs were begun {begun} times")


FAULTS = {"worker": _worker, "parent": _parent, "disk": _disk, "node": _node, "twice": _twice}


def _ended_well(process: subprocess.Popen[str]) -> str:
    try:
        words = process.communicate(timeout=LIMIT)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return f"it hangs: {process.communicate()[1][-500:]}"
    return "" if process.returncode == 0 else f"code {process.returncode}: {words[-500:]}"


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "routelaw", *words]


def _ended(store: Path) -> int:
    return len(list(store.glob("*/result.json")))


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue


def _unmount(store: Path) -> None:
    if store.is_mount():
        subprocess.run(["umount", "--lazy", str(store)], check=True)


@contextmanager
def _two_nodes() -> Iterator[tuple[object, object]]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        yield cluster, cluster.add_node(num_cpus=1)
    finally:
        cluster.shutdown()


def main() -> None:
    found = run("sweep_faults", __doc__, Options, rows, lambda o: "seeded words", wanted={"equal": (1, 1)})
    print(f"{len(found)} of {len(found)} sweeps ended equal")


if __name__ == "__main__":
    main()
