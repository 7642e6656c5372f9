"""The moments of a step at which most memory may be in use, and what is there then: bytes by part.

Masters, optimiser statistics and tables are always there and not among them; gathered parameters are. Building is not
among them: a group of FSDP's comes to its device whole and in float32 once, which its reduction outdoes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from routelaw.specs.activations import Pass
from routelaw.specs.shards import Shard, ShardedModel


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
    number, wide = forward.number, forward.wide
    around, *blocks = (sum(part) for part in parts)
    sizes = [size for part in parts for size in part]
    always = {"parameters": sum(sizes) * number}
    before = {"gradients of the micro-batches before": sum(sizes) * wide if again else 0}
    yield Phase("the loss", {**always, **before, **_at_the_loss(forward)})
    kept = accumulate(forward.blocks)
    made = list(accumulate(reversed([block * number for block in blocks]), initial=around * number))[:0:-1]
    for activations, gradients in zip(kept, made, strict=True):
        there = {"activations": activations, "gradients": gradients, "transient": forward.transient_block}
        yield Phase("backward", {**always, **before, **there})
    gradients = sum(sizes) * (number if forward.alone_on_gpu and not again else wide)
    yield Phase("the update", {**always, "gradients": gradients})  # AdamW itself holds nothing besides
    yield Phase("evaluation", {**always, "a forward pass": evaluation.without_gradients})


def _at_the_loss(forward: Pass) -> dict[str, int]:
    activations = sum(forward.blocks) + forward.last
    return {"activations": activations, "logits": forward.logits, "transient": forward.transient_logits}


def sharded_phases(model: ShardedModel, forward: Pass, evaluation: Pass, again: bool) -> Iterator[Phase]:
    """The phases of a process whose parameters FSDP gathers.

    It gathers a group into one buffer, copies it into the parameters, and holds the buffer until the next group. In the
    backward pass it frees a group's parameters, copies its gradients into one wide buffer, sums that up into shards,
    and again holds the buffer until the next group. All that are not experts are gathered first and reduced last. On a
    CPU gloo reduces a copy of the buffer.
    """
    number, wide = forward.number, forward.wide
    rest = [s for part in model.rest for s in part]
    last = next((e for e in reversed(model.experts) if e), rest)
    held = _gathered(last) * number if last[0].processes > 1 else 0
    before = {"gradients of the micro-batches before": _padded(model.all) * wide if again else 0}
    whole = {"parameters": _gathered(model.all) * number}
    for parts in _gathering(model, forward):
        yield Phase("gathering", {**before, **parts})
    activations = sum(forward.blocks) + forward.last
    yield Phase("the end of the forward pass", {**before, **whole, "buffer": held, "activations": activations})
    yield Phase("the loss", {**before, **whole, **_at_the_loss(forward)})
    yield Phase("evaluation", {**whole, "buffer": held, "a forward pass": evaluation.without_gradients})
    for parts in _walking_back(model, forward, again):
        yield Phase("backward", {**before, **parts})
    gradients, shards = sum(s.whole for s in rest) * number, _padded(rest) * wide
    done = 0 if again else sum(_padded(experts) for experts in model.experts) * wide
    buffer = _gathered(rest) * wide
    passing = max(gradients, shards + (0 if forward.gpu else buffer))
    yield Phase("the last reduction", {**before, "gradients": done + passing, "buffer": buffer})
    yield Phase("the update", {"gradients": _padded(model.all) * wide})


def _gathering(model: ShardedModel, forward: Pass) -> Iterator[dict[str, int]]:
    """Group by group in the forward pass: what was cut along another dimension than the first is copied once more, and
    the buffer of the group before is still there."""
    number, kept = forward.number, 0
    rest = [s for part in model.rest for s in part]
    there = buffer = _gathered(rest) * number
    yield {"parameters": there, "buffer": buffer, "transient": _gathered([s for s in rest if s.dimension]) * number}
    for experts, own in zip(model.experts, forward.blocks, strict=True):
        if experts:
            there += _gathered(experts) * number
            next_buffer = _gathered(experts) * number if experts[0].processes > 1 else 0
            copies = _gathered([s for s in experts if s.dimension]) * number
            activations = kept + forward.attention
            passing = {"buffer": buffer + next_buffer, "transient": copies}
            yield {"parameters": there, "activations": activations, **passing}
            buffer = next_buffer
        kept += own


def _walking_back(model: ShardedModel, forward: Pass, again: bool) -> Iterator[dict[str, int]]:
    """Block by block: its experts' gradients are made, then reduced; then those of its attention are made."""
    number, wide = forward.number, forward.wide
    there, kept, buffer = _gathered(model.all) * number, sum(forward.blocks), 0
    made = sum(s.whole for s in model.rest[0]) * number
    for experts, rest, own in zip(
        reversed(model.experts), reversed(model.rest[1:]), reversed(forward.blocks), strict=True
    ):
        made += sum(s.whole for s in rest) * number
        of_experts = sum(s.whole for s in experts) * number
        passing = {"transient": forward.transient_block, "exchange": forward.exchange}
        yield {"parameters": there, "activations": kept, "gradients": made + of_experts, "buffer": buffer, **passing}
        if experts:
            there -= _gathered(experts) * number
            shards, buffer = _padded(experts) * wide, _gathered(experts) * wide
            one = max(s.whole for s in experts) * number  # autograd still has the last gradient
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
