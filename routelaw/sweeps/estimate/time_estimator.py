"""The pace of every shape in a sweep, found the best way there is: in the store, by trial, by arithmetic.

Runs have the same shape when a step of theirs is the same work: same model, router, batch, micro-batches, precision,
layout and way of compiling. Seed, length, learning rate and corpus may differ. Where nothing can be measured, the time
of a step is taken from arithmetic (costs/step_time.py) and from what this device can do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from routelaw.corpus.shards import open_corpus
from routelaw.costs.layouts import Cluster, crossings_of, step_seconds
from routelaw.costs.memory import Footprint, footprint_of
from routelaw.costs.step_time import NODE, Device, compute_time
from routelaw.errors import InputError
from routelaw.runs.folders import EVALUATIONS, read_lines
from routelaw.runs.store import Store, StoredRun
from routelaw.specs.layout import Layout
from routelaw.specs.run import ExecutionSpec, RunSpec, meaning_of
from routelaw.sweeps.estimate.memory_check import AvailableMemory, RequiredMemory, fits, floor_here, required_memory
from routelaw.sweeps.progress import work
from routelaw.sweeps.sweep import PlannedRun

if TYPE_CHECKING:
    from routelaw.sweeps.local import Machine


MEASURED, TRIAL, ARITHMETIC = "measured here", "trial steps", "arithmetic"
"""Finished runs of the same shape on the same device; a few real steps; a count of operations (rough)."""
SAVE_RATE = 150e6
"""Bytes per second of a checkpoint: written, hashed and flushed. 400 MB took 2.5 s on the disk of a cloud machine.
Machines are taken to write their parts side by side."""
ALONE = Layout().name
NEWEST = 3
"""Finished runs of a shape that are looked at."""


@dataclass(frozen=True)
class Shape:
    model: str
    router: str
    """Without the number of experts."""
    experts: int
    batch: int
    micro_batches: int
    precision: str
    layout: str = ALONE
    """data × expert × tensor."""
    compile: str = "off"
    recompute: bool = False

    @property
    def family(self) -> Shape:
        """Shapes that differ in E alone have one."""
        return replace(self, experts=0)


def shape_of(
    spec: RunSpec,
    micro_batches: int,
    precision: str,
    layout: str = ALONE,
    compiling: str = "off",
    recompute: bool = False,
) -> Shape:
    router = {key: value for key, value in meaning_of(spec.router).items() if key != "experts"}
    words = [json.dumps(value, sort_keys=True) for value in (meaning_of(spec.model), router)]
    model, experts, batch = words[0], spec.router.experts, spec.train.batch
    return Shape(model, words[1], experts, batch, micro_batches, precision, layout, compiling, recompute)


@dataclass(frozen=True)
class StepTime:
    step_seconds: float
    token_seconds: float
    """Seconds of evaluation, per token."""
    build_seconds: float
    """Before a run is in its stride: building the model, and what its first steps take longer."""
    how: str

    def seconds(self, steps: int, execution: ExecutionSpec, evaluated_tokens: int, checkpoint: int) -> float:
        """Seconds of a run: its steps, evaluations and checkpoints, as often as asked and, if kept, at the end."""
        evaluations, saves = (ceil(steps / every) for every in (execution.evaluate_every, execution.save_every))
        saves -= execution.keep == 0
        evaluating = evaluations * evaluated_tokens * self.token_seconds
        saving = saves * checkpoint / (SAVE_RATE * ceil(execution.processes.world / NODE))
        return self.build_seconds + steps * self.step_seconds + evaluating + saving

    def scaled(self, factor: float) -> StepTime:
        return replace(self, step_seconds=factor * self.step_seconds, token_seconds=factor * self.token_seconds)


def between(few: tuple[int, StepTime], many: tuple[int, StepTime], experts: int) -> StepTime:
    """The pace at a number of experts between two measured ones: every part of a step's time is nearly linear in E.

    Steps of 0.2M and 0.8M on a CPU at E = 4 … 64, interpolated between 2 and 128, over measured ones: hash, switch and
    s-base 0.84 to 1.12, base 0.90 to 1.19 (single measurements that are good to a tenth).
    """
    (low, first), (high, last) = few, many
    share = (experts - low) / (high - low)

    def at(a: float, b: float) -> float:
        return a + share * (b - a)

    return StepTime(
        at(first.step_seconds, last.step_seconds),
        at(first.token_seconds, last.token_seconds),
        at(first.build_seconds, last.build_seconds),
        TRIAL,
    )


def history(store: Store, shapes: Iterable[Shape], device: str, evaluated_tokens: int) -> dict[Shape, StepTime]:
    """The pace of those shapes that finished runs in the store have had on this device.

    A result that does not say in how many micro-batches and in which precision the run was done counts as done the way
    the shape says, by one process.
    """
    wanted: dict[tuple[Any, ...], list[Shape]] = {}
    for shape in shapes:
        wanted.setdefault(_meaning(shape), []).append(shape)
    found: dict[Shape, list[StepTime]] = {}
    for run in reversed(_finished(store, device)):
        for shape in wanted.get(_meaning(shape_of(run.spec, 1, "")), []):
            result = {"layout": ALONE, "recompute": False, **run.result}
            same = all(result.get(name, getattr(shape, name)) == getattr(shape, name) for name in EXECUTED)
            if same and len(found.get(shape, [])) < NEWEST and (pace := pace_of(run, evaluated_tokens)):
                found.setdefault(shape, []).append(pace)
    return {shape: _typical(paces) for shape, paces in found.items()}


EXECUTED = ("micro_batches", "precision", "layout", "compile", "recompute")


def _meaning(shape: Shape) -> tuple[Any, ...]:
    return shape.model, shape.router, shape.experts, shape.batch


def _finished(store: Store, device: str) -> list[StoredRun]:
    """Oldest first, as far as the file system knows."""
    runs = []
    for run in store.runs():
        try:
            if run.ended and run.result.get("status") == "finished" and run.result.get("device") == device:
                runs.append(((run.folder / EVALUATIONS).stat().st_mtime, run.run_id, run))
        except (InputError, OSError):
            continue  # a damaged run tells nothing about time
    return [run for _, _, run in sorted(runs, key=lambda row: row[:2])]


def pace_of(run: StoredRun, evaluated_tokens: int) -> StepTime | None:
    """From the clock in a run's log: the median pace between rows is that of steps, for evaluations are few; what is
    left of the whole is theirs (and that of the checkpoints, so that these count twice, which is little)."""
    rows = [(0, 0.0), *((int(row["step"]), float(row["seconds"])) for row in run.log() if "seconds" in row)]
    paces = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(rows) if b[0] > a[0]]
    if len(paces) < 2:
        return None
    step = median(paces[1:])  # the first row is that of the first step, which is slow
    evaluations = len(read_lines(run.folder / EVALUATIONS))
    rest = max(0.0, rows[-1][1] - rows[1][1] - step * (rows[-1][0] - rows[1][0]))
    return StepTime(step, rest / max(evaluations * evaluated_tokens, 1), max(0.0, rows[1][1] - step), MEASURED)


def _typical(paces: Sequence[StepTime]) -> StepTime:
    return StepTime(
        median(pace.step_seconds for pace in paces),
        median(pace.token_seconds for pace in paces),
        median(pace.build_seconds for pace in paces),
        MEASURED,
    )


COMPILED_BEGIN = 2.0
"""Seconds until a compiled run has taken its first step, where the compiler finds its work done: 1.8 on an H200."""


def device_here(kind: str, threads: int, precision: str) -> Device:
    """Its rates, measured: a few products of each width when asked for, and one pass over memory. Milliseconds."""
    import torch

    from routelaw.training.device import prepare, resolve_precision, settings

    where = torch.device(kind)
    dtype = resolve_precision(precision, where)
    prepare(where, dtype, lambda _: None)
    execution = ExecutionSpec(threads=threads)

    def timed(work: Callable[[], object], seconds: float = 0.03) -> float:
        """Seconds of one call, the median of three turns."""
        with settings(execution, where):
            return median(_mean_seconds(work, seconds, where.type == "cuda") for _ in range(3))

    found: dict[int, float] = {}

    def flops(width: int) -> float:
        width = min(width, 16_384 if where.type == "cuda" else 2048)  # wider products run at the same rate
        if width not in found:
            rows = 16_384 if where.type == "cuda" else 2048 if width <= 1024 else 512
            x, y = (torch.ones(shape, device=where, dtype=dtype) for shape in ((rows, width), (width, 4 * width)))
            found[width] = 8 * rows * width**2 / timed(lambda: x @ y)
        return found[width]

    moved = torch.ones(2**26 if where.type == "cuda" else 2**23, device=where)
    bandwidth = 2 * moved.nbytes / timed(lambda: moved.mul_(1.0))
    return Device(kind, flops, bandwidth, where.type == "cuda")


def _mean_seconds(work: Callable[[], object], at_least: float, gpu: bool) -> float:
    import torch

    wait = torch.cuda.synchronize if gpu else lambda: None
    work()
    wait()
    begun, calls = time.perf_counter(), 0
    while time.perf_counter() - begun < at_least:
        for _ in range(4):
            work()
        wait()
        calls += 4
    return (time.perf_counter() - begun) / calls


def arithmetic_pace(run: PlannedRun, memory: Footprint, device: Device, precision: str = "float32") -> StepTime:
    """`memory` is that of a process's part of the batch in one piece, nothing recomputed: what is moved depends on
    neither. Recomputation does the blocks' products once more. What processes send each other is in it where the
    device's links are known (costs/layouts.py)."""
    from routelaw.training.compiling import obstacle_to_compiling

    layout = run.execution.processes
    compiled = run.execution.compile != "off" and not obstacle_to_compiling(run.spec, run.execution)
    step = compute_time(run.spec, run.execution.micro_batches, memory, device, layout, compiled)
    begin = COMPILED_BEGIN if device.gpu and compiled else 0.0
    again = step.tokens * step.split_flops / device.flops(step.split_width) if run.execution.recompute else 0.0
    seconds = step.total + again
    if layout.world > 1 and device.link:
        cluster = Cluster.of(device, layout.world)
        sent = crossings_of(run.spec, layout, run.execution.micro_batches, cluster, precision)
        seconds = step_seconds(seconds, sent)
    return StepTime(seconds, step.forward_per_token / layout.batch, begin, ARITHMETIC)


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
        pieces, layout = execution.micro_batches, execution.processes.name
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
        return RequiredMemory(one.device, one.host * run.execution.processes.world)

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
            alone = run.execution.processes.world == 1  # trials are of one process
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
        paces = {
            shape: arithmetic_pace(run, self.moved(run), device, shape.precision) for shape, run in self.example.items()
        }
        ratios = [pace.step_seconds / paces[shape].step_seconds for shape, pace in known.items()]
        scale = median(ratios) if ratios else 1.0
        return {shape: paces[shape].scaled(scale) for shape in unknown}


def evaluated_tokens(run: PlannedRun) -> int:
    """Tokens of one evaluation, over all its corpora: whole windows, as many as asked for and there are. A corpus that
    is not there counts as large enough."""
    length = run.spec.model.sequence_length
    most = run.execution.evaluate_tokens // length

    def windows(path: Path) -> int:
        return most if path in run.missing else min(_held_out(path) // length, most)

    return sum(max(1, windows(path)) * length for path in (run.corpus, *run.others.values()))


@cache
def _held_out(path: Path) -> int:
    corpus = open_corpus(path)
    return len((corpus.validation if corpus.validation.documents else corpus.train).tokens)
