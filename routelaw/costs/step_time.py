"""How long a step computes, by arithmetic: rough, a third off either way is usual.

A step takes its floating-point operations (three forward passes) at the rate at which the device multiplies matrices
of this width, plus the movement of what is kept for the backward pass, of attention's scores and of the optimiser's
state at the bandwidth of its memory, plus a time per step and block in which Python hands out work. How many times
each is moved was fitted to steps of 40 shapes on one CPU core (0.05M to 3M, float32) and of 28 on an H200 (0.8M to
130M, bfloat16, nothing compiled): predicted over measured 0.67 to 1.19 and 0.67 to 1.40. Compiled steps (there of nine
shapes from 3M to 370M: 0.96 to 1.03) move less, and nobody waits for Python. BASE is assigned on the host: a
microsecond for every token and expert (docs/log).

On a layout a process has its share of the tokens. Tensor-parallel ones split all products but those of logits and
router, into matrices as wide in one dimension and narrower in the other: width d/√tensor is what their rate is read at.
That is an assumption; no layout has been timed on GPUs.

What devices can do stands here, too, by their data sheets: products, memory, and the links between them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from routelaw.costs.activations import FP32, PIECE
from routelaw.costs.memory import FORWARD_AND_BACKWARD, Footprint
from routelaw.errors import InputError
from routelaw.specs.layout import Layout
from routelaw.specs.names import nearest_hint
from routelaw.specs.run import RunSpec

BEST_SHARE, HALF_WIDTH = 0.8, 260
"""A product of width d reaches 0.8·d²/(d² + 260²) of the peak: 0.16, 0.41, 0.58, 0.72 and 0.76 of it were measured on
an H200 at 128, 256, 448, 896 and 1536, and are 0.16, 0.39, 0.60, 0.74 and 0.78 by this."""
NODE = 8
"""GPUs that share a fast link, in every machine of the data sheets."""


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
    link: float = 0.0
    """Bytes per second that it sends to the others of its node; 0 where not known."""
    network: float = 0.0
    """Bytes per second that it sends to other nodes."""


def _of_data_sheet(
    name: str, tera_flops: float, tera_bytes: float, memory: float, link: float, network: float
) -> Device:
    def flops(width: int) -> float:
        return tera_flops * 1e12 * BEST_SHARE * width**2 / (width**2 + HALF_WIDTH**2)

    return Device(name, flops, tera_bytes * 1e12, True, int(memory * 1e9), link * 1e9, network * 1e9)


KNOWN = {
    "a100": _of_data_sheet("a100", 312, 2.04, 80, 300, 25),
    "h100": _of_data_sheet("h100", 989, 3.35, 80, 450, 50),
    "h200": _of_data_sheet("h200", 989, 4.8, 141, 450, 50),
    "b200": _of_data_sheet("b200", 2250, 7.7, 180, 900, 50),
    "l40s": _of_data_sheet("l40s", 362, 0.864, 48, 32, 12.5),
    "l4": _of_data_sheet("l4", 121, 0.3, 24, 32, 12.5),
}
"""NVIDIA's data sheets: bfloat16 without sparsity (TFLOP/s), memory bandwidth (TB/s) and memory (GB) of the A100 80GB
SXM, H100 SXM, H200 SXM, HGX B200, L40S and L4. Links (GB/s in one direction): half of what the sheets give for NVLink
(600, 900, 900 and 1,800 in both), and of PCIe 4.0 × 16 (64) for the two that have none. Networks (GB/s for each GPU):
one adapter for each in the DGX A100 (200 Gb/s), H100, H200 and B200 (400 Gb/s); 100 Gb/s is a guess for the others."""


def known_device(name: str) -> Device:
    key = name.strip().lower().replace(" ", "-")
    if key not in KNOWN:
        raise InputError(f"unknown device {name!r}{nearest_hint(key, KNOWN)}; there are {', '.join(KNOWN)}.")
    return KNOWN[key]


ASSIGNMENT_SECONDS = 1e-6
"""BASE, per token and expert."""


@dataclass(frozen=True)
class Passes:
    """How many times a step moves each byte, and what it costs to hand out work."""

    kept: float
    scores: float
    updated: float
    step_seconds: float
    block_seconds: float
    routed_seconds: float
    sinkhorn_seconds: float


ON_CPU = Passes(18, 90, 43, 0.0, 1.5e-3, 1e-3, 0.0)
ON_GPU = Passes(10, 45, 30, 8e-3, 1.5e-3, 4e-3, 9e-3)
COMPILED = Passes(8, 20, 13, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class ComputeTime:
    """Seconds of one process's step, and what they are of."""

    tokens: int
    """Its own, of a step."""
    split_flops: float
    """FLOPs of a forward pass, per token: what tensor-parallel processes share, and this one's part."""
    whole_flops: float
    """Logits and router: what each of them does."""
    split_width: int
    width: int
    kept: int
    """Bytes, of all its tokens, with the logits that pass by; scores are not among them."""
    scores: int
    updated: int
    """Bytes of what it steps, in float32."""
    products: float
    moving: float
    updating: float
    handing_out: float
    assigning: float

    @property
    def total(self) -> float:
        return self.products + self.moving + self.updating + self.handing_out + self.assigning

    @property
    def forward_per_token(self) -> float:
        """Without a gradient."""
        return (self.products + self.moving) / FORWARD_AND_BACKWARD / self.tokens


def compute_time(
    spec: RunSpec,
    micro_batches: int,
    memory: Footprint,
    device: Device,
    layout: Layout = Layout(),
    compiled: bool = False,
) -> ComputeTime:
    """`memory` is that of the process's tokens in one piece: what is kept and moved does not depend on the pieces.
    `compiled`: its blocks are, on a GPU."""
    passes = (COMPILED if compiled else ON_GPU) if device.gpu else ON_CPU
    shape, length = spec.model.architecture, spec.model.sequence_length
    tokens = spec.train.batch * length // layout.batch
    routers = _routers(spec)
    whole = 2 * spec.model.vocabulary * shape.d_model
    whole += routers * 2 * shape.d_model * spec.router.experts if spec.router.experts > 1 else 0
    split = (spec.counts.flops_per_token - whole) / layout.tensor
    width = round(shape.d_model / layout.tensor**0.5)
    forward = tokens * (split / device.flops(width) + whole / device.flops(shape.d_model))
    number = 2 if device.gpu else 4
    heads = shape.heads // layout.tensor
    pairs = (length + min(PIECE, length)) // 2 if device.gpu else length
    scores = (spec.model.positions == "xl") * shape.blocks * heads * tokens * pairs * number
    kept = memory.activations + tokens * spec.model.vocabulary * FP32 - scores
    stepped = memory.masters or memory.built
    return ComputeTime(
        tokens=tokens,
        split_flops=split,
        whole_flops=whole,
        split_width=width,
        width=shape.d_model,
        kept=kept,
        scores=scores,
        updated=stepped,
        products=FORWARD_AND_BACKWARD * forward,
        moving=(passes.kept * kept + passes.scores * scores) / device.bandwidth,
        updating=passes.updated * stepped / device.bandwidth,
        handing_out=micro_batches * _handing_out(spec, passes),
        assigning=ASSIGNMENT_SECONDS * tokens * spec.router.experts * routers if spec.router.name == "base" else 0.0,
    )


def _handing_out(spec: RunSpec, passes: Passes) -> float:
    seconds = passes.step_seconds + passes.block_seconds * spec.model.architecture.blocks
    seconds += passes.routed_seconds * len(spec.routed_blocks)
    return seconds + (passes.sinkhorn_seconds * _routers(spec) if spec.router.name == "s-base" else 0.0)


def _routers(spec: RunSpec) -> int:
    return min(1, len(spec.routed_blocks)) if spec.router.shared_decisions else len(spec.routed_blocks)
