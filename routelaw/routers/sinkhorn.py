"""S-BASE: experts are chosen after a Sinkhorn rebalancing of the logits (Clark et al. 2022, appendix B.2).

In training each routing group solves the entropy-regularised transport problem in which every token gives 1/T and
every expert receives 1/E. Its plan is exp(L + f ⊕ g)/(T·E) with

    f_i = −log[(1/E)·Σ_j exp(L_ij + g_j)],    g_j = −log[(1/T)·Σ_i exp(L_ij + f_i)]

(plus signs: as printed in the paper, with minus signs, the iteration does not converge). The best expert of row i of
the plan is argmax_j L_ij + g_j, so selection needs g alone. No gradient passes through: weights and balance loss come
from L. Evaluation takes the K highest of L, which needs no other token and so is causal.

Shapes: T tokens, D width, E experts, G routing groups of M members.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from routelaw.errors import InputError
from routelaw.routers.choice import choose, tie_order
from routelaw.routers.gating import balance_of, gated_routing, linear_logits, linear_parameters
from routelaw.routers.router import Losses, RouteContext, Router, Routing, register
from routelaw.specs.run import RouterSpec

ITERATIONS_BETWEEN_LOOKS = 16
"""On an accelerator, to ask whether all groups have converged is to wait for it; so ask seldom. Groups that have
converged stand still meanwhile: the answer does not depend on this number."""


@torch.no_grad()
def sinkhorn(
    logits_GME: Tensor, valid_GM: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(f_GM, g_GE, iterations_G, violation_G) of the plan exp(L + f + g)/(T·E), T the valid members of a group.

    A group stops once the L1 violation of its constraints is within the tolerance, whatever other groups do. After a
    g-update the experts' constraint holds exactly, and the violation of the tokens' is mean_i |exp(f_i − f'_i) − 1|
    where f' is the next f: the test costs nothing extra.
    """
    groups, _, experts = logits_GME.shape
    size_G = valid_GM.sum(1).clamp(min=1).to(logits_GME.dtype)  # the logarithm of an integer would be float32
    hidden_GME = torch.where(valid_GM[:, :, None], logits_GME, -torch.inf)
    some_G1 = valid_GM.any(1, keepdim=True)

    def of_tokens(g_GE: Tensor) -> Tensor:
        f_GM = math.log(experts) - torch.logsumexp(logits_GME + g_GE[:, None], 2)
        return torch.where(valid_GM, f_GM, 0.0)

    def of_experts(f_GM: Tensor) -> Tensor:
        g_GE = size_G.log()[:, None] - torch.logsumexp(hidden_GME + f_GM[:, :, None], 1)
        return torch.where(some_G1, g_GE, 0.0)  # a group of padding alone has nothing to balance

    g_GE = torch.zeros_like(logits_GME[:, 0])
    next_GM = of_tokens(g_GE)
    f_GM = next_GM
    violation_G = torch.full_like(g_GE[:, 0], torch.inf)
    iterations_G = torch.zeros(groups, dtype=torch.int64, device=logits_GME.device)
    look = 1 if logits_GME.device.type == "cpu" else ITERATIONS_BETWEEN_LOOKS
    for i in range(max_iterations):
        moving_G = violation_G > tolerance
        if i % look == 0 and not bool(moving_G.any()):
            break
        newer_GE = of_experts(next_GM)
        newer_GM = of_tokens(newer_GE)
        gap_GM = torch.where(valid_GM, (next_GM - newer_GM).exp() - 1, 0.0).abs()
        f_GM = torch.where(moving_G[:, None], next_GM, f_GM)
        g_GE = torch.where(moving_G[:, None], newer_GE, g_GE)
        next_GM = torch.where(moving_G[:, None], newer_GM, next_GM)
        violation_G = torch.where(moving_G, gap_GM.sum(1) / size_G, violation_G)
        iterations_G = iterations_G + moving_G
    return f_GM, g_GE, iterations_G, violation_G


@register("s-base")
class SinkhornBase(Router):
    @dataclass(frozen=True)
    class Options(Router.Options):
        tolerance: float = 1e-2
        """L1 violation of the constraints at which Sinkhorn stops; the paper's."""
        max_iterations: int = 200

    default_balance_weight = 1e-2

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__(width, vocabulary, layer, spec)
        if not self.options.tolerance > 0 or self.options.max_iterations < 1:
            raise InputError(
                "s-base needs a tolerance above 0 and max_iterations of at least 1, "
                f"not {self.options.tolerance:g} and {self.options.max_iterations}."
            )
        self.weight, self.bias = linear_parameters(width, self.experts)

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        logits_TE = linear_logits(x_TD, self.weight, self.bias)
        order_TE = tie_order(ctx, self.experts)
        metrics: dict[str, Tensor] = {}
        scores_TE = self._rebalanced(logits_TE.detach(), ctx, metrics) if ctx.training else logits_TE
        routing = gated_routing(logits_TE, choose(scores_TE, self.k, order_TE), order_TE, ctx)
        routing.metrics.update(metrics)
        return routing

    def _rebalanced(self, logits_TE: Tensor, ctx: RouteContext, metrics: dict[str, Tensor]) -> Tensor:
        tolerance, cap = self.options.tolerance, self.options.max_iterations
        members_GM = ctx.members_GM
        _, g_GE, iterations_G, violation_G = sinkhorn(logits_TE[members_GM], ctx.valid_T[members_GM], tolerance, cap)
        metrics["sinkhorn_iterations"] = iterations_G.to(logits_TE.dtype).mean()
        metrics["sinkhorn_violation"] = violation_G.mean()
        metrics["sinkhorn_capped"] = (violation_G > tolerance).to(logits_TE.dtype).mean()
        return logits_TE + g_GE[ctx.group_T]

    def losses(self, routing: Routing, kept_N: Tensor, token_nll_T: Tensor) -> Losses:
        return balance_of(routing)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"balance": self.balance_weight}
