"""The parameters of a run's model as they are built: every tensor with its shape, and how processes share it.

counting.py counts what the paper counts; here stand the tensors: with embeddings, final LayerNorm and router biases,
without the E·d that a hash router is charged for. A technique that is not the project's is taken for a linear router.
distributed/tensor_shards.py says it of the real ones; the tests compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from routelaw.specs.layout import Layout
from routelaw.specs.run import RunSpec


@dataclass(frozen=True)
class Parameter:
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

    def numbers(self, layout: Layout) -> int:
        return prod(self.local(layout))


def model_parameters(spec: RunSpec) -> list[tuple[Parameter, ...]]:
    """Embedding and final LayerNorm first, then block by block."""
    shape, routed = spec.model.architecture, spec.routed_blocks
    d = shape.d_model
    deciding = routed[:1] if spec.router.shared_decisions else routed
    parts: list[tuple[Parameter, ...]] = [(Parameter((spec.model.vocabulary, d)), *_vectors(d, 2))]
    for block in range(1, shape.blocks + 1):
        decides = _router(spec) if block in deciding else ()
        parts.append((*_attention(spec), *_ffws(spec, block in routed), *_vectors(d, 4), *decides))
    return parts


def _vectors(d: int, count: int) -> tuple[Parameter, ...]:
    return (Parameter((d,)),) * count


def _attention(spec: RunSpec) -> tuple[Parameter, ...]:
    shape = spec.model.architecture
    d, inner = shape.d_model, shape.heads * shape.kv_size
    by_heads = (Parameter((inner, d), split=0),) * (4 if spec.model.positions == "xl" else 3)
    return (*by_heads, Parameter((d, inner), split=1))


def _ffws(spec: RunSpec, routed: bool) -> tuple[Parameter, ...]:
    """A dense FFW is one expert that nobody shares out."""
    d = spec.model.architecture.d_model
    experts, ffws = (spec.router.experts, spec.router.ffws_per_expert) if routed else (1, 1)
    up, down = Parameter((experts, d, 4 * d), routed, 2), Parameter((experts, 4 * d, d), routed, 1)
    return (up, down) * ffws + (Parameter((experts, d), routed),) * (2 * (ffws - 1))


def _router(spec: RunSpec) -> tuple[Parameter, ...]:
    d, experts = spec.model.architecture.d_model, spec.router.experts
    if spec.router.name == "hash":
        return ()
    hidden = max(d // 8, 1)
    baseline = (Parameter((hidden, d)), Parameter((hidden,))) if spec.router.has_value_network else ()
    return (Parameter((experts, d)), Parameter((experts,)), *baseline)


def hash_tables(spec: RunSpec) -> int:
    """Bytes. A hash router looks its experts up: an int64 per token of the vocabulary and choice, in every router."""
    if spec.router.name != "hash":
        return 0
    routers = 1 if spec.router.shared_decisions else len(spec.routed_blocks)
    return 8 * spec.model.vocabulary * spec.router.k * routers
