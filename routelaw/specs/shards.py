"""How ZeRO spreads parameters over the processes of a layout, in numbers: what each holds, and what travels.

FSDP2 cuts a tensor along one dimension as torch.chunk does: pieces of ⌈n/p⌉, so that the last processes may have less
or nothing. Every piece is stored and sent as large as the first one: what does not come out even is padded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from routelaw.specs.layout import Layout
from routelaw.specs.parameters import Parameter


@dataclass(frozen=True)
class Shard:
    """One process's part of one parameter, counted in numbers."""

    whole: int
    """While it computes."""
    own: int
    """Elements of the parameter that optimiser statistics are kept for."""
    padded: int
    """As it lies in memory and travels."""
    processes: int
    """That have a part each."""
    dimension: int = 0
    """Along which it is cut. Parts cut along another than the first are put together in a copy."""

    @property
    def gathered(self) -> int:
        """All parts together, as they lie in memory while the parameter computes."""
        return self.padded * self.processes


@dataclass(frozen=True)
class ShardedModel:
    """By the groups that FSDP gathers and reduces as one (distributed/sharding.py)."""

    rest: tuple[tuple[Shard, ...], ...]
    """All but the experts, over data × expert: embedding and final LayerNorm, then block by block. One group."""
    experts: tuple[tuple[Shard, ...], ...]
    """The experts of every block, over data; empty where it is not routed. A group for each."""

    @property
    def all(self) -> list[Shard]:
        return [shard for part in (*self.rest, *self.experts) for shard in part]


def sharded(parts: Sequence[Sequence[Parameter]], layout: Layout, rank: int = 0) -> ShardedModel:
    """On one process. Ranks count tensor fastest, then expert, then data; the first have most."""
    in_batch, in_data = rank // layout.tensor, rank // (layout.tensor * layout.expert)

    def of(part: Iterable[Parameter], expert: bool) -> tuple[Shard, ...]:
        processes, place = (layout.data, in_data) if expert else (layout.batch, in_batch)
        return tuple(shard(p.local(layout), processes, place) for p in part if p.expert == expert)

    return ShardedModel(tuple(of(part, False) for part in parts), tuple(of(part, True) for part in parts[1:]))


def shard(shape: tuple[int, ...], processes: int, place: int) -> Shard:
    dimension = shard_dimension(shape, processes)
    length, across = shape[dimension], prod(shape) // shape[dimension]
    most = -(-length // processes)
    own = max(0, min(most, length - place * most))
    return Shard(prod(shape), own * across, most * across, processes, dimension)


def shard_dimension(shape: tuple[int, ...], processes: int) -> int:
    """Along which a tensor is cut: the first that comes out even, so that nothing is padded; the first of all where
    none does, the only one that FSDP2 cuts unevenly. (A dense FFW is an expert of one: its first dimension is no use.)
    """
    return next((n for n, length in enumerate(shape) if length % processes == 0), 0)
