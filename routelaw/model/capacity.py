"""Which assignments an expert has room for.

In training an expert takes at most ⌈C·T·K/E⌉ of the T tokens of a routing group; the surplus is dropped at random.
Experts may share their slots (those of one device, in the paper). Shapes stay static: the result is a mask.

Shapes: N assignments (token-major), P pools: the groups' sets of experts that share slots.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from routelaw.routers.router import RouteContext, Routing

DROP_PURPOSE = 101
"""Distinguishes this use of the layer's random numbers from the router's own."""
PRIORITY_BITS = 40
"""Bits of the random number that decides who is dropped; the number of the pool stands above them."""


def slots(capacity_factor: float, group_tokens: int, k: int, experts: int) -> int:
    """⌈C·T·K/E⌉ of C as written: 1.1·200/4 is 55, which binary fractions would make 56."""
    return math.ceil(Fraction(str(capacity_factor)) * group_tokens * k / experts)


# A compiler cannot follow fractions and need not: the result is a constant. This is the mark that
# torch.compiler.assume_constant_result sets; the function itself would import the compiler, in every process.
slots._dynamo_marked_constant = True  # pyrefly: ignore


def within_capacity(
    routing: Routing, ctx: RouteContext, experts: int, k: int, capacity_factor: float, shared_slots: int = 1
) -> Tensor:
    """kept_N: valid assignments that find a slot. Evaluation and capacity_factor = 0 keep every valid one."""
    valid_N = ctx.valid_T[routing.token_N]
    groups, members = ctx.members_GM.shape
    room = slots(capacity_factor, members, k, experts) * shared_slots
    at_most = members * min(k, shared_slots)  # a token's experts are distinct
    if not ctx.training or capacity_factor == 0 or room >= at_most:
        return valid_N
    pools = experts // shared_slots
    pool_N = ctx.group_T[routing.token_N] * pools + routing.expert_N // shared_slots
    pool_N = torch.where(valid_N, pool_N, groups * pools)  # padding queues elsewhere and takes no slot
    choice_N = torch.arange(pool_N.shape[0], device=pool_N.device) % k
    random_N = ctx.random.bits(DROP_PURPOSE, ctx.token_T[routing.token_N] * k + choice_N)[:, 0]
    priority_N = (random_N >> (64 - PRIORITY_BITS)) & ((1 << PRIORITY_BITS) - 1)
    order = torch.argsort((pool_N << PRIORITY_BITS) | priority_N, stable=True)
    sorted_expert_N = pool_N[order]
    size_P = torch.zeros(groups * pools + 1, dtype=torch.int64, device=pool_N.device)
    size_P = size_P.scatter_add(0, pool_N, torch.ones_like(pool_N))
    start_P = size_P.cumsum(0) - size_P
    place_N = torch.arange(sorted_expert_N.shape[0], device=sorted_expert_N.device) - start_P[sorted_expert_N]
    kept_N = torch.empty_like(valid_N)
    kept_N[order] = place_N < room
    return kept_N & valid_N
