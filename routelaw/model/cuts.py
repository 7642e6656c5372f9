"""Which part of every tensor of the whole model a process holds: a box, with a start and a length in each dimension.

What knows of parts (initialisation, checkpoints) asks here, by the name of the parameter; what computes does not care.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from routelaw.model.parallel import Group

if TYPE_CHECKING:
    from routelaw.model.transformer import Transformer

BY_HEADS = ("query.weight", "key.weight", "value.weight", "relative.weight")


@dataclass(frozen=True)
class TensorShard:
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    start: tuple[int, ...]
    length: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        return tuple(slice(s, s + n) for s, n in zip(self.start, self.length, strict=True))

    @property
    def whole(self) -> bool:
        return self.shape == self.length


def tensor_shards(model: Transformer) -> dict[str, TensorShard]:
    """By parameter, before anything shards them further."""
    return {name: _cut(tuple(p.shape), groups_of(name, model)) for name, p in model.named_parameters()}


def groups_of(name: str, model: Transformer) -> dict[int, Group]:
    """Dimension -> the group over which it is split."""
    tensor = model.parallel.tensor
    if name.endswith(BY_HEADS):
        return {0: tensor}
    if name.endswith("attention.out.weight"):
        return {1: tensor}
    if ".experts." not in name:
        return {}
    routed = model.blocks[int(name.split(".")[1])].routed  # pyrefly: ignore
    experts = {0: model.parallel.expert} if routed else {}
    return experts | ({2: tensor} if ".up." in name else {1: tensor} if ".down." in name else {})


def is_tensor_split(name: str) -> bool:
    """Whether tensor-parallel processes hold different parts of it."""
    return name.endswith((*BY_HEADS, "attention.out.weight")) or ".up." in name or ".down." in name


def _cut(length: tuple[int, ...], groups: dict[int, Group]) -> TensorShard:
    ranks = [(groups[d].rank, groups[d].size) if d in groups else (0, 1) for d in range(len(length))]
    shape = tuple(n * size for n, (_, size) in zip(length, ranks, strict=True))
    return TensorShard(shape, tuple(n * rank for n, (rank, _) in zip(length, ranks, strict=True)), length)
