"""How much memory one process needs to train a run, before it is started, alone or on a layout of several.

The model's tensors, their gradients and the optimiser's statistics are exact: the bytes of what `Transformer`,
`Optimizer` and FSDP build. Activations are a model of what autograd keeps (activations.py). The peak is the highest of
some phases: the loss, when all activations are there; the backward pass, as activations go and gradients come; the
update, when the gradients are complete; and evaluation, whose batches are others. Where parameters are sharded, there
are also the moments at which they are put together and gradients taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from routelaw.costs.activations import EVALUATED_TOKENS, Pass
from routelaw.costs.parameters import Shard, ShardedModel, hash_tables, model_parameters, sharded
from routelaw.errors import InputError
from routelaw.specs.layout import Layout
from routelaw.specs.run import ExecutionSpec, RunSpec

ITEMSIZE = {"float32": 4, "float64": 8, "bfloat16": 2}
"""Bytes by precision."""
FORWARD_AND_BACKWARD = 3
"""Forward passes that a step's products amount to."""
SHORT_STEP = 2e13
"""FLOPs: about 50 ms of an H200. A guess: below it launching kernel by kernel may cost a good part of the step."""
PROCESS_FLOOR = 420_000_000
"""Resident size of a process that has trained, evaluated and saved a tiny model: Python, torch, NumPy, and what AdamW
imports. VmHWM after runs 16 fp32: 410 MB, 262 of them its own (torch 2.13 for CPUs)."""
CUDA_BUILD_FLOOR = 750_000_000
"""The same with a build of torch for GPUs, used on a CPU: 740 MB were left of a worker's 920 (torch 2.11, CUDA 13)."""
ALLOCATOR_SLACK = 1.25
"""What comes and goes leaves holes. Largest resident size of six runs on a CPU (0.05M to 3M, up to 512 experts): need
over truth 0.88 to 1.0 with this, 0.77 to 0.96 without; 0.94 to 1.01 without where malloc is told to return every large
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
    if precision not in ITEMSIZE:
        raise InputError(f"precision is {', '.join(ITEMSIZE)}, not {precision!r}.")
    itemsize, length = ITEMSIZE[precision], spec.model.sequence_length
    own = max(spec.train.batch // (micro_batches * layout.batch), 1)
    evaluated = -(-max(EVALUATED_TOKENS // length, 1) // layout.batch)
    forward = Pass(spec, own * length, itemsize, gpu, layout, recompute)
    evaluation = Pass(spec, evaluated * length, itemsize, gpu, layout)
    parts = model_parameters(spec)
    if layout.batch == 1:
        whole = [[p.elements(layout) for p in part] for part in parts]
        found = _of_whole(whole, forward, evaluation, micro_batches > 1, ITEMSIZE[moments])
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
        layout=execution.processes,
        recompute=execution.recompute,
        moments=execution.optimizer_state_dtype,
        recorded=gpu and may_be_recorded(spec, execution, precision),
    )


def may_be_recorded(spec: RunSpec, execution: ExecutionSpec, precision: str) -> bool:
    """Whether its steps may be CUDA graphs, as far as the spec tells (training/compiling.py decides)."""
    if execution.processes.world > 1 or precision != "bfloat16":
        return False
    tokens = spec.train.batch * spec.model.sequence_length
    short = FORWARD_AND_BACKWARD * spec.counts.flops_per_token * tokens < SHORT_STEP
    return execution.compile == "step" or (execution.compile == "auto" and short)


def _of_whole(parts: Sequence[Sequence[int]], forward: Pass, evaluation: Pass, again: bool, moment: int) -> Footprint:
    """A process that has all of its parameters, masters and statistics to itself. `again`: several micro-batches;
    `moment`: bytes of one. On a GPU the gradients of a single micro-batch are not widened."""
    itemsize, fp32 = forward.itemsize, forward.fp32_itemsize
    sizes = [size for part in parts for size in part]
    elements = sum(sizes)
    return _footprint(
        forward,
        evaluation,
        whole_phases(parts, forward, evaluation, again),
        computing=elements * itemsize,
        masters=0 if itemsize == fp32 else elements * fp32,
        optimizer=2 * elements * (fp32 if moment == ITEMSIZE["float32"] else moment) + 4 * len(sizes),
        gradients=elements * (itemsize if forward.alone_on_gpu and not again else fp32),
        built=elements * fp32,
        sharded=False,
    )


def _of_shards(model: ShardedModel, forward: Pass, evaluation: Pass, again: bool) -> Footprint:
    """A process whose parameters FSDP gathers for each micro-batch and gives back after its backward pass."""
    own, padded, gathered = (sum(getattr(s, n) for s in model.all) for n in ("own", "padded", "gathered"))
    itemsize, fp32 = forward.itemsize, forward.fp32_itemsize
    return _footprint(
        forward,
        evaluation,
        sharded_phases(model, forward, evaluation, again),
        computing=gathered * itemsize,
        masters=padded * fp32,
        optimizer=2 * own * fp32 + 4 * len(model.all),
        gradients=padded * fp32,
        built=sum(s.whole for s in model.all) * fp32,
        sharded=True,
    )


def _footprint(
    forward: Pass, evaluation: Pass, phases: Iterator[Phase], *, computing: int, sharded: bool, **sizes: int
) -> Footprint:
    """`computing`: bytes of the parameters that compute."""
    peak = max(phases, key=lambda phase: phase.total)
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


@dataclass(frozen=True)
class Phase:
    """What is there at one moment of a step beside masters and optimiser, in bytes."""

    name: str
    parts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())


def whole_phases(parts: Sequence[Sequence[int]], forward: Pass, evaluation: Pass, again: bool) -> Iterator[Phase]:
    """The phases of a process that keeps all its parameters, of these sizes (around the blocks, then by block)."""
    itemsize, fp32 = forward.itemsize, forward.fp32_itemsize
    around, *blocks = (sum(part) for part in parts)
    sizes = [size for part in parts for size in part]
    always = {"parameters": sum(sizes) * itemsize}
    before = {"gradients of the micro-batches before": sum(sizes) * fp32 if again else 0}
    yield Phase("the loss", {**always, **before, **_at_the_loss(forward)})
    kept = accumulate(forward.blocks)
    made = list(accumulate(reversed([block * itemsize for block in blocks]), initial=around * itemsize))[:0:-1]
    for activations, gradients in zip(kept, made, strict=True):
        there = {"activations": activations, "gradients": gradients, "transient": forward.transient_block}
        yield Phase("backward", {**always, **before, **there})
    gradients = sum(sizes) * (itemsize if forward.alone_on_gpu and not again else fp32)
    yield Phase("the update", {**always, "gradients": gradients})  # AdamW itself holds nothing besides
    yield Phase("evaluation", {**always, "a forward pass": evaluation.without_gradients})


def _at_the_loss(forward: Pass) -> dict[str, int]:
    activations = sum(forward.blocks) + forward.last
    return {"activations": activations, "logits": forward.logits, "transient": forward.transient_logits}


def sharded_phases(model: ShardedModel, forward: Pass, evaluation: Pass, again: bool) -> Iterator[Phase]:
    """The phases of a process whose parameters FSDP gathers.

    It gathers a group into one buffer, copies it into the parameters, and holds the buffer until the next group. In the
    backward pass it frees a group's parameters, copies its gradients into one fp32 buffer, sums that up into shards,
    and again holds the buffer until the next group. All that are not experts are gathered first and reduced last. On a
    CPU gloo reduces a copy of the buffer.
    """
    itemsize, fp32 = forward.itemsize, forward.fp32_itemsize
    rest = [s for part in model.rest for s in part]
    last = next((e for e in reversed(model.experts) if e), rest)
    held = _gathered(last) * itemsize if last[0].processes > 1 else 0
    before = {"gradients of the micro-batches before": _padded(model.all) * fp32 if again else 0}
    whole = {"parameters": _gathered(model.all) * itemsize}
    for parts in _gathering(model, forward):
        yield Phase("gathering", {**before, **parts})
    activations = sum(forward.blocks) + forward.last
    yield Phase("the end of the forward pass", {**before, **whole, "buffer": held, "activations": activations})
    yield Phase("the loss", {**before, **whole, **_at_the_loss(forward)})
    yield Phase("evaluation", {**whole, "buffer": held, "a forward pass": evaluation.without_gradients})
    for parts in _walking_back(model, forward, again):
        yield Phase("backward", {**before, **parts})
    gradients, shards = sum(s.whole for s in rest) * itemsize, _padded(rest) * fp32
    done = 0 if again else sum(_padded(experts) for experts in model.experts) * fp32
    buffer = _gathered(rest) * fp32
    passing = max(gradients, shards + (0 if forward.gpu else buffer))
    yield Phase("the last reduction", {**before, "gradients": done + passing, "buffer": buffer})
    yield Phase("the update", {"gradients": _padded(model.all) * fp32})


def _gathering(model: ShardedModel, forward: Pass) -> Iterator[dict[str, int]]:
    """Group by group in the forward pass: what was cut along another dimension than the first is copied once more, and
    the buffer of the group before is still there."""
    itemsize, kept = forward.itemsize, 0
    rest = [s for part in model.rest for s in part]
    there = buffer = _gathered(rest) * itemsize
    yield {"parameters": there, "buffer": buffer, "transient": _gathered([s for s in rest if s.dimension]) * itemsize}
    for experts, own in zip(model.experts, forward.blocks, strict=True):
        if experts:
            there += _gathered(experts) * itemsize
            next_buffer = _gathered(experts) * itemsize if experts[0].processes > 1 else 0
            copies = _gathered([s for s in experts if s.dimension]) * itemsize
            activations = kept + forward.attention
            passing = {"buffer": buffer + next_buffer, "transient": copies}
            yield {"parameters": there, "activations": activations, **passing}
            buffer = next_buffer
        kept += own


def _walking_back(model: ShardedModel, forward: Pass, again: bool) -> Iterator[dict[str, int]]:
    """Block by block: its experts' gradients are made, then reduced; then those of its attention are made."""
    itemsize, fp32 = forward.itemsize, forward.fp32_itemsize
    there, kept, buffer = _gathered(model.all) * itemsize, sum(forward.blocks), 0
    made = sum(s.whole for s in model.rest[0]) * itemsize
    for experts, rest, own in zip(
        reversed(model.experts), reversed(model.rest[1:]), reversed(forward.blocks), strict=True
    ):
        made += sum(s.whole for s in rest) * itemsize
        of_experts = sum(s.whole for s in experts) * itemsize
        passing = {"transient": forward.transient_block, "exchange": forward.exchange}
        yield {"parameters": there, "activations": kept, "gradients": made + of_experts, "buffer": buffer, **passing}
        if experts:
            there -= _gathered(experts) * itemsize
            shards, buffer = _padded(experts) * fp32, _gathered(experts) * fp32
            one = max(s.whole for s in experts) * itemsize  # autograd still has the last gradient
            reducing = max(of_experts, shards + one + (0 if forward.gpu else buffer))
            yield {"parameters": there, "activations": kept, "gradients": made + reducing, "buffer": buffer}
            made += 0 if again else shards
        kept -= own - forward.attention
        passing = {"transient": forward.transient_block}
        yield {"parameters": there, "activations": kept, "gradients": made, "buffer": buffer, **passing}
        kept -= forward.attention


def _gathered(shards: Sequence[Shard]) -> int:
    return sum(s.gathered for s in shards)


def _padded(shards: Sequence[Shard]) -> int:
    return sum(s.padded for s in shards)
