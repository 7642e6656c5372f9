"""What `sweep --dry-run` says a sweep will take, over what it then takes: time, and memory.

    python benchmarks/estimates.py [--device cpu] [--jobs 1] [--sizes 0.05M 0.2M] [--experts 2 8 32] [--steps 250]
                                   [--batch 16] [--length 64] [--record]

A small sweep (dense, hash and s-base) on the text of Python's standard library is estimated by arithmetic and by trial
steps, then trained; then it is estimated once more with another seed, from the runs that are there, and trained again.
Of the E given, those between the first and the last are interpolated. Wanted: trial steps within 25 % for the whole
sweep. The largest resident size of a worker is compared with the largest estimate (on a GPU: of the host's memory;
for the GPU's own see tests/costs/test_footprint.py).
Other work on the machine makes the figures worthless: the load is printed. `--record` appends a line to results.jsonl.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import ledger
from rich.console import Console
from rich.table import Table

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
WANTED = 0.25


def planned_runs(corpus: Corpus, asked: argparse.Namespace, seed: int) -> list[PlannedRun]:
    routers = [RouterSpec(), *(RouterSpec(name, experts) for name in ROUTERS for experts in asked.experts)]
    every = max(asked.steps // 5, 1)
    execution = ExecutionSpec(
        device=asked.device, threads=asked.threads, evaluate_every=every, evaluate_tokens=32_768, save_every=asked.steps
    )
    train = TrainSpec(steps=asked.steps, batch=asked.batch, learning_rate=3e-3, seed=seed)
    return [
        PlannedRun(
            RunSpec(ModelSpec(get_size(size), corpus.vocabulary, asked.length), router, train, corpus.id),
            replace(execution, log_every=10),
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


def ratios(estimate: SweepEstimate, taken: dict[str, float]) -> list[float]:
    """Predicted over measured seconds of each run."""
    return [run.seconds / taken[run.run.spec.run_id] for run in estimate.runs]


def show(console: Console, estimates: dict[str, SweepEstimate], taken: dict[str, float]) -> None:
    made = Table("run", "seconds", *estimates, title="predicted over measured seconds", title_justify="left")
    columns = [ratios(estimate, taken) for estimate in estimates.values()]
    for number, run in enumerate(next(iter(estimates.values())).runs):
        seconds = taken[run.run.spec.run_id]
        made.add_row(name_of(run), f"{seconds:.1f}", *(f"{column[number]:.2f}" for column in columns))
    console.print(made)


def name_of(run: RunEstimate) -> str:
    spec = run.run.spec
    experts = f" E={spec.router.experts}" if spec.routed_blocks else ""
    return f"{spec.router.name} {size_label(spec.counts.active_params)}{experts}"


def load() -> str:
    return f"load of the last minute {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", default=["0.05M", "0.2M"])
    parser.add_argument("--experts", nargs="+", type=int, default=[2, 8, 32])
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--record", action="store_true", help="append a line to results.jsonl")
    asked = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    with tempfile.TemporaryDirectory() as folder:
        corpus = build_corpus(["python"], Path(folder) / "corpus", vocabulary=2048, workers=os.cpu_count() or 1)
        store = Store(Path(folder) / "runs")
        first, second = (planned_runs(corpus, asked, seed) for seed in (0, 1))
        machine = Machine.here([run.execution for run in first], asked.jobs)
        console.print(load())
        counted = estimate_sweep(first, store, machine=machine)
        begun = time.perf_counter()
        tried = estimate_sweep(first, store, machine=machine, measure=True)
        trial_seconds = time.perf_counter() - begun
        wall, taken = train(first, store, machine)
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        show(console, {"arithmetic": counted, "trial steps": tried}, taken)
        known = estimate_sweep(second, store, machine=machine)
        wall_again, taken_again = train(second, store, machine)
        show(console, {"measured here": known}, taken_again)
        figures = {
            "wall_s": round(wall, 1),
            "trials_s": round(trial_seconds, 1),
            "arithmetic": round(counted.wall_seconds / wall, 3),
            "trial_steps": round(tried.wall_seconds / wall, 3),
            "measured_here": round(known.wall_seconds / wall_again, 3),
            "trial_steps_median_run": round(statistics.median(ratios(tried, taken)), 3),
            "host_memory": round(max(run.required.host for run in tried.runs) / largest, 3),
        }
        console.print(load())
    console.print(f"whole sweep, predicted over measured, {asked.jobs} at a time: {figures}")
    if asked.record:
        ledger.append(
            "estimates", f"{asked.device}, {asked.jobs} jobs, {len(first)} runs of {asked.steps} steps", figures
        )
    return 0 if abs(figures["trial_steps"] - 1) <= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
