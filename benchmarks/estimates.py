"""What `sweep --dry-run` says a sweep will take, over what it then takes: time, and memory.

    python -m benchmarks.estimates [--device cpu] [--jobs 1] [--sizes 0.05M 0.2M] [--experts 2 8 32] [--steps 250]
                                   [--batch 16] [--length 64] [--record]

A small sweep (dense, hash and s-base) on the text of Python's standard library is estimated by arithmetic and by trial
steps, then trained; then it is estimated once more with another seed, from the runs that are there, and trained again.
Of the E given, those between the first and the last are interpolated. Wanted: trial steps within 25 % for the whole
sweep. The largest resident size of a worker is compared with the largest estimate (on a GPU: of the host's memory;
for the GPU's own see tests/costs/test_footprint.py).
Other work on the machine makes the figures worthless: the load is among them.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.script import run
from routelaw.bench.results import Row, row
from routelaw.corpus import build_corpus
from routelaw.corpus.shards import Corpus
from routelaw.runs.store import Store
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size, size_label
from routelaw.sweeps.estimate.sweep_estimate import STARTUP_SECONDS, RunEstimate, SweepEstimate, estimate_sweep
from routelaw.sweeps.local import Machine, run_local
from routelaw.sweeps.progress import RunEnded, Started
from routelaw.sweeps.sweep import PlannedRun
from routelaw.sweeps.task import Task

ROUTERS = ("hash", "s-base")
WANTED = {"trial_steps": (0.75, 1.25)}


@dataclass(frozen=True)
class Options:
    device: str = "cpu"
    jobs: int = 1
    threads: int = 1
    sizes: tuple[str, ...] = ("0.05M", "0.2M")
    experts: tuple[int, ...] = (2, 8, 32)
    steps: int = 250
    batch: int = 16
    length: int = 64


def planned_runs(corpus: Corpus, asked: Options, seed: int) -> list[PlannedRun]:
    routers = [RouterSpec(), *(RouterSpec(name, experts) for name in ROUTERS for experts in asked.experts)]
    every = max(asked.steps // 5, 1)
    execution = ExecutionSpec(
        device=asked.device, threads=asked.threads, evaluate_every=every, evaluate_tokens=32_768,
        save_every=asked.steps, log_every=10,
    )  # fmt: skip
    train = TrainSpec(steps=asked.steps, batch=asked.batch, learning_rate=3e-3, seed=seed)
    return [
        PlannedRun(
            RunSpec(ModelSpec(get_size(size), corpus.vocabulary, asked.length), router, train, corpus.id),
            execution,
            corpus.path,
            {},
        )
        for size in asked.sizes
        for router in routers
    ]


def train(runs: list[PlannedRun], store: Store, machine: Machine) -> tuple[float, dict[str, float]]:
    """Seconds on the clock, in all and for each run from when a worker got it to when its result was there.

    A worker's first run waits for its imports, which an estimate has once per worker: they are taken off again.
    """
    tasks = [Task.of(run, machine.execution(run.execution), store, ()) for run in runs]
    begun, started, taken = time.perf_counter(), {}, {}
    for event in run_local(tasks, store, devices=machine.devices, threads=machine.threads):
        if isinstance(event, Started):
            startup = STARTUP_SECONDS if len(started) < machine.jobs else 0.0
            started[event.run_id] = time.perf_counter() + startup
        elif isinstance(event, RunEnded):
            taken[event.run_id] = time.perf_counter() - started[event.run_id]
    return time.perf_counter() - begun, taken


def over_measured(estimates: dict[str, SweepEstimate], taken: dict[str, float]) -> Iterator[Row]:
    """Predicted over measured seconds of each run, a column for each estimate."""
    for number, planned in enumerate(next(iter(estimates.values())).runs):
        seconds = taken[planned.run.spec.run_id]
        ratios = {name: estimate.runs[number].seconds / seconds for name, estimate in estimates.items()}
        yield row(name_of(planned), {"seconds": seconds} | ratios)


def name_of(planned: RunEstimate) -> str:
    spec = planned.run.spec
    experts = f" E={spec.router.experts}" if spec.routed_blocks else ""
    return f"{spec.router.name} {size_label(spec.counts.active_params)}{experts}, seed {spec.train.seed}"


def rows(asked: Options) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        corpus = build_corpus(["python"], Path(folder) / "corpus", vocabulary=2048, workers=os.cpu_count() or 1)
        store = Store(Path(folder) / "runs")
        first, second = (planned_runs(corpus, asked, seed) for seed in (0, 1))
        machine = Machine.here([run.execution for run in first], asked.jobs)
        loads = {"load_before": os.getloadavg()[0]}
        counted = estimate_sweep(first, store, machine=machine)
        begun = time.perf_counter()
        tried = estimate_sweep(first, store, machine=machine, measure=True)
        trial_seconds = time.perf_counter() - begun
        wall, taken = train(first, store, machine)
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        by_run = list(over_measured({"arithmetic": counted, "trial steps": tried}, taken))
        yield from by_run
        known = estimate_sweep(second, store, machine=machine)
        wall_again, taken_again = train(second, store, machine)
        yield from over_measured({"measured here": known}, taken_again)
    figures = {
        "wall_s": wall,
        "trials_s": trial_seconds,
        "arithmetic": counted.wall_seconds / wall,
        "trial_steps": tried.wall_seconds / wall,
        "measured_here": known.wall_seconds / wall_again,
        "trial_steps_median_run": statistics.median(one.figures["trial steps"] for one in by_run),
        "host_memory": max(run.required.host for run in tried.runs) / largest,
    }
    yield row("whole sweep", figures | loads | {"load_after": os.getloadavg()[0]})


def data(asked: Options) -> str:
    runs = len(asked.sizes) * (1 + len(ROUTERS) * len(asked.experts))
    return f"{asked.device}, {asked.jobs} jobs, {runs} runs of {asked.steps} steps"


if __name__ == "__main__":
    run("estimates", __doc__, Options, rows, data, wanted=WANTED)
