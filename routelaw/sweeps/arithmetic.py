"""A run's pace by arithmetic (specs/step_time.py), for when nothing can be measured, and what this device can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from routelaw.costs.devices import Device
from routelaw.costs.memory import Footprint
from routelaw.costs.step_time import compute_time
from routelaw.specs.run import ExecutionSpec
from routelaw.sweeps.pace import ARITHMETIC, StepTime
from routelaw.sweeps.sweep import PlannedRun

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


def arithmetic_pace(run: PlannedRun, memory: Footprint, device: Device) -> StepTime:
    """`memory` is that of a process's part of the batch in one piece, nothing recomputed: what is moved depends on
    neither. Recomputation does the blocks' products once more. What processes send each other is not in it."""
    from routelaw.training.compiling import obstacle_to_compiling

    layout = run.execution.layout
    compiled = run.execution.compile != "off" and not obstacle_to_compiling(run.spec, run.execution)
    step = compute_time(run.spec, run.execution.micro_batches, memory, device, layout, compiled)
    begin = COMPILED_BEGIN if device.gpu and compiled else 0.0
    again = step.tokens * step.split_flops / device.flops(step.split_width) if run.execution.recompute else 0.0
    return StepTime(step.total + again, step.forward_per_token / layout.batch, begin, ARITHMETIC)
