"""How many runs may go at a time: as many of the largest as there is memory for, on the GPU, on the host and on disk.

Runs are handed out in order, so that any of them may meet: what holds for the largest holds for all. A worker that
keeps memory of an earlier run counts with that run, which is another one of these. A run that is told to stop leaves a
checkpoint, so the disk has its say.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import accumulate

from routelaw.runs.store import Store
from routelaw.sweeps.estimate.memory import AvailableMemory, RequiredMemory, available_memory, in_words
from routelaw.sweeps.estimate.time_estimator import TimeEstimator
from routelaw.sweeps.local import Machine
from routelaw.sweeps.sweep import PlannedRun

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
    shown = ", ".join(f"{in_words(max(n, 0))} of {in_words(max(t, 0))} ({w})" for w, n, t in free if t is not None)
    return Machine.here(executions, jobs), f"{jobs} runs at a time, not {asked}: the largest needs {shown}."
