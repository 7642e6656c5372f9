"""How much memory one process needs to train a run, before it is started, alone or on a layout of several.

The model's tensors, their gradients and the optimiser's statistics are exact: the bytes of what `Transformer`,
`Optimizer` and FSDP build. Activations are a model of what autograd keeps (activations.py). The peak is the highest of
some phases: the loss, when all activations are there; the backward pass, as activations go and gradients come; the
update, when the gradients are complete; and evaluation, whose batches are others. Where parameters are sharded, there
are also the moments at which they are put together and gradients taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from routelaw.errors import InputError
from routelaw.specs.activations import EVALUATED_TOKENS, Pass
from routelaw.specs.layout import Layout
from routelaw.specs.parameters import hash_tables, model_parameters
from routelaw.specs.phases import Phase, sharded_phases, whole_phases
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.specs.shards import ShardedModel, sharded

NUMBER = {"float32": 4, "float64": 8, "bfloat16": 2}
"""Bytes by precision."""
FORWARD_AND_BACKWARD = 3
"""Forward passes that a step's products amount to."""
SHORT_STEP = 2e13
"""FLOPs: about 50 ms of an H200. A guess: below it launching kernel by kernel may cost a good part of the step."""
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


@dataclass(frozen=True)
class Footprint:
    """Bytes. Parts that are never there together are given in full; `total` is the most there is at once."""

    parameters: int
    """The model's tensors in compute precision, tables of hash routers included; whole while they compute, with FSDP's
    padding where they are gathered from shards."""
    masters: int
    """float32 copies of the parameters, where the model computes in bfloat16; or this process's shards of them."""
    optimizer: int
    """AdamW's two moments and its counters."""
    gradients: int
    """As the optimiser gets them."""
    activations: int
    """Kept for the backward pass of one micro-batch."""
    logits: int
    """For the loss: the gradients of the last hidden rows and of the embedding."""
    evaluation: int
    """What a forward pass in evaluation holds."""
    at_once: int
    """The most of gradients, activations, logits, evaluation and what passes at one moment."""
    peak: Phase
    """That moment, with the parameters that are there."""
    built: int
    """The process's part of the model before it is sharded and moved to its device, in the host's memory."""
    exchange: int = 0
    """All-to-all buffers of one routed block: rows that go to other processes, and that come."""
    sharded: bool = False
    """Whether the masters are shards, and the parameters only there while they compute."""

    @property
    def total(self) -> int:
        return self.parameters + self.masters + self.optimizer + self.at_once

    @property
    def with_slack(self) -> int:
        """What an allocator takes to provide it."""
        return self.total + int((ALLOCATOR_SLACK - 1) * self.at_once)

    @property
    def checkpoint(self) -> int:
        """Bytes of a file of model and optimiser."""
        return (0 if self.sharded else self.parameters) + self.masters + self.optimizer


def footprint(
    spec: RunSpec,
    micro_batches: int = 1,
    precision: str = "float32",
    *,
    gpu: bool = False,
    layout: Layout = Layout(),
    rank: int = 0,
    recompute: bool = False,
    moments: str = "float32",
    recorded: bool = False,
) -> Footprint:
    """The memory of one process. `gpu` tells which kernels there are, not where they are. The first process of a layout
    has most: what does not divide is in its shards."""
    if precision not in NUMBER:
        raise InputError(f"precision is {', '.join(NUMBER)}, not {precision!r}.")
    number, length = NUMBER[precision], spec.model.sequence_length
    own = max(spec.train.batch // (micro_batches * layout.batch), 1)
    evaluated = -(-max(EVALUATED_TOKENS // length, 1) // layout.batch)
    forward = Pass(spec, own * length, number, gpu, layout, recompute)
    evaluation = Pass(spec, evaluated * length, number, gpu, layout)
    parts = model_parameters(spec)
    if layout.batch == 1:
        whole = [[p.numbers(layout) for p in part] for part in parts]
        found = _of_whole(whole, forward, evaluation, micro_batches > 1, NUMBER[moments])
        # A CUDA graph keeps its memory, so that evaluation needs more beside it.
        return replace(found, at_once=found.at_once + found.evaluation) if recorded else found
    return _of_shards(sharded(parts, layout, rank), forward, evaluation, micro_batches > 1)


def footprint_of(
    spec: RunSpec, execution: ExecutionSpec, precision: str, gpu: bool, micro_batches: int | None = None
) -> Footprint:
    """As it is to be carried out, or in another number of micro-batches."""
    return footprint(
        spec,
        execution.micro_batches if micro_batches is None else micro_batches,
        precision,
        gpu=gpu,
        layout=execution.layout,
        recompute=execution.recompute,
        moments=execution.optimizer_state_dtype,
        recorded=gpu and may_be_recorded(spec, execution, precision),
    )


def may_be_recorded(spec: RunSpec, execution: ExecutionSpec, precision: str) -> bool:
    """Whether its steps may be CUDA graphs, as far as the spec tells (training/compiling.py decides)."""
    if execution.layout.world > 1 or precision != "bfloat16":
        return False
    tokens = spec.train.batch * spec.model.sequence_length
    short = FORWARD_AND_BACKWARD * spec.counts.flops_per_token * tokens < SHORT_STEP
    return execution.compile == "step" or (execution.compile == "auto" and short)


def _of_whole(parts: Sequence[Sequence[int]], forward: Pass, evaluation: Pass, again: bool, moment: int) -> Footprint:
    """A process that has all of its parameters, masters and statistics to itself. `again`: several micro-batches;
    `moment`: bytes of one. On a GPU the gradients of a single micro-batch are not widened."""
    number, wide = forward.number, forward.wide
    sizes = [size for part in parts for size in part]
    numbers = sum(sizes)
    return _footprint(
        forward,
        evaluation,
        whole_phases(parts, forward, evaluation, again),
        computing=numbers * number,
        masters=0 if number == wide else numbers * wide,
        optimizer=2 * numbers * (wide if moment == NUMBER["float32"] else moment) + 4 * len(sizes),
        gradients=numbers * (number if forward.alone_on_gpu and not again else wide),
        built=numbers * wide,
        sharded=False,
    )


def _of_shards(model: ShardedModel, forward: Pass, evaluation: Pass, again: bool) -> Footprint:
    """A process whose parameters FSDP gathers for each micro-batch and gives back after its backward pass."""
    own, padded, gathered = (sum(getattr(s, n) for s in model.all) for n in ("own", "padded", "gathered"))
    number, wide = forward.number, forward.wide
    return _footprint(
        forward,
        evaluation,
        sharded_phases(model, forward, evaluation, again),
        computing=gathered * number,
        masters=padded * wide,
        optimizer=2 * own * wide + 4 * len(model.all),
        gradients=padded * wide,
        built=sum(s.whole for s in model.all) * wide,
        sharded=True,
    )


def _footprint(
    forward: Pass, evaluation: Pass, moments: Iterator[Phase], *, computing: int, sharded: bool, **sizes: int
) -> Footprint:
    """`computing`: bytes of the parameters that compute."""
    peak = max(moments, key=lambda moment: moment.total)
    return Footprint(
        parameters=computing + hash_tables(forward.spec),
        activations=sum(forward.blocks) + forward.last,
        logits=forward.logits,
        evaluation=evaluation.without_gradients,
        at_once=peak.total - computing,
        peak=peak,
        exchange=forward.exchange,
        sharded=sharded,
        **sizes,
    )
