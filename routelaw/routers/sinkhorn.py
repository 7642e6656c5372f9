"""S-BASE: experts are chosen after a Sinkhorn rebalancing of the logits (Clark et al. 2022, appendix B.2).

In training each routing group solves the entropy-regularised transport problem in which every token gives 1/T and
every expert receives 1/E (kernels/sinkhorn.py). Its plan is exp(L + f ⊕ g)/(T·E), and the best expert of row i of it is
argmax_j L_ij + g_j, so selection needs g alone. No gradient passes through: weights and balance loss come from L.

The plan is even as probabilities, but while logits are small it spreads each token over many experts, and then the best
of each row may crowd: a model of 8M with 128 experts still had a fifth of its tokens beyond a capacity of 2 after 1,500
steps. With a temperature below 1 (the paper has none) L/temperature takes the place of L in the rebalancing; the plan
is then nearer to an assignment, and the choice nearer to even.
Evaluation takes the K highest of L, which needs no other token and so is causal.

Shapes: T tokens, D width, E experts, G routing groups of M members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
        iterations: about 80 for 0.1 where 1 takes 5; below 0.02 the cap may come first, and the choice is uneven."""

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
