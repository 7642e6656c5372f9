"""A run's pace by arithmetic, for when nothing can be measured: rough, a third off either way is usual.

A step takes its floating-point operations (three forward passes) at the rate at which the device multiplies matrices
of this width, plus the movement of what is kept for the backward pass, of attention's scores and of the optimiser's
numbers at the bandwidth of its memory, plus a time per step and block in which Python hands out work. How many times
each is moved was fitted to steps of 40 shapes on one CPU core (0.05M to 3M, float32) and of 28 on an H200 (0.8M to
130M, bfloat16): predicted over measured .67 to 1.19 and .67 to 1.40. BASE is assigned on the host: a microsecond for
every token and expert (LOG.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from routelaw.errors import InputError
from routelaw.specs.footprint import Footprint
from routelaw.specs.nearest import nearest_hint
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.sweeps.pace import ARITHMETIC, Pace

FORWARD_AND_BACKWARD = 3
ASSIGNMENT_SECONDS = 1e-6
"""BASE, per token and expert."""
BEST_SHARE, HALF_WIDTH = 0.8, 260
"""A product of width d reaches .8·d²/(d² + 260²) of the peak: .16, .41, .58, .72 and .76 of it were measured on an H200
at 128, 256, 448, 896 and 1536, and are .16, .39, .60, .74 and .78 by this."""


@dataclass(frozen=True)
class Passes:
    """How many times a step moves each byte, and what it costs to hand out work."""

    kept: float
    scores: float
    numbers: float
    step_seconds: float
    block_seconds: float
    routed_seconds: float
    sinkhorn_seconds: float


ON_CPU = Passes(18, 90, 43, 0.0, 1.5e-3, 1e-3, 0.0)
ON_GPU = Passes(10, 45, 30, 8e-3, 1.5e-3, 4e-3, 9e-3)


@dataclass(frozen=True)
class Device:
    """What a device can do."""

    name: str
    flops: Callable[[int], float]
    """Operations per second in products of a given width."""
    bandwidth: float
    """Bytes per second."""
    gpu: bool
    memory: int | None = None
    """Where it is not here to be asked."""


def _of_data_sheet(name: str, tera_flops: float, tera_bytes: float, memory: float) -> Device:
    def flops(width: int) -> float:
        return tera_flops * 1e12 * BEST_SHARE * width**2 / (width**2 + HALF_WIDTH**2)

    return Device(name, flops, tera_bytes * 1e12, True, int(memory * 1e9))


KNOWN = {
    "a100": _of_data_sheet("a100", 312, 2.04, 80),
    "h100": _of_data_sheet("h100", 989, 3.35, 80),
    "h200": _of_data_sheet("h200", 989, 4.8, 141),
    "b200": _of_data_sheet("b200", 2250, 7.7, 180),
    "l40s": _of_data_sheet("l40s", 362, 0.864, 48),
    "l4": _of_data_sheet("l4", 121, 0.3, 24),
}
"""NVIDIA's data sheets: bfloat16 without sparsity (TFLOP/s), memory bandwidth (TB/s) and memory (GB) of the A100 80GB
SXM, H100 SXM, H200 SXM, HGX B200, L40S and L4."""


def known_device(name: str) -> Device:
    key = name.strip().lower().replace(" ", "-")
    if key not in KNOWN:
        raise InputError(f"unknown device {name!r}{nearest_hint(key, KNOWN)}; there are {', '.join(KNOWN)}.")
    return KNOWN[key]


def device_here(kind: str, threads: int, precision: str) -> Device:
    """Its rates, measured: a few products of each width when asked for, and one pass over memory. Milliseconds."""
    import torch

    from routelaw.training.device import resolve_precision, settings

    where = torch.device(kind)
    dtype = resolve_precision(precision, where)
    execution = ExecutionSpec(threads=threads)

    def timed(work: Callable[[], object], seconds: float = 0.03) -> float:
        """Seconds of one call, the median of three turns."""
        with settings(execution, where):
            return median(_mean_seconds(work, seconds, where.type == "cuda") for _ in range(3))

    found: dict[int, float] = {}

    def flops(width: int) -> float:
        if width not in found:
            rows = 16_384 if where.type == "cuda" else 2048
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


def arithmetic_pace(spec: RunSpec, micro_batches: int, memory: Footprint, device: Device) -> Pace:
    """`memory` is that of the whole batch in one piece: what is kept and moved does not depend on the pieces."""
    passes = ON_GPU if device.gpu else ON_CPU
    shape, tokens = spec.model.architecture, spec.train.batch * spec.model.sequence_length
    forward = tokens * spec.counts.flops_per_token / device.flops(shape.d_model)
    number = 2 if device.gpu else 4
    scores = (spec.model.positions == "xl") * shape.blocks * shape.heads * tokens * spec.model.sequence_length * number
    kept = memory.activations + memory.logits - scores
    moved = passes.kept * kept + passes.scores * scores
    routers = 1 if spec.router.shared_decisions else len(spec.routed_blocks)
    handing_out = passes.step_seconds + passes.block_seconds * shape.blocks
    handing_out += passes.routed_seconds * len(spec.routed_blocks)
    if spec.router.name == "s-base":
        handing_out += passes.sinkhorn_seconds * routers
    step = FORWARD_AND_BACKWARD * forward + (moved + passes.numbers * memory.gradients) / device.bandwidth
    step += micro_batches * handing_out
    if spec.router.name == "base":
        step += ASSIGNMENT_SECONDS * tokens * spec.router.experts * routers
    forward_share = (forward + moved / device.bandwidth / FORWARD_AND_BACKWARD) / tokens
    return Pace(step, forward_share, 0.0, ARITHMETIC)
