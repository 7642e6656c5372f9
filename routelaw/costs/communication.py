"""What one process of a layout sends in one step, in bytes, kind by kind.

Every exchange is counted as the best known algorithm carries it out: in a ring of n processes each sends (n−1)/n of the
whole to gather or to reduce it, and twice that to sum something up everywhere; all-to-all sends what is for others.
Several micro-batches gather parameters and reduce gradients once each: FSDP frees parameters and takes gradients apart
after every backward pass (training/step.py).

Two things depend on the data, and are taken as they are on average: routing is balanced, so that of a process's rows
1 − 1/n go to others; and nothing is dropped unless a share is given. Evaluation and checkpoints are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from routelaw.costs.activations import INDEX, Pass
from routelaw.costs.memory import ITEMSIZE
from routelaw.costs.parameters import Shard, model_parameters, sharded
from routelaw.specs.layout import Layout
from routelaw.specs.run import RunSpec

GATHER, REDUCE, EXCHANGE, SHUFFLE, TENSOR, SMALL = "gather", "reduce", "exchange", "shuffle", "tensor", "small"
KINDS = {
    GATHER: "parameters gathered",
    REDUCE: "gradients reduced",
    EXCHANGE: "rows to their experts and back",
    SHUFFLE: "the shuffle between processes",
    TENSOR: "sums over tensor-parallel processes",
    SMALL: "counts, losses and norms",
}
LOGGED = 8
"""Figures of a routed block in the log beside the load of each expert, at most (training/routing_log.py)."""
FLOAT64 = 8


@dataclass(frozen=True)
class Flow:
    """Exchanges of one kind within one group, in one step."""

    kind: str
    what: str
    group: str
    """batch, data, expert or tensor: who talks (distributed/groups.py)."""
    members: int
    ring: bool
    """False for all-to-all, in which each sends to each."""
    times: int
    size: Fraction
    """Bytes of the whole that is exchanged, or of what a process has for others and itself."""
    share: Fraction
    """Share of the size that a process sends."""

    @property
    def sent(self) -> float:
        return float(self.times * self.size * self.share)


def communication(
    spec: RunSpec, layout: Layout, micro_batches: int = 1, precision: str = "float32", *, dropped: float = 0.0
) -> tuple[Flow, ...]:
    """The exchanges of one process in one step. Flows that nobody takes part in are left out."""
    itemsize, kept = ITEMSIZE[precision], Fraction(1 - dropped).limit_denominator(10**6)
    tokens = spec.train.batch * spec.model.sequence_length // (micro_batches * layout.batch)
    made = Pass(spec, tokens, itemsize, False, layout)
    flows = [
        *_parameters(made, micro_batches),
        *_routing(made, micro_batches, kept),
        *_tensor(made, micro_batches, kept if layout.expert > 1 else Fraction(1)),
        *_small(made, micro_batches),
    ]
    return tuple(flow for flow in flows if flow.members > 1 and flow.times and flow.size)


def sent_by_kind(flows: tuple[Flow, ...]) -> dict[str, float]:
    return {kind: sum(flow.sent for flow in flows if flow.kind == kind) for kind in KINDS}


def _ring(kind: str, what: str, group: str, members: int, times: int, size: Fraction | int, passes: int = 1) -> Flow:
    share = passes * Fraction(members - 1, members)
    return Flow(kind, what, group, members, True, times, Fraction(size), share)


def _all_to_all(kind: str, what: str, group: str, members: int, times: int, size: Fraction | int) -> Flow:
    return Flow(kind, what, group, members, False, times, Fraction(size), 1 - Fraction(1, members))


def _parameters(made: Pass, micro_batches: int) -> Iterator[Flow]:
    """Padding travels, too. Gradients are float32 at least."""
    layout = made.layout
    model = sharded(model_parameters(made.spec), layout)
    parts = (
        ("experts", "data", layout.data, [s for block in model.experts for s in block]),
        ("all but the experts" if made.spec.routed_blocks else "all", "batch", layout.batch, _flat(model.rest)),
    )
    for kind, verb, bytes_each in (
        (GATHER, "parameters of", made.itemsize),
        (REDUCE, "gradients of", made.fp32_itemsize),
    ):
        for whose, group, members, shards in parts:
            size = sum(s.gathered for s in shards) * bytes_each
            yield _ring(kind, f"{verb} {whose}", group, members, micro_batches, size)


def _flat(parts: tuple[tuple[Shard, ...], ...]) -> list[Shard]:
    return [shard for part in parts for shard in part]


def _routing(made: Pass, micro_batches: int, kept: Fraction) -> Iterator[Flow]:
    """Rows go to their experts and come back, and so do their gradients; stacked FFWs take the residual along."""
    spec, layout = made.spec, made.layout
    passes, stacked = micro_batches * len(spec.routed_blocks), spec.router.ffws_per_expert > 1
    rows = made.stream * spec.router.k * kept
    ways = 6 if stacked else 4
    yield _all_to_all(EXCHANGE, "rows and their gradients", "expert", layout.expert, ways * passes, rows)
    span = made.span
    deciding = micro_batches * (1 if spec.router.shared_decisions else len(spec.routed_blocks))
    yield _all_to_all(SHUFFLE, "rows and their gradients", "batch", span, ways * passes, made.stream)
    yield _all_to_all(SHUFFLE, "their tokens", "batch", span, passes, made.tokens * INDEX)
    yield _all_to_all(SHUFFLE, "their losses", "batch", span, deciding, made.tokens * made.fp32_itemsize)


def _tensor(made: Pass, micro_batches: int, kept: Fraction) -> Iterator[Flow]:
    """Attention and every FFW are summed up forwards, and what they are given backwards. Dropped rows stay where they
    are, and are summed up with the others if experts are there, too."""
    spec, tensor = made.spec, made.layout.tensor
    blocks, routed = spec.model.architecture.blocks, len(spec.routed_blocks)
    dense = 2 * micro_batches * (2 * blocks - routed)
    experts = 2 * micro_batches * routed * spec.router.ffws_per_expert
    yield _ring(TENSOR, "attention and dense FFWs", "tensor", tensor, dense, made.stream, 2)
    yield _ring(TENSOR, "experts", "tensor", tensor, experts, made.stream * spec.router.k * kept, 2)


def _small(made: Pass, micro_batches: int) -> Iterator[Flow]:
    layout, router, routed = made.layout, made.spec.router, len(made.spec.routed_blocks)
    rows = router.experts * INDEX
    yield _all_to_all(SMALL, "rows for each expert", "expert", layout.expert, micro_batches * routed, rows)
    logged = (2 + routed * (router.experts + LOGGED)) * FLOAT64
    yield _ring(SMALL, "loss, norm and log", "batch", layout.batch, 1, logged, 2)
    yield _ring(SMALL, "norm", "tensor", layout.tensor, 1, FLOAT64, 2)
