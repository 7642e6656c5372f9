"""Switch and top-k routing: the K highest logits, weighted by their softmax (Shazeer et al. 2017; Fedus et al. 2021).

Fedus et al. jitter the router's input by 0.01. Clark et al. 2022 leave it out, having seen no effect, and so does the
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

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


@register("switch")
class Switch(Router):
    source = "Shazeer et al. 2017 (arXiv 1701.06538); Fedus et al. 2021 (arXiv 2101.03961)"
    sync_free = True

    @dataclass(frozen=True)
    class Options(Router.Options):
        jitter: float = 0.0
        """In training the router's input is multiplied by uniform noise between 1 − jitter and 1 + jitter."""

    default_balance_weight = 1e-2

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__(width, vocabulary, layer, spec)
        check_jitter(self.options.jitter, self.name)
        self.weight, self.bias = linear_parameters(width, self.experts)

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        logits_TE = linear_logits(jittered(x_TD, self.options.jitter, ctx), self.weight, self.bias)
        order_TE = tie_order(ctx, self.experts)
        return gated_routing(logits_TE, choose(logits_TE, self.k, order_TE), order_TE, ctx)

    def losses(self, routing: Routing, kept_N: Tensor, token_nll_T: Tensor) -> Losses:
        return balance_of(routing)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"balance": self.balance_weight}
