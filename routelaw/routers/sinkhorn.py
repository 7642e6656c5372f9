"""S-BASE: experts are chosen after a Sinkhorn rebalancing of the logits (Clark et al. 2022, appendix B.2).

In training each routing group solves the entropy-regularised transport problem in which every token gives 1/T and
every expert receives 1/E (kernels/sinkhorn.py). Its plan is exp(L + f ⊕ g)/(T·E), and the best expert of row i of it is
argmax_j L_ij + g_j, so selection needs g alone. No gradient passes through: weights and balance loss come from L.

The plan is even as probabilities, the choice of each row's best need not be: where logits differ little from each other
the plan spreads every token over many experts, and the best of many rows may be the same. A smaller tolerance does not
help, a lower temperature does. With it L/temperature takes the place of L in the rebalancing (the paper has none). How
low it must be depends on the spread of the logits, which is small at first and grows in training, so
`relative_temperature` measures it in standard deviations of a group's logits
(docs/log/2026-11-19-s-base-rebalancing.md).
Evaluation takes the K highest of L, which needs no other token and so is causal.

Shapes: T tokens, D width, E experts, G routing groups of M members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from routelaw.errors import InputError
from routelaw.kernels.sinkhorn import expert_potentials
from routelaw.routers.gating import (
    balance_of,
    check_jitter,
    choose,
    gated_routing,
    jittered,
    linear_logits,
    linear_parameters,
    tie_order,
)
from routelaw.routers.router import Losses, RouteContext, Router, Routing, register
from routelaw.specs.run import RouterSpec


@register("s-base")
class SinkhornBase(Router):
    source = "Clark et al. 2022 (arXiv 2202.01169), appendix B.2; after Lewis et al. 2021 (arXiv 2103.16716)"
    sync_free = True

    @dataclass(frozen=True)
    class Options(Router.Options):
        jitter: float = 0.0
        """In training the router's input is multiplied by uniform noise between 1 − jitter and 1 + jitter; the paper
        saw no effect of it."""
        tolerance: float = 1e-2
        """L1 violation of the constraints at which Sinkhorn stops; the paper's."""
        max_iterations: int = 200
        """Most iterations of Sinkhorn in a routing group."""
        temperature: float = 1.0
        """Temperature of the rebalancing alone. The lower, the nearer to BASE's exact assignment, and the more
        iterations; where max_iterations come first, the choice is less even."""
        relative_temperature: bool = False
        """true: the temperature is a multiple of the standard deviation of a group's logits, less the means of tokens
        and experts. Then the choice is even however small the logits are: 0.05 drops next to nothing, and takes
        about 100 iterations with 32 experts."""

    default_balance_weight = 1e-2

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__(width, vocabulary, layer, spec)
        options = self.options
        check_jitter(options.jitter, self.name)
        if not options.tolerance > 0 or options.max_iterations < 1 or not options.temperature > 0:
            raise InputError(
                "s-base needs a tolerance and a temperature above 0 and max_iterations of at least 1, "
                f"not {options.tolerance:g}, {options.temperature:g} and {options.max_iterations}."
            )
        self.weight, self.bias = linear_parameters(width, self.experts)

    def without_effect(self, spec: RouterSpec) -> dict[str, str]:
        """All options but jitter, which changes weights too, are about the choice of experts, and there is none where a
        token visits all of them."""
        found = super().without_effect(spec)
        if self.k == self.experts:
            given = [name for name in spec.options if name != "jitter"]
            found |= {f"options.{name}": f"a token visits all {self.k} experts" for name in given}
        return found

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        logits_TE = linear_logits(jittered(x_TD, self.options.jitter, ctx), self.weight, self.bias)
        order_TE = tie_order(ctx, self.experts)
        metrics: dict[str, Tensor] = {}
        scores_TE = self._rebalanced(logits_TE.detach(), ctx, metrics) if ctx.training else logits_TE
        routing = gated_routing(logits_TE, choose(scores_TE, self.k, order_TE), order_TE, ctx)
        routing.metrics.update(metrics)
        return routing

    def _rebalanced(self, logits_TE: Tensor, ctx: RouteContext, metrics: dict[str, Tensor]) -> Tensor:
        tolerance, cap = self.options.tolerance, self.options.max_iterations
        if self.options.relative_temperature:
            logits_TE = standardised(logits_TE, ctx)
        if self.options.temperature != 1:
            logits_TE = logits_TE / self.options.temperature
        g_GE, iterations_G, violation_G = expert_potentials(logits_TE, ctx.members_GM, ctx.valid_T, tolerance, cap)
        metrics["sinkhorn_iterations"] = iterations_G.to(logits_TE.dtype).mean()
        metrics["sinkhorn_violation"] = violation_G.mean()
        metrics["sinkhorn_capped"] = (violation_G > tolerance).to(logits_TE.dtype).mean()
        return logits_TE + g_GE[ctx.group_T]

    def losses(self, routing: Routing, kept_N: Tensor, token_nll_T: Tensor) -> Losses:
        return balance_of(routing)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"balance": self.balance_weight}


def standardised(logits_TE: Tensor, ctx: RouteContext) -> Tensor:
    """Logits less the means of their token and of their expert, over the standard deviation of what is left, by group.

    Potentials make up for both means in any case. Padding does not count, and logits without a preference become zeros.
    """
    by_token_TE = torch.where(ctx.valid_T[:, None], logits_TE - logits_TE.mean(1, keepdim=True), 0.0)
    size_G = ctx.valid_T[ctx.members_GM].sum(1).clamp(min=1).to(logits_TE.dtype)
    mean_GE = by_token_TE[ctx.members_GM].sum(1) / size_G[:, None]
    centred_TE = torch.where(ctx.valid_T[:, None], by_token_TE - mean_GE[ctx.group_T], 0.0)
    variance_G = centred_TE.square().mean(1)[ctx.members_GM].sum(1) / size_G
    smallest = torch.finfo(logits_TE.dtype).tiny
    return centred_TE / variance_G.sqrt().clamp(min=smallest)[ctx.group_T, None]
