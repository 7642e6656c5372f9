"""What a model costs: parameters and forward FLOPs, exact to the unit.

The formulas are the ones behind the counts in the paper's released table, and all of its 223 runs agree with
them. With L blocks, H heads, v key/value size, d width, nr routed blocks, T tokens in a sequence, V vocabulary:

    N = L·(5·d·H·v + 8·d² + 4·d)
    P = N + nr·[(E−1)·8·d² + E·d + baseline]
    F = L·[16·d² + 10·d·H·v + 6·T·H·v + 3·T·H + 10·d] + 2·V·d + nr·[2·d·E + (K−1)·16·d² + 2·baseline]

The five projections are Q, K, V, O and the Transformer-XL projection of relative positions. Embeddings and the
final LayerNorm are in neither count; the product with the embedding that gives the logits is in F. The baseline is
RL-R's value network, one hidden layer of d/8: (d + 1)·d/8. A model with one expert has no router.

Which blocks are routed is decided here, too, since the counts hang on it. R = n/L places n routed blocks at
round(i·L/n), i = 1…n (every other block, 2, 4, …, at the paper's R = ½); a single one goes to the last but one block,
L−1, as in the paper's appendix. `interior` is the placement of Lewis et al. and Roller et al., i·L/(n+1), which puts a
single one at L/2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from routelaw.errors import InputError
from routelaw.specs.names import DENSE, canonical_router


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer: pre-LayerNorm, FFW of width 4·d_model, no linear biases."""

    d_model: int
    """Width of the residual stream."""
    blocks: int
    """Attention + FFW pairs; some of the FFWs are routed."""
    heads: int
    """Attention heads."""
    kv_size: int
    """Size of keys and values per head; heads · kv_size need not equal d_model (it does not at 15M, 55M and 130M)."""

    def __post_init__(self) -> None:
        for name in ("d_model", "blocks", "heads", "kv_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}.")


POSITIONS = ("xl", "rope")
SEQUENCE_LENGTH = 2048
VOCABULARY = 32_000


LARGEST = {
    "experts": 10**6,
    "flop_increase": 10**6,
    "ffws_per_expert": 1000,
    "sequence_length": 10**8,
    "vocabulary": 2**31,
}
"""Beyond these a number is a slip of the pen."""


@dataclass(frozen=True)
class Counts:
    active_params: int
    """N: the parameters of the same model with one expert. As in the paper it does not grow with K."""
    total_params: int
    """P: all parameters, every expert and router included."""
    flops_per_token: int
    """F: forward pass at full sequence length, divided by the tokens in it."""


def dense_params(architecture: Architecture) -> int:
    """N of a plain model: attention, FFW, and two LayerNorms with scale and offset, per block."""
    d, inner = architecture.d_model, architecture.heads * architecture.kv_size
    return architecture.blocks * (5 * d * inner + 8 * d * d + 4 * d)


def routed_blocks(blocks: int, routing_frequency: float) -> int:
    """How many of the blocks are routed: the whole number nearest to L·R (a tie goes to the even one)."""
    if not 0 < routing_frequency <= 1:
        raise InputError(f"The routing frequency must be above 0 and at most 1, not {routing_frequency:g}.")
    return round(blocks * routing_frequency)


def count(
    architecture: Architecture,
    router: str = DENSE,
    experts: int = 1,
    *,
    k: int = 1,
    routing_frequency: float = 0.5,
    flop_increase: int = 1,
    shared_decisions: bool = False,
    ffws_per_expert: int = 1,
    routed: int | None = None,
    value_layers: int | None = None,
    positions: str = "xl",
    sequence_length: int = SEQUENCE_LENGTH,
    vocabulary: int = VOCABULARY,
) -> Counts:
    """Count a dense or routed model.

    >>> rl.count(rl.get_size("370M"), "s-base", 64).active_params
    368123904

    A hash router has no parameters, yet it is charged E·d like the others: the released table does so, and techniques
    stay comparable at equal E. So is a technique that is not the paper's: it counts as a linear router, whatever
    else its file may hold.

    `flop_increase` f belongs to the paper's dense models that spend f times the FLOPs in the FFWs that would be
    routed. The release counts them as f experts that are all used (E = K = f), router included, while N stays.

    `shared_decisions`: the first routed block decides for all, so one router (and one baseline) is counted.

    `ffws_per_expert` s > 1 stacks FFWs inside each expert, each with its own LayerNorm and residual. The first keeps
    the block's LayerNorm, which all experts share; the s−1 others bring 8·d² + 2·d parameters each and 16·d² + 5·d
    FLOPs per token that visits them (5·d per LayerNorm, as in the 10·d of a block). Since N means the model with one
    expert, those of one expert are in N.

    `value_layers`: hidden layers of RL-R's value network, each after the first with (d/8)² parameters more. Variants G
    and S have none, and are counted with 0; unless told otherwise it is 1, as in the paper's variant B.

    `routed` is the number of routed blocks where a placement names them; else L·R, rounded. `positions="rope"` has no
    projection of relative positions and no scores of its own: four projections and two score products instead of five
    and three.
    """
    router = canonical_router(router)
    _check_choices(router, experts, k, flop_increase, ffws_per_expert, sequence_length, vocabulary)
    routed = routed_blocks(architecture.blocks, routing_frequency) if routed is None else routed
    if not 0 <= routed <= architecture.blocks:
        raise InputError(f"Between none and all of the {architecture.blocks} blocks can be routed, not {routed}.")
    if positions not in POSITIONS:
        raise InputError(f"Positions are {' or '.join(POSITIONS)}, not {positions!r}.")
    if flop_increase > 1:
        experts_counted = k_counted = flop_increase
    else:
        experts_counted, k_counted = experts, k
    if routed < 1 and (experts_counted > 1 or ffws_per_expert > 1):
        raise InputError(
            f"A routing frequency of {routing_frequency:g} routes none of the {architecture.blocks} blocks; "
            f"it takes at least {1 / architecture.blocks:.3g} to route one."
        )

    d, inner = architecture.d_model, architecture.heads * architecture.kv_size
    ffw, stacked = 8 * d * d, ffws_per_expert - 1
    routers = 0 if experts_counted == 1 else 1 if shared_decisions else routed
    value_layers = int(router == "rl-r") if value_layers is None else value_layers
    if value_layers < 0:
        raise InputError(f"A value network has 0 hidden layers or more, not {value_layers}.")
    baseline = (d + 1) * (d // 8) + (value_layers - 1) * (d // 8) ** 2 if value_layers else 0

    rotary = positions == "rope"
    active = dense_params(architecture) - rotary * architecture.blocks * d * inner + routed * stacked * (ffw + 2 * d)
    other_experts = routed * (experts_counted - 1) * (ffw + stacked * (ffw + 2 * d))
    total = active + other_experts + routers * (experts_counted * d + baseline)

    attention_and_ffw = 2 * ffw + (10 - 2 * rotary) * d * inner + (6 - 2 * rotary) * sequence_length * inner
    softmax_and_norms = 3 * sequence_length * architecture.heads + 10 * d
    plain_flops = architecture.blocks * (attention_and_ffw + softmax_and_norms) + 2 * vocabulary * d
    routed_flops = routed * ((k_counted - 1) * 2 * ffw + k_counted * stacked * (2 * ffw + 5 * d))
    router_flops = routers * (2 * d * experts_counted + 2 * baseline)
    return Counts(active, total, plain_flops + routed_flops + router_flops)


def _check_choices(
    router: str,
    experts: int,
    k: int,
    flop_increase: int,
    ffws_per_expert: int,
    sequence_length: int,
    vocabulary: int,
) -> None:
    if not router:
        raise InputError("A router has a name; that of a model without routing is dense.")
    if experts < 1:
        raise InputError(f"The number of experts must be at least 1, not {experts}.")
    if not 1 <= k <= experts:
        raise InputError(f"k must lie between 1 and the number of experts ({experts}), not {k}.")
    if router == DENSE and experts > 1:
        raise InputError(f"A dense model has one expert, not {experts}; name a router to have more.")
    if flop_increase < 1:
        raise InputError(f"flop_increase must be at least 1, not {flop_increase}.")
    if flop_increase > 1 and router != DENSE:
        raise InputError(f"flop_increase belongs to dense models; for {router} raise k instead.")
    if ffws_per_expert < 1:
        raise InputError(f"Each expert holds at least one FFW, not {ffws_per_expert}.")
    if flop_increase > 1 and ffws_per_expert > 1:
        raise InputError("A dense model takes either flop_increase or ffws_per_expert above 1, not both.")
    given = {
        "experts": experts,
        "flop_increase": flop_increase,
        "ffws_per_expert": ffws_per_expert,
        "sequence_length": sequence_length,
        "vocabulary": vocabulary,
    }
    for name, most in LARGEST.items():
        if given[name] > most:
            raise InputError(f"{name} must be at most {most:,}.")
    if sequence_length < 1 or vocabulary < 1:
        raise InputError(f"Sequence length and vocabulary must be positive, not {sequence_length} and {vocabulary}.")


PLACEMENTS = ("even", "interior")


def canonical_placement(placement: str) -> str:
    """One spelling: lower case, and block numbers in order, so that "4, 2" and "2,4" are the same placement."""
    placement = placement.strip().lower()
    return placement if placement in PLACEMENTS else ",".join(str(block) for block in sorted(_listed(placement)))


@cache
def routed_positions(blocks: int, routing_frequency: float, placement: str = "even") -> tuple[int, ...]:
    """Block numbers, from 1, in order."""
    n = routed_blocks(blocks, routing_frequency)
    if placement in PLACEMENTS and n < 1:
        raise InputError(f"a routing frequency of {routing_frequency:g} routes none of the {blocks} blocks.")
    if placement == "even":
        chosen = [max(blocks - 1, 1)] if n == 1 else [round(i * blocks / n) for i in range(1, n + 1)]
    elif placement == "interior":
        inside = [max(round(i * blocks / (n + 1)), 1) for i in range(1, n + 1)]
        chosen = inside if n < blocks else list(range(1, blocks + 1))
    else:
        chosen = _listed(placement)
    if len(set(chosen)) != len(chosen) or not all(1 <= b <= blocks for b in chosen):
        raise InputError(f"placement {placement!r} does not name distinct blocks between 1 and {blocks}.")
    return tuple(sorted(chosen))


def _listed(placement: str) -> list[int]:
    try:
        return [int(part) for part in placement.split(",")]
    except ValueError:
        raise InputError(f"placement is even, interior, or block numbers such as '2,4,5', not {placement!r}.") from None
