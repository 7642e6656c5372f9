"""Does a disturbed sweep end as if nothing had happened? Kill it, fill its disk, lose a node; compare the run table.

    python benchmarks/sweep_faults.py [--trials 20] [--faults worker,parent,disk,node,twice] [--most 3] [--seed 0]

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

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger import append

from routelaw.corpus import Reading, build_corpus
from routelaw.runs.store import OUTPUT, UNFINISHED, Store

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--faults", default="worker,parent,disk")
    parser.add_argument("--most", type=int, default=3, help="times that a trial is disturbed, at most")
    parser.add_argument("--few", action="store_true", help="sweeps of 6 runs")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-record", action="store_true", help="leave results.jsonl alone")
    asked = parser.parse_args()
    draw, faults = random.Random(asked.seed), asked.faults.split(",")
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        _corpus(place)
        many, some, runs = FEW if asked.few else FULL
        sweep = SWEEP.replace("STEPS", str(asked.steps)).replace("MANY", many).replace("SOME", some)
        (place / "sweep.toml").write_text(sweep)
        assert _finish(place, place / "undisturbed"), "the undisturbed sweep fails"
        wanted = _table(place, place / "undisturbed")
        equal = 0
        for trial in range(asked.trials):
            fault = faults[trial % len(faults)]
            store = place / f"trial-{trial}"
            hit, ended = TRIALS[fault](Trial(place, store, draw, asked.most, runs))
            problem = ended or _wrong(place, store, wanted)
            _unmount(store)
            done[fault] += hit
            equal += not problem
            print(f"trial {trial + 1}: {fault}, {hit} times: {problem or 'equal'}", flush=True)
    words = ", ".join(f"{count} × {fault}" for fault, count in done.items())
    print(f"{equal} of {asked.trials} sweeps of {runs} runs ended equal; faults: {words}")
    if not asked.no_record:
        append("sweep_faults", "seeded words", {"trials": asked.trials, "equal": equal, "faults": dict(done)})
    return 0 if equal == asked.trials else 1


@dataclass(frozen=True)
class Trial:
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
        return _start(self.place, self.store, *more)

    def finish(self) -> str:
        return "" if _finish(self.place, self.store) else "the same command does not end well"


def _worker(trial: Trial) -> tuple[int, str]:
    """The sweep itself goes on; it is not started again."""
    process, hit = trial.start(), 0
    for _ in range(trial.draw.randint(1, trial.most)):
        trial.wait(process)
        workers = _children(process.pid)
        if process.poll() is None and workers:
            os.kill(trial.draw.choice(workers), signal.SIGKILL)
            hit += 1
    return hit, _ended_well(process)


def _parent(trial: Trial) -> tuple[int, str]:
    hit = 0
    for _ in range(trial.draw.randint(1, trial.most)):
        process = trial.start()
        trial.wait(process)
        if process.poll() is None:
            process.kill()
            process.communicate()
            hit += 1
    return hit, trial.finish()


def _disk(trial: Trial) -> tuple[int, str]:
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


def _node(trial: Trial) -> tuple[int, str]:
    """Never started again: what the lost node had must go on elsewhere."""
    with _two_nodes() as (cluster, second):
        process = trial.start("--backend", "ray", "--address", cluster.address)
        trial.wait(process)
        running = process.poll() is None
        cluster.remove_node(second, allow_graceful=False)
        return int(running), _ended_well(process)


def _twice(trial: Trial) -> tuple[int, str]:
    """With a worker each, so that both want the same runs in the same order."""
    first = trial.start("--jobs", "1")
    time.sleep(trial.draw.uniform(0, 0.5))
    second = trial.start("--jobs", "1")
    trial.wait(first)
    both = first.poll() is None and second.poll() is None
    problem = _ended_well(first) or _ended_well(second)
    begun = [len((run.folder / OUTPUT).read_text().splitlines()) for run in Store(trial.store).runs()]
    return int(both), problem or ("" if begun == [1] * trial.runs else f"runs were begun {begun} times")


TRIALS = {"worker": _worker, "parent": _parent, "disk": _disk, "node": _node, "twice": _twice}


def _wrong(place: Path, store: Path, wanted: bytes) -> str:
    left = [path.name for path in (store / UNFINISHED).iterdir()]
    if left:
        return f"left unfinished: {left}"
    return "" if _table(place, store) == wanted else "the table differs"


def _start(place: Path, store: Path, *more: str) -> subprocess.Popen[str]:
    words = ["sweep", str(place / "sweep.toml"), "--store", str(store), *(more or ("--jobs", "2"))]
    return subprocess.Popen(_command(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _finish(place: Path, store: Path) -> bool:
    return not _ended_well(_start(place, store))


def _ended_well(process: subprocess.Popen[str]) -> str:
    try:
        words = process.communicate(timeout=LIMIT)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return f"it hangs: {process.communicate()[1][-500:]}"
    return "" if process.returncode == 0 else f"code {process.returncode}: {words[-500:]}"


def _table(place: Path, store: Path) -> bytes:
    out = place / "table.csv"
    subprocess.run(
        _command("runs", "export", str(store), "--out", str(out), "--force"), check=True, capture_output=True
    )
    return out.read_bytes()


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "routelaw", *words]


def _ended(store: Path) -> int:
    return len(list(store.glob("*/result.json")))


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


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


def _corpus(place: Path) -> None:
    draw = random.Random(3)
    words = ["".join(draw.choices("aeiobdglmnrst", k=4)) for _ in range(40)]
    (place / "text.txt").write_text("".join(" ".join(draw.choices(words, k=20)) + "\n" for _ in range(200)))
    reading = Reading(documents="line")
    build_corpus([place / "text.txt"], place / "corpus", vocabulary=300, validation=0.1, reading=reading, workers=1)


if __name__ == "__main__":
    sys.exit(main())
