"""How many runs may share a machine, and how fast does each model of a study train with the machine for itself?

    python -m experiments.miniature.train.machine [--study k] [--sizes 3M 0.8M] [--out speeds.csv]

As many of the largest runs go at a time as there is memory for, on the GPU, on the host and on disk. Runs are handed
out in order, so that any of them may meet: what holds for the largest holds for all. A worker that keeps memory of an
earlier run counts with that run, which is another one of these. A run that is told to stop leaves a checkpoint, so the
disk has its say.

Runs that share a GPU say little of how fast each could be. So the command times a few steps of every run's shape,
alone, the way `routelaw sweep --dry-run --measure` does, and writes tokens per second by run. The corpora must be built
(allocation.py does it); a shape that was trained on this machine is compiled already, which is most of the time it
takes.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pandas as pd

from experiments.miniature.studies import DATA, HERE, SPEEDS, STUDIES, SWEEPS, run_program
from routelaw.files import write_atomically
from routelaw.formatting import byte_size
from routelaw.runs.store import Store
from routelaw.specs.sizes import get_size
from routelaw.sweeps.estimate.memory_check import AvailableMemory, RequiredMemory, available_memory
from routelaw.sweeps.estimate.time_estimator import TimeEstimator
from routelaw.sweeps.estimate.trial import time_tasks
from routelaw.sweeps.local import Machine
from routelaw.sweeps.sweep import PlannedRun, read_sweep
from routelaw.sweeps.task import Task
from routelaw.training.device import device_name, resolve_device

SPARE_DISK = 2_000_000_000
"""Bytes that are left for packing what has ended."""


def largest_at_once(needs: Sequence[int], there: int | None) -> int:
    """How many of the largest fit together; at least one, which then fails by itself."""
    if there is None:
        return len(needs)
    return max(1, sum(total <= there for total in accumulate(sorted(needs, reverse=True))))


def fitting_jobs(
    asked: int, needs: Sequence[RequiredMemory], checkpoints: Sequence[int], room: AvailableMemory, disk: int, gpus: int
) -> int:
    """`room` is that of one GPU and of the host, whole; `gpus` is 0 on a CPU."""
    limits = [asked, largest_at_once([need.host for need in needs], room.host), largest_at_once(checkpoints, disk)]
    if gpus:
        limits.append(gpus * largest_at_once([need.device for need in needs], room.device))
    return min(limits)


def machine_for(runs: Sequence[PlannedRun], store: Store, asked: int) -> tuple[Machine, str]:
    """This machine with as many runs at a time as were asked for and fit, and a sentence where those are fewer."""
    executions = [run.execution for run in runs]
    machine = Machine.here(executions, asked)
    gpus = len(set(machine.devices)) if machine.device == "cuda" else 0
    room, disk = available_memory(bool(gpus), 1, max(gpus, 1)), shutil.disk_usage(store.path).free - SPARE_DISK
    pacing = TimeEstimator(runs, store, machine, bool(gpus), room)
    needs, checkpoints = [pacing.required(run) for run in runs], [pacing.checkpoint(run) for run in runs]
    jobs = fitting_jobs(machine.jobs, needs, checkpoints, room, disk, gpus)
    if jobs >= min(machine.jobs, len(runs)):
        return machine, ""
    most = max(needs, key=lambda need: (need.device, need.host))
    free = [("GPU", most.device, room.device), ("host", most.host, room.host), ("disk", max(checkpoints), disk)]
    shown = ", ".join(f"{byte_size(max(n, 0))} of {byte_size(max(t, 0))} ({w})" for w, n, t in free if t is not None)
    return Machine.here(executions, jobs), f"{jobs} runs at a time, not {asked}: the largest needs {shown}."


def measured(runs: Sequence[PlannedRun], store: Store) -> pd.DataFrame:
    """A row for each run, timed one after another."""
    machine = Machine.here([run.execution for run in runs], 1)
    tasks = [Task.of(run, machine.execution(run.execution), store, ()) for run in runs]
    paces = time_tasks(tasks, machine, lambda done: print(f"{done} of {len(tasks)}", flush=True))
    return pd.DataFrame({
        "run_id": [run.spec.run_id for run in runs],
        "tokens_per_second": [
            run.spec.tokens_after(1) / pace.step_seconds for run, pace in zip(runs, paces, strict=True)
        ],
        "device": device_name(resolve_device(machine.device)),
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=STUDIES, default="k")
    parser.add_argument("--sizes", nargs="+", help="these alone")
    parser.add_argument("--out", type=Path, default=DATA / SPEEDS)
    given = parser.parse_args()
    sizes = [get_size(size) for size in given.sizes or ()]
    runs = read_sweep(SWEEPS / f"{given.study}.toml").runs
    runs = [run for run in runs if not sizes or run.spec.model.architecture in sizes]
    found = measured(runs, Store(HERE.parents[1] / "out" / "miniature" / "runs"))
    content = found.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    write_atomically(content.encode(), given.out, force=True)
    print(f"{given.out}: {len(found)} rows")


if __name__ == "__main__":
    run_program(main)
