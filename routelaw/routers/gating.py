"""What routers with a linear map share: logits, the K highest of them, output weights, and the balance loss.

Logits are float32 or wider; weights are their softmax. `torch.topk` leaves the order of ties open, and a first-index
rule would send every token with equal logits to expert 0. Here each token has its own order of preference among equals:
it starts at (token + a random start) mod E and runs up or down from there. So equal logits give every expert its exact
share of any E tokens in a row, two tied experts are equally likely, and the choice depends on nothing but the token's
own scores and number.

The balance loss is E·Σ_e m_e·g_e/T over a routing group (Clark et al. 2022, appendix B.1; Fedus et al. 2021). m_e is
the mean softmax of expert e and g_e the number of tokens whose own argmax it is: what the router asked for, before any
reassignment or drop. g carries no gradient. The loss is 1 when the softmax is uniform, E when one expert has
everything.

Shapes: T tokens, D width, E experts, K choices, N = T·K assignments, G routing groups.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routelaw.errors import InputError
from routelaw.kernels.fp32_product import fp32_linear
from routelaw.routers.router import Losses, RouteContext, Routing, token_major

TIE_PURPOSE, JITTER_PURPOSE = 1, 3
"""Distinguish these uses of the layer's random numbers."""


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


def linear_parameters(width: int, experts: int) -> tuple[nn.Parameter, nn.Parameter]:
    """weight_ED and bias_E, at zero until the model draws them: a router on its own then spreads tokens evenly."""
    return nn.Parameter(torch.zeros(experts, width)), nn.Parameter(torch.zeros(experts))


def linear_logits(x_TD: Tensor, weight_ED: Tensor, bias_E: Tensor) -> Tensor:
    logits_TE = fp32_linear(x_TD, weight_ED)
    return logits_TE + bias_E.to(logits_TE.dtype)


def check_jitter(jitter: float, router: str) -> None:
    if not 0 <= jitter < 1:
        raise InputError(f"option jitter of router {router} must be at least 0 and below 1, not {jitter:g}.")


def jittered(x_TD: Tensor, jitter: float, ctx: RouteContext) -> Tensor:
    """Input jitter (Fedus et al. 2021): in training every number that the router sees, not what experts compute with,
    is multiplied by a draw of its own from [1 − jitter, 1 + jitter]. The result is float32 or wider."""
    if not jitter or not ctx.training:
        return x_TD
    wide = torch.promote_types(x_TD.dtype, torch.float32)
    uniform_TD = ctx.random.uniform(JITTER_PURPOSE, ctx.token_T, x_TD.shape[1], wide)
    return x_TD * (1 + jitter * (2 * uniform_TD - 1))


def mean_over_valid(value_T: Tensor, valid_T: Tensor) -> Tensor:
    return torch.where(valid_T, value_T, 0.0).sum() / valid_T.sum().clamp(min=1)


def entropy(log_probability_TE: Tensor) -> Tensor:
    """−Σ_e p_e·log p_e of each token, in nats."""
    return -(log_probability_TE.exp() * log_probability_TE).sum(1)


def gated_routing(
    logits_TE: Tensor, expert_TK: Tensor, order_TE: Tensor, ctx: RouteContext, weight: str = "softmax"
) -> Routing:
    """Chosen experts weighted by their full softmax (or sigmoid), not renormalised, with the balance loss prepared."""
    log_probability_TE = torch.log_softmax(logits_TE, 1)
    probability_TE = log_probability_TE.exp()
    gate_TE = probability_TE if weight == "softmax" else torch.sigmoid(logits_TE)
    return Routing(
        token_N=token_major(len(expert_TK), expert_TK.shape[1], expert_TK.device),
        expert_N=expert_TK.flatten(),
        weight_N=gate_TE.gather(1, expert_TK).flatten(),
        aux=balance_prepared(logits_TE, probability_TE, order_TE, ctx),
        metrics={"entropy": mean_over_valid(entropy(log_probability_TE.detach()), ctx.valid_T)},
    )


def balance_prepared(
    logits_TE: Tensor, probability_TE: Tensor, order_TE: Tensor, ctx: RouteContext
) -> dict[str, Tensor]:
    """What `balance_of` reads from a routing: tokens count for the expert they prefer, wherever they went."""
    preferred_T = choose(logits_TE, 1, order_TE)[:, 0]
    total, groups = balance_loss(probability_TE, preferred_T, ctx)
    return {"balance_sum": total, "balance_count": groups}


def balance_of(routing: Routing) -> Losses:
    return {"balance": (routing.aux["balance_sum"], routing.aux["balance_count"])}


def balance_loss(probability_TE: Tensor, preferred_T: Tensor, ctx: RouteContext) -> tuple[Tensor, Tensor]:
    """(sum over groups, number of groups); padding does not count, nor a group of nothing but padding.

    Written as a sum over tokens with constant coefficients, Σ_te p_te·(E·g_e/T²), so that nothing with a gradient is
    gathered into groups: the gradient is exact, cheap and the same at any number of threads.
    """
    experts = probability_TE.shape[1]
    valid_T = ctx.valid_T
    cell_T = ctx.group_T * experts + preferred_T
    count_GE = torch.zeros(ctx.groups * experts, dtype=torch.int64, device=cell_T.device)
    count_GE = count_GE.scatter_add(0, cell_T, valid_T.to(torch.int64)).view(ctx.groups, experts)
    size_G = count_GE.sum(1)
    coefficient_GE = experts * count_GE.to(probability_TE.dtype) / size_G.clamp(min=1)[:, None] ** 2
    terms_TE = torch.where(valid_T[:, None], probability_TE * coefficient_GE[ctx.group_T], 0.0)
    return terms_TE.sum(), (size_G > 0).sum().to(probability_TE.dtype)
