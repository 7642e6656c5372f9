"""The parameters of a run's model as they are built: every tensor with its shape, and how processes share it.

counting.py counts what the paper counts; here stand the tensors: with embeddings, final LayerNorm and router biases,
without the E·d that a hash router is charged for. A technique that is not the project's is taken for a linear router.
distributed/tensor_shards.py says it of the real ones; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

from routelaw.specs.layout import Layout
from routelaw.specs.run import RunSpec


@dataclass(frozen=True)
class ParameterShape:
    shape: tuple[int, ...]
    """Shape in the whole model."""
    expert: bool = False
    """Whether it belongs to the experts of a routed block, which the processes of a layout's `expert` share out."""
    split: int | None = None
    """The dimension of which tensor-parallel processes have a part each."""

    def local(self, layout: Layout) -> tuple[int, ...]:
        """The shape of what one process computes with."""
        lengths = list(self.shape)
        if self.expert:
            lengths[0] //= layout.expert
        if self.split is not None:
            lengths[self.split] //= layout.tensor
        return tuple(lengths)

    def elements(self, layout: Layout) -> int:
        return prod(self.local(layout))


def model_parameters(spec: RunSpec) -> list[tuple[ParameterShape, ...]]:
    """Embedding and final LayerNorm first, then block by block."""
    shape, routed = spec.model.architecture, spec.routed_blocks
    d = shape.d_model
    deciding = routed[:1] if spec.router.shared_decisions else routed
    parts: list[tuple[ParameterShape, ...]] = [(ParameterShape((spec.model.vocabulary, d)), *_vectors(d, 2))]
    for block in range(1, shape.blocks + 1):
        decides = _router(spec) if block in deciding else ()
        parts.append((*_attention(spec), *_ffws(spec, block in routed), *_vectors(d, 4), *decides))
    return parts


def _vectors(d: int, count: int) -> tuple[ParameterShape, ...]:
    return (ParameterShape((d,)),) * count


def _attention(spec: RunSpec) -> tuple[ParameterShape, ...]:
    shape = spec.model.architecture
    d, inner = shape.d_model, shape.heads * shape.kv_size
    by_heads = (ParameterShape((inner, d), split=0),) * (4 if spec.model.positions == "xl" else 3)
    return (*by_heads, ParameterShape((d, inner), split=1))


def _ffws(spec: RunSpec, routed: bool) -> tuple[ParameterShape, ...]:
    """A dense FFW is one expert that nobody shares out."""
    d = spec.model.architecture.d_model
    experts, ffws = (spec.router.experts, spec.router.ffws_per_expert) if routed else (1, 1)
    up, down = ParameterShape((experts, d, 4 * d), routed, 2), ParameterShape((experts, 4 * d, d), routed, 1)
    return (up, down) * ffws + (ParameterShape((experts, d), routed),) * (2 * (ffws - 1))


def _router(spec: RunSpec) -> tuple[ParameterShape, ...]:
    d, experts = spec.model.architecture.d_model, spec.router.experts
    if spec.router.name == "hash":
        return ()
    hidden = max(d // 8, 1)
    linear = (ParameterShape((experts, d)), ParameterShape((experts,)))
    if not spec.router.value_layers:
        return linear
    deeper = (ParameterShape((hidden, hidden)),) * (spec.router.value_layers - 1)
    return (*linear, ParameterShape((hidden, d)), *deeper, ParameterShape((hidden,)))


def hash_tables(spec: RunSpec) -> int:
    """Bytes. A hash router looks its experts up: an int64 per token of the vocabulary and choice, in every router."""
    if spec.router.name != "hash":
        return 0
    routers = 1 if spec.router.shared_decisions else len(spec.routed_blocks)
    return 8 * spec.model.vocabulary * spec.router.k * routers


@dataclass(frozen=True)
class Shard:
    """One process's part of one parameter, counted in elements."""

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


def sharded(parts: Sequence[Sequence[ParameterShape]], layout: Layout, rank: int = 0) -> ShardedModel:
    """On one process. Ranks count tensor fastest, then expert, then data; the first have most."""
    in_batch, in_data = rank // layout.tensor, rank // (layout.tensor * layout.expert)

    def of(part: Iterable[ParameterShape], expert: bool) -> tuple[Shard, ...]:
        processes, place = (layout.data, in_data) if expert else (layout.batch, in_batch)
        return tuple(shard(p.local(layout), processes, place) for p in part if p.expert == expert)

    return ShardedModel(tuple(of(part, False) for part in parts), tuple(of(part, True) for part in parts[1:]))


@cache
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
