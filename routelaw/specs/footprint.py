"""How much memory one process needs to train a run, before it is started.

The model's tensors, their gradients and the optimiser's statistics are exact: the bytes of what `Transformer` and
`Optimizer` build. Activations are a model of what autograd keeps (activations.py). The peak is the highest of four
moments: the loss, when all activations are there; the walk back, as activations go and gradients come; the update,
when the gradients are complete; and evaluation, whose batches are others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from routelaw.errors import InputError
from routelaw.specs.activations import EVALUATED_TOKENS, Pass, has_baseline
from routelaw.specs.run import RunSpec

NUMBER = {"float32": 4, "float64": 8, "bfloat16": 2}
"""Bytes by precision."""
PROCESS_FLOOR = 420_000_000
"""Resident size of a process that has trained, evaluated and saved a tiny model: Python, torch, NumPy, and what AdamW
imports. VmHWM after runs 16 wide: 410 MB, 262 of them its own (torch 2.13 for CPUs)."""
CUDA_BUILD_FLOOR = 750_000_000
"""The same with a build of torch for GPUs, used on a CPU: 740 MB were left of a worker's 920 (torch 2.11, CUDA 13)."""
ALLOCATOR_SLACK = 1.25
"""What comes and goes leaves holes. Largest resident size of six runs on a CPU (0.05M to 3M, up to 512 experts): need
over truth .88 to 1.0 with this, .77 to .96 without; .94 to 1.01 without where malloc is told to return every large
piece. On a GPU torch had reserved 1.05 to 1.25 times what was in use."""
CUDA_HOST_FLOOR = 1_200_000_000
"""The same where a GPU is used: 750 MB after the first product (torch 2.11, CUDA 13), and kernels loaded later."""
CUDA_CONTEXT = 800_000_000
"""What CUDA and cuBLAS take on the GPU itself: 754 MB on an H200, read off cudaMemGetInfo."""
UPDATE_COPIES = 3
"""On a CPU AdamW goes tensor by tensor and holds three of the largest in passing; on a GPU it takes the square root of
all second moments at once."""


@dataclass(frozen=True)
class Footprint:
    """Bytes. Parts that are never there together are given in full; `total` is the most there is at once."""

    parameters: int
    """The model's tensors in compute precision, tables of hash routers included."""
    masters: int
    """float32 copies of the parameters, where the model computes in bfloat16."""
    optimizer: int
    """AdamW's two moments and its counters."""
    gradients: int
    """As the optimiser gets them."""
    activations: int
    """Kept for the backward pass of one micro-batch."""
    logits: int
    """Log-probabilities kept for the same."""
    evaluation: int
    """What a forward pass in evaluation holds."""
    at_once: int
    """The most of gradients, activations, logits, evaluation and what passes at one moment."""

    @property
    def total(self) -> int:
        return self.parameters + self.masters + self.optimizer + self.at_once

    @property
    def with_slack(self) -> int:
        """What an allocator takes to provide it."""
        return self.total + int((ALLOCATOR_SLACK - 1) * self.at_once)

    @property
    def checkpoint(self) -> int:
        """Of a file of model and optimiser."""
        return self.parameters + self.masters + self.optimizer


def footprint(spec: RunSpec, micro_batches: int = 1, precision: str = "float32", *, gpu: bool = False) -> Footprint:
    """Of one process with the whole model. `gpu` tells which kernels there are, not where they are."""
    if precision not in NUMBER:
        raise InputError(f"precision is {', '.join(NUMBER)}, not {precision!r}.")
    number = NUMBER[precision]
    wide = max(number, 4)
    around, *blocks = _tensors(spec)
    sizes = [size for part in (around, *blocks) for size in part]
    numbers = sum(sizes)
    length = spec.model.sequence_length
    forward = Pass(spec, max(spec.train.batch // micro_batches, 1) * length, number, gpu)
    evaluation = Pass(spec, max(EVALUATED_TOKENS // length, 1) * length, number, gpu)
    before = numbers * wide if micro_batches > 1 else 0  # gradients of the micro-batches before
    update = numbers * wide if gpu else UPDATE_COPIES * max(sizes) * wide
    moments = (
        before + sum(forward.blocks) + forward.last + forward.logits + forward.logits_in_passing,
        before + _walking_back(forward, [sum(block) * number for block in blocks], sum(around) * number),
        numbers * wide + update,
        evaluation.without_gradients,
    )
    return Footprint(
        parameters=numbers * number + _tables(spec),
        masters=0 if number == wide else numbers * wide,
        optimizer=2 * numbers * wide + 4 * len(sizes),
        gradients=numbers * wide,
        activations=sum(forward.blocks) + forward.last,
        logits=forward.logits,
        evaluation=evaluation.without_gradients,
        at_once=max(moments),
    )


def _walking_back(forward: Pass, gradients: Sequence[int], around: int) -> int:
    """The most of activations still there and gradients already there, over the blocks from the last to the first."""
    kept = list(accumulate(forward.blocks))
    made = list(accumulate(reversed(gradients)))[::-1]
    return around + max(a + g for a, g in zip(kept, made, strict=True)) + forward.block_in_passing


def _tensors(spec: RunSpec) -> list[tuple[int, ...]]:
    """Sizes of every parameter: embedding and final LayerNorm first, then block by block.

    counting.py counts what the paper counts; here stand the tensors as they are built: with embeddings, final LayerNorm
    and router biases, without the E·d that a hash router is charged for. A technique that is not the project's is taken
    for a linear router.
    """
    model, router, shape = spec.model, spec.router, spec.model.architecture
    d, inner = shape.d_model, shape.heads * shape.kv_size
    projections = (d * inner,) * (5 if model.positions == "xl" else 4)
    routed = spec.routed_blocks
    deciding = routed[:1] if router.shared_decisions else routed
    parts: list[tuple[int, ...]] = [(model.vocabulary * d, d, d)]
    for block in range(1, shape.blocks + 1):
        experts, ffws = (router.experts, router.ffws_per_expert) if block in routed else (1, 1)
        matrices = (4 * experts * d * d,) * (2 * ffws)
        norms = (d,) * 4 + (experts * d,) * (2 * (ffws - 1))
        parts.append(projections + matrices + norms + (_router(spec) if block in deciding else ()))
    return parts


def _router(spec: RunSpec) -> tuple[int, ...]:
    d, experts = spec.model.architecture.d_model, spec.router.experts
    if spec.router.name == "hash":
        return ()
    hidden = max(d // 8, 1)
    return (experts * d, experts) + ((hidden * d, hidden) if has_baseline(spec) else ())


def _tables(spec: RunSpec) -> int:
    """A hash router looks its experts up: an int64 per token of the vocabulary and choice, in every router."""
    if spec.router.name != "hash":
        return 0
    routers = 1 if spec.router.shared_decisions else len(spec.routed_blocks)
    return 8 * spec.model.vocabulary * spec.router.k * routers
