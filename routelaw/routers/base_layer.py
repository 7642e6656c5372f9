"""BASE: in training an exact balanced assignment, T·K/E tokens of a routing group to each expert (Lewis et al. 2021).

Evaluation takes the K highest logits, which is causal. Weights are the softmax, as in switch, or the sigmoid of
Lewis et al. Padding fills slots but has no preference.

Shapes: T tokens, D width, E experts, K choices, G routing groups of M members.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from routelaw.errors import InputError
from routelaw.routers.balanced_assignment import balanced_assignment
from routelaw.routers.gating import balance_of, choose, gated_routing, linear_logits, linear_parameters, tie_order
from routelaw.routers.router import Losses, RouteContext, Router, Routing, is_given, one_of, register
from routelaw.specs.run import RouterSpec


@register("base")
class BaseLayer(Router):
    source = "Lewis et al. 2021 (arXiv 2103.16716)"

    @dataclass(frozen=True)
    class Options(Router.Options):
        weight: str = "softmax"
        """What an expert's output is weighted by: the softmax of its logit, or as in Lewis et al. the sigmoid."""

    default_balance_weight = 1e-2

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__(width, vocabulary, layer, spec)
        one_of(self.options.weight, ("softmax", "sigmoid"), "option weight of router base")
        if spec.group_tokens:
            self._check_divides(spec.group_tokens)
        self.weight, self.bias = linear_parameters(width, self.experts)

    def _check_divides(self, group_tokens: int) -> None:
        if group_tokens * self.k % self.experts:
            raise InputError(
                f"router base gives every expert equally many tokens, and {self.experts} experts do not divide "
                f"a routing group of {group_tokens} tokens times k = {self.k}: change router.group_tokens or experts."
            )

    def without_effect(self, spec: RouterSpec) -> dict[str, str]:
        """Every expert has its even share of a group, so that no capacity of at least that is ever reached."""
        found = super().without_effect(spec)
        if is_given(spec, "capacity_factor") and (not spec.capacity_factor or spec.capacity_factor >= 1):
            found["capacity_factor"] = f"router {self.name} fills every expert evenly and drops nothing"
        return found

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        logits_TE = linear_logits(x_TD, self.weight, self.bias)
        order_TE = tie_order(ctx, self.experts)
        if not ctx.training:
            return gated_routing(logits_TE, choose(logits_TE, self.k, order_TE), order_TE, ctx, self.options.weight)
        expert_TK, moved_G = self._assigned(logits_TE.detach(), order_TE, ctx)
        routing = gated_routing(logits_TE, expert_TK, order_TE, ctx, self.options.weight)
        routing.metrics["assignment_moves"] = moved_G.to(logits_TE.dtype).mean()
        return routing

    def _assigned(self, logits_TE: Tensor, order_TE: Tensor, ctx: RouteContext) -> tuple[Tensor, Tensor]:
        """expert_TK, best first, and the work of each group. Where logits are not numbers there is no preference."""
        self._check_divides(ctx.members_GM.shape[1])
        finite_TE = torch.nan_to_num(torch.where(ctx.valid_T[:, None], logits_TE, 0.0), posinf=0.0, neginf=0.0)
        scores_TE, order_TE = finite_TE.cpu().to(torch.float64), order_TE.cpu()
        holds_TE = np.empty(scores_TE.shape, dtype=bool)
        moved = []
        for members_M in ctx.members_GM.cpu():
            found = balanced_assignment(scores_TE[members_M].numpy(), self.k, order_TE[members_M])
            holds_TE[members_M.numpy()] = found.holds_TE
            moved.append(found.moved)
        held_TE = torch.from_numpy(holds_TE).to(logits_TE.device)
        order_TE = order_TE.to(logits_TE.device)
        expert_TK = choose(logits_TE.masked_fill(~held_TE, -torch.inf), self.k, order_TE + self.experts * ~held_TE)
        return expert_TK, torch.tensor(moved, device=logits_TE.device)

    def losses(self, routing: Routing, kept_N: Tensor, token_nll_T: Tensor) -> Losses:
        return balance_of(routing)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"balance": self.balance_weight}
