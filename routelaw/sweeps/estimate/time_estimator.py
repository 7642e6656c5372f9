"""The pace of every shape in a sweep, found the best way there is: in the store, by trial, by arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from routelaw.corpus.shards import open_corpus
from routelaw.costs.devices import Device
from routelaw.costs.memory import Footprint, footprint_of
from routelaw.runs.store import Store
from routelaw.specs.run import ExecutionSpec
from routelaw.sweeps.estimate.memory import AvailableMemory, RequiredMemory, fits, floor_here, required_memory
from routelaw.sweeps.estimate.step_times import (
    Shape,
    StepTime,
    arithmetic_pace,
    between,
    device_here,
    history,
    shape_of,
)
from routelaw.sweeps.progress import work
from routelaw.sweeps.sweep import PlannedRun

if TYPE_CHECKING:
    from routelaw.sweeps.local import Machine


Notice = Callable[[int, int], None]
"""Hears how many shapes of how many have been timed."""


class TimeEstimator:
    """The runs of a sweep that are still to do, by shape."""

    def __init__(
        self, runs: Sequence[PlannedRun], store: Store, machine: Machine, gpu: bool, available: AvailableMemory
    ) -> None:
        self.store, self.machine, self.gpu, self.available = store, machine, gpu, available
        self.floor = floor_here()
        self.todo = [run for run in runs if not store.ended(run.spec.run_id)]
        self.example = {self.shape(run): run for run in reversed(self.todo)}
        """The first run of every shape."""

    def precision(self, run: PlannedRun) -> str:
        asked = run.execution.precision
        return asked if asked != "auto" else "bfloat16" if self.gpu else "float32"

    def shape(self, run: PlannedRun) -> Shape:
        import torch

        from routelaw.training.compiling import resolve_compile_mode
        from routelaw.training.device import TYPES

        execution, precision = run.execution, self.precision(run)
        where = torch.device("cuda" if self.gpu else "cpu")
        way = resolve_compile_mode(run.spec, execution, where, TYPES.get(precision, TYPES["float32"]))
        pieces, layout = execution.micro_batches, execution.layout.name
        return shape_of(run.spec, pieces, precision, layout, way, execution.recompute)

    def memory(self, run: PlannedRun) -> Footprint:
        """The memory of each of its processes."""
        return footprint_of(run.spec, run.execution, self.precision(run), self.gpu)

    def moved(self, run: PlannedRun) -> Footprint:
        """What a step moves: as if in one piece, and what is recomputed is moved, if not kept."""
        kept = replace(run.execution, recompute=False)
        return footprint_of(run.spec, kept, self.precision(run), self.gpu, micro_batches=1)

    def checkpoint(self, run: PlannedRun) -> int:
        alone = replace(run.execution, data=1, expert=1, tensor=1)
        return footprint_of(run.spec, alone, self.precision(run), self.gpu).checkpoint

    def required(self, run: PlannedRun) -> RequiredMemory:
        """What all its processes need on the host, and one on its GPU."""
        shared = self.machine.jobs > len(set(self.machine.devices))
        one = required_memory(self.memory(run), self.gpu, shared, self.floor)
        return RequiredMemory(one.device, one.host * run.execution.layout.world)

    def here(self, measure: bool, plugins: Sequence[Path], notice: Notice) -> dict[Shape, StepTime]:
        """On this machine."""
        if not self.todo:
            return {}
        tokens = max(evaluated_tokens(run) for run in self.todo)
        paces = history(self.store, self.example, self.device, tokens)
        if measure:
            paces |= self.tried(paces, tuple(plugins), notice)
        return paces | self.counted(paces, None)

    @property
    def device(self) -> str:
        """As results name it; a worker's threads are part of the name."""
        from routelaw.training.device import device_name, resolve_device, settings

        device = resolve_device(self.machine.device)
        asked = self.todo[0].execution if self.todo else ExecutionSpec()
        with settings(self.machine.execution(asked), device):
            return device_name(device)

    def tried(self, known: dict[Shape, StepTime], plugins: tuple[Path, ...], notice: Notice) -> dict[Shape, StepTime]:
        """The ends of every family that fits into memory, and what lies between."""
        from routelaw.sweeps.estimate.trial import time_tasks
        from routelaw.sweeps.task import Task

        families: dict[Shape, list[Shape]] = {}
        for shape, run in self.example.items():
            alone = run.execution.layout.world == 1  # trials are of one process
            if alone and shape not in known and fits(self.required(run), self.available):
                families.setdefault(shape.family, []).append(shape)
        for family in families.values():
            family.sort(key=lambda shape: shape.experts)
        ends = list(dict.fromkeys(shape for family in families.values() for shape in (family[0], family[-1])))
        ends.sort(key=lambda shape: -work(self.example[shape].spec))  # those of a round take about as long
        tasks = []
        for shape in ends:
            run = self.example[shape]
            tasks.append(Task.of(run, self.machine.execution(run.execution), self.store, plugins))
        timed = dict(zip(ends, time_tasks(tasks, self.machine, lambda done: notice(done, len(ends))), strict=True))
        for family in families.values():
            few, many = ((shape.experts, timed[shape]) for shape in (family[0], family[-1]))
            timed |= {shape: between(few, many, shape.experts) for shape in family[1:-1]}
        return timed

    def counted(self, known: dict[Shape, StepTime], elsewhere: Device | None) -> dict[Shape, StepTime]:
        """By arithmetic what is not known, in proportion to what is."""
        unknown = [shape for shape in self.example if shape not in known]
        if not unknown:
            return {}
        device = elsewhere or device_here(self.machine.device, self.machine.threads, unknown[0].precision)
        paces = {shape: arithmetic_pace(run, self.moved(run), device) for shape, run in self.example.items()}
        ratios = [pace.step_seconds / paces[shape].step_seconds for shape, pace in known.items()]
        scale = median(ratios) if ratios else 1.0
        return {shape: paces[shape].scaled(scale) for shape in unknown}


def evaluated_tokens(run: PlannedRun) -> int:
    """Tokens of one evaluation, over all its corpora: whole windows, as many as asked for and there are."""
    length = run.spec.model.sequence_length
    most = run.execution.evaluate_tokens // length
    return sum(max(1, min(_held_out(path) // length, most)) * length for path in (run.corpus, *run.others.values()))


@cache
def _held_out(path: Path) -> int:
    corpus = open_corpus(path)
    return len((corpus.validation if corpus.validation.documents else corpus.train).tokens)
