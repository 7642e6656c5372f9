"""What routers with a linear map share: logits in float32 or wider, and output weights from their softmax.

Shapes: T tokens, D width, E experts, K choices, N = T·K assignments.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from routelaw.kernels.wide_product import wide_linear
from routelaw.routers.balance import balance_loss
from routelaw.routers.choice import choose
from routelaw.routers.router import Losses, RouteContext, Routing, token_major


def linear_parameters(width: int, experts: int) -> tuple[nn.Parameter, nn.Parameter]:
    """weight_ED and bias_E, at zero until the model draws them: a router on its own then spreads tokens evenly."""
    return nn.Parameter(torch.zeros(experts, width)), nn.Parameter(torch.zeros(experts))


def linear_logits(x_TD: Tensor, weight_ED: Tensor, bias_E: Tensor) -> Tensor:
    logits_TE = wide_linear(x_TD, weight_ED)
    return logits_TE + bias_E.to(logits_TE.dtype)


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
