"""The K highest experts of each token, ties included.

`torch.topk` leaves the order of ties open, and a first-index rule would send every token with equal logits to expert
0. Here each token has its own order of preference among equals: it starts at (token + a random start) mod E and runs
up or down from there. So equal logits give every expert its exact share of any E tokens in a row, two tied experts are
equally likely, and the choice depends on nothing but the token's own scores and number.

Shapes: T tokens, E experts, K choices.
"""

from __future__ import annotations

import torch
from torch import Tensor

from routelaw.routers.router import RouteContext

TIE_PURPOSE = 1
"""Distinguishes this use of the layer's random numbers."""


def tie_order(ctx: RouteContext, experts: int) -> Tensor:
    """order_TE: among equal scores the expert with the lowest number here is taken."""
    start = ctx.random.bits(TIE_PURPOSE, torch.full_like(ctx.token_T[:1], -1))[0]
    first_T = torch.remainder(ctx.token_T + torch.remainder(start, experts), experts).to(torch.int32)
    upwards_T = 1 - 2 * (ctx.random.bits(TIE_PURPOSE, ctx.token_T)[:, 0] & 1).to(torch.int32)
    expert_E = torch.arange(experts, dtype=torch.int32, device=ctx.token_T.device)
    return torch.remainder((expert_E - first_T[:, None]) * upwards_T[:, None], experts)


@torch.no_grad()
def choose(scores_TE: Tensor, k: int, order_TE: Tensor) -> Tensor:
    """expert_TK: the k highest, best first, distinct; also where scores are −inf (they come last) or not numbers."""
    experts = scores_TE.shape[1]
    taken_TE = torch.zeros_like(order_TE, dtype=torch.bool)
    chosen = []
    for _ in range(k):
        open_TE = scores_TE.masked_fill(taken_TE, -torch.inf)
        best_T1 = open_TE.amax(1, keepdim=True)
        rank_TE = torch.where(open_TE == best_T1, order_TE, order_TE + experts)
        pick_T1 = rank_TE.masked_fill(taken_TE, 2 * experts).argmin(1, keepdim=True)
        taken_TE = taken_TE.scatter(1, pick_T1, True)
        chosen.append(pick_T1)
    return torch.cat(chosen, 1)
