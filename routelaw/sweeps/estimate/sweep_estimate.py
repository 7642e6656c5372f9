"""What a sweep will take, said before it starts: memory, time and money, run by run and in all.

The time of a run is known best from finished runs of its shape on the same device (step_times.py), then from a few real
steps of it (trial.py), else by arithmetic, which is rough.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routelaw.costs.memory import Footprint
from routelaw.costs.step_time import known_device
from routelaw.formatting import byte_size, duration
from routelaw.runs.store import Store
from routelaw.specs.run import describe
from routelaw.specs.sizes import size_label
from routelaw.sweeps.estimate.memory_check import AvailableMemory, RequiredMemory, available_memory, memory_error
from routelaw.sweeps.estimate.time_estimator import ARITHMETIC, Notice, Shape, StepTime, TimeEstimator, evaluated_tokens
from routelaw.sweeps.progress import work
from routelaw.sweeps.sweep import PlannedRun

if TYPE_CHECKING:
    from routelaw.sweeps.local import Machine


DONE = "in the store"
STARTUP_SECONDS = 8.0
"""Until a worker has imported torch, once for each: 5 to 9 s were seen, on two busy cores and beside a GPU."""
FORWARD_AND_BACKWARD = 3


@dataclass(frozen=True)
class RunEstimate:
    run: PlannedRun
    memory: Footprint
    """The memory of each of its processes."""
    required: RequiredMemory
    """What they take in all, on the host; on its GPU, one."""
    devices: int
    """That it takes: a GPU for each process, or this machine."""
    checkpoint: int
    """Bytes on disk."""
    seconds: float
    """Still to do: 0 for a run that has ended, less for one that has a checkpoint."""
    how: str
    """measured here, trial steps or arithmetic; in the store where nothing is left to do."""
    cost: float | None

    @property
    def done(self) -> bool:
        return self.how == DONE

    @property
    def training_flops(self) -> float:
        """FLOPs of the whole run."""
        return FORWARD_AND_BACKWARD * work(self.run.spec)


@dataclass(frozen=True)
class SweepEstimate:
    runs: tuple[RunEstimate, ...]
    device: str
    jobs: int
    share: float
    """Share of a device (a GPU, or this machine) that a run takes while it lasts."""
    available: AvailableMemory
    price: float | None
    """Price of one device for an hour."""
    here: bool = True
    """False for a device known by name alone."""
    without_layout: tuple[tuple[PlannedRun, str], ...] = ()
    """Runs that no layout of their devices is found for, and why. They are in none of the totals."""

    @property
    def missing(self) -> list[Path]:
        """Corpora that are not there."""
        runs = [each.run for each in self.runs] + [run for run, _ in self.without_layout]
        return list(dict.fromkeys(path for run in runs for path in run.missing))

    @property
    def tokens(self) -> int:
        """Over all runs, those in the store included."""
        return sum(tokens_of(each.run) for each in self.runs)

    @property
    def training_flops(self) -> float:
        return sum(each.training_flops for each in self.runs)

    @property
    def left(self) -> list[RunEstimate]:
        return [run for run in self.runs if not run.done]

    @property
    def device_hours(self) -> float:
        return sum(run.seconds * run.devices for run in self.runs) * self.share / 3600

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.device_hours * self.price

    @cached_property
    def wall_seconds(self) -> float:
        """Every worker takes the next run when it is free, those with most work first."""
        free = [STARTUP_SECONDS] * self.jobs
        for run in sorted(self.left, key=lambda run: -work(run.run.spec)):
            heapq.heapreplace(free, free[0] + run.seconds)
        return max(free) if self.left else 0.0

    @property
    def rough(self) -> bool:
        return any(run.how == ARITHMETIC for run in self.runs)

    @property
    def checkpoint_bytes(self) -> int:
        """That the runs still to do will leave on disk."""
        return sum(run.checkpoint * run.run.execution.keep for run in self.left)

    def sentences(self) -> list[str]:
        return [*self._totals(), *self._about_layouts(), *self._about_corpora()]

    def _totals(self) -> list[str]:
        done = len(self.runs) - len(self.left)
        if not self.left:
            return ["All of its runs are in the store: nothing is left to do."] if self.runs else []
        cost = "" if self.cost is None else f", {self.cost:,.2f} at {self.price:,.2f} an hour"
        there = f", {done} are there" if done else ""
        lines = [
            f"{len(self.left)} runs to do{there}: {duration(self.wall_seconds)} with {self.jobs} at a time on "
            f"{self._devices}, {self.device_hours:.3g} device hours{cost}; "
            f"checkpoints of {byte_size(self.checkpoint_bytes)}.",
            f"The {len(self.runs)} runs see {self.tokens:.3g} tokens and take {self.training_flops:.2g} FLOPs.",
        ]
        if self.rough:
            alone = ", and for a run that shares its device with none" if self.share < 1 else ""
            better = ": --measure times a few steps of every shape" if self.here else ""
            lines.append(f"Times by arithmetic are rough (a third off is usual){alone}{better}.")
        if any(run.how == ARITHMETIC and run.run.execution.processes.world > 1 for run in self.left):
            lines.append("Runs of several GPUs were never timed: take theirs as a first guess.")
        return lines + ([problem] if (problem := too_large(self)) else [])

    @property
    def _devices(self) -> str:
        """With how many a run takes, where those are several."""
        few, many = (kind(run.devices for run in self.left) for kind in (min, max))
        return self.device if many == 1 else f"{few if few == many else f'{few} to {many}'} × {self.device}"

    def _about_layouts(self) -> list[str]:
        """Which runs the totals leave out, each with its reason."""
        if not self.without_layout:
            return []
        count = len(self.without_layout)
        head = f"No layout is found for {count} of {len(self.runs) + count} runs, which are in none of these totals:"
        return [head, *(f"  {describe(run.spec)}: {why}" for run, why in self.without_layout)]

    def _about_corpora(self) -> list[str]:
        """What is not known without them."""
        if not self.missing:
            return []
        names = ", ".join(os.path.normpath(path) for path in self.missing)
        lines = [
            f"Not there: {names}. Estimated from the specs alone, with evaluations of execution.evaluate_tokens each."
        ]
        if any(each.run.run_id is None for each in self.runs):
            lines.append("A run's id contains its corpus, so which of the runs the store holds is not known.")
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "jobs": self.jobs,
            "wall_seconds": self.wall_seconds,
            "device_hours": self.device_hours,
            "cost": self.cost,
            "rough": self.rough,
            "checkpoint_bytes": self.checkpoint_bytes,
            "too_large": too_large(self),
            "tokens": self.tokens,
            "training_flops": self.training_flops,
            "missing_corpora": [os.path.normpath(path) for path in self.missing],
            "runs": [_row(run) for run in self.runs],
            "without_layout": [{**_named(run), "reason": why} for run, why in self.without_layout],
        }


def tokens_of(run: PlannedRun) -> int:
    """Tokens that a whole run sees."""
    return run.spec.tokens_after(run.spec.train.steps)


def _named(run: PlannedRun) -> dict[str, Any]:
    """What a run is, as far as a list of runs says it."""
    spec = run.spec
    return {
        "run_id": run.run_id,
        "router": spec.router.name,
        "size": size_label(spec.counts.active_params),
        "experts": spec.router.experts,
        **asdict(spec.counts),
        "tokens": tokens_of(run),
    }


def _row(run: RunEstimate) -> dict[str, Any]:
    execution = run.run.execution
    return {
        **_named(run.run),
        "training_flops": run.training_flops,
        "layout": asdict(execution.processes),
        "devices": run.devices,
        "micro_batches": execution.micro_batches,
        "memory": {**asdict(run.memory), "total": run.memory.total},
        "need": asdict(run.required),
        "seconds": run.seconds,
        "how": run.how,
        "cost": run.cost,
    }


def too_large(estimate: SweepEstimate) -> str | None:
    """A sentence about the run that is furthest from fitting into memory, or None where all fit."""
    ordered = sorted(estimate.left, key=lambda run: -run.required.device - run.required.host)
    for run in ordered:
        spec = run.run.spec
        experts = f" E={spec.router.experts}" if spec.routed_blocks else ""
        known = f" ({run.run.run_id})" if run.run.run_id else ""
        name = f"{spec.router.name} {size_label(spec.counts.active_params)}{experts}{known}"
        problem = memory_error(
            name, run.memory, run.required, estimate.available, jobs=estimate.jobs, experts=spec.router.experts
        )
        if problem:
            return problem
    return None


def estimate_sweep(
    runs: Sequence[PlannedRun],
    store: Store,
    *,
    machine: Machine,
    measure: bool = False,
    price: float | None = None,
    device_name: str | None = None,
    plugins: Sequence[Path] = (),
    notice: Notice = lambda done, total: None,
    without_layout: tuple[tuple[PlannedRun, str], ...] = (),
) -> SweepEstimate:
    """Estimate the runs on this machine, or by arithmetic on a device by name that is not here, one run on each.

    Their layouts are chosen before (chosen_layout.py); `without_layout` are runs that none was found for. `measure`
    takes trial steps, some seconds for each shape; `notice` hears how many of how many are done.
    """
    elsewhere = known_device(device_name) if device_name else None
    gpu = machine.device == "cuda" if elsewhere is None else elsewhere.gpu
    devices = len(set(machine.devices)) if elsewhere is None else machine.jobs
    available = (
        available_memory(gpu, machine.jobs, devices) if elsewhere is None else AvailableMemory(elsewhere.memory, None)
    )
    pacing = TimeEstimator(runs, store, machine, gpu, available)
    paces = pacing.here(measure, plugins, notice) if elsewhere is None else pacing.counted({}, elsewhere)
    share = min(1.0, devices / machine.jobs)
    estimates = tuple(_estimate(pacing, run, paces, share, price) for run in runs)
    return SweepEstimate(
        estimates,
        elsewhere.name if elsewhere else pacing.device,
        machine.jobs,
        share,
        available,
        price,
        elsewhere is None,
        without_layout,
    )


def _estimate(
    pacing: TimeEstimator, run: PlannedRun, paces: Mapping[Shape, StepTime], share: float, price: float | None
) -> RunEstimate:
    devices = run.execution.processes.world if pacing.gpu else 1
    known = (run, pacing.memory(run), pacing.required(run), devices, checkpoint := pacing.checkpoint(run))
    if pacing.store.ended(run.spec.run_id):
        return RunEstimate(*known, 0.0, DONE, None if price is None else 0.0)
    pace = paces[pacing.shape(run)]
    steps = run.spec.train.steps - steps_done(pacing.store, run.spec.run_id)
    seconds = pace.seconds(steps, run.execution, evaluated_tokens(run), checkpoint)
    cost = None if price is None else seconds / 3600 * devices * share * price
    return RunEstimate(*known, seconds, pace.how, cost)


def steps_done(store: Store, run_id: str) -> int:
    """Steps up to the newest checkpoint of any attempt."""
    saved = [path.name[5:] for _, folder in store.attempts(run_id) for path in folder.glob("checkpoints/step-*")]
    return max((int(step) for step in saved if step.isascii() and step.isdigit() and len(step) < 16), default=0)
