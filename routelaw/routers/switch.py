"""Switch and top-k routing: the K highest logits, weighted by their softmax (Shazeer et al. 2017; Fedus et al. 2021).

No input jitter: the paper saw no effect of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from routelaw.routers.gating import balance_of, choose, gated_routing, linear_logits, linear_parameters, tie_order
from routelaw.routers.router import Losses, RouteContext, Router, Routing, register
from routelaw.specs.run import RouterSpec


@register("switch")
class Switch(Router):
    sync_free = True
    default_balance_weight = 1e-2

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__(width, vocabulary, layer, spec)
        self.weight, self.bias = linear_parameters(width, self.experts)

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        logits_TE = linear_logits(x_TD, self.weight, self.bias)
        order_TE = tie_order(ctx, self.experts)
        return gated_routing(logits_TE, choose(logits_TE, self.k, order_TE), order_TE, ctx)

    def losses(self, routing: Routing, kept_N: Tensor, token_nll_T: Tensor) -> Losses:
        return balance_of(routing)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"balance": self.balance_weight}
