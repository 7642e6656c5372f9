"""RL-R: the router is a policy, trained by REINFORCE on the model's own likelihood (Clark et al. 2022, appendix B.3).

π = softmax(Wx + b); outputs are summed unweighted, so the language-modelling loss alone teaches the policy nothing. The
reward is the log-likelihood of the next token. Minimised, with weights from the paper's table:

    policy     −Σ_k log π(a_k)·(R − b), the advantage detached (the paper prints it without the minus sign)
    value      Huber(R − b): the baseline b is a network of one hidden layer, d/8 wide, on detached input
               (`value_layers` and `value_loss` make it deeper, or its loss squared)
    entropy    +H(π): meant to concentrate the policy, so H itself is made smaller
    balance    as for the other routers, weight 1

Variants: G takes the K highest; S samples the smallest set of experts that holds 0.9 of the probability; B samples the
whole policy and has the baseline and the entropy term; BS has these and samples the nucleus, which the paper saw no
improvement from. K > 1 draws without replacement (Gumbel top-k) and sums log π:
for K > 1 that is not the probability of the ordered draw, so the estimate is exact only for K = 1. A dropped
action neither gains nor loses: it did not happen. Evaluation is greedy.

Every auxiliary loss is averaged over the routed layers (training/step.py), policy, value and entropy too: the paper
does not say whether it sums them, and an average keeps a weight's meaning when depth or R changes.

Shapes: T tokens, D width, E experts, K choices, N = T·K assignments, B sequences of S (S = 1: credit token by token).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routelaw.errors import InputError
from routelaw.kernels.fp32_product import fp32_linear
from routelaw.routers.gating import (
    balance_of,
    balance_prepared,
    choose,
    entropy,
    linear_logits,
    linear_parameters,
    mean_over_valid,
    tie_order,
)
from routelaw.routers.router import Losses, RouteContext, Router, Routing, one_of, register, token_major
from routelaw.specs.run import RouterSpec

SAMPLE_PURPOSE = 2
HUBER_DELTA = 1.0


@dataclass(frozen=True)
class Variant:
    """Weights of appendix B.3's table; the entropy weight has the sign under which it lowers entropy."""

    policy: float
    value: float
    entropy: float
    baseline: bool
    samples: str
    """The actions tried in training: nothing but the highest, all of the policy, or its nucleus."""


VARIANTS = {
    "B": Variant(1e-2, 1e-2, 5e-4, True, "policy"),
    "G": Variant(1e-1, 0.0, 0.0, False, ""),
    "S": Variant(1e-1, 0.0, 0.0, False, "nucleus"),
    "BS": Variant(1e-2, 1e-2, 5e-4, True, "nucleus"),
}
"""The table has no BS: it has the weights of B and the nucleus of S."""
VALUE_LOSSES = ("huber", "squared")
NUCLEUS_OPTIONS = ("nucleus", "importance")
VALUE_OPTIONS = ("value_weight", "value_layers", "value_loss")


def nucleus(probability_TE: Tensor, share: float, at_least: int, order_TE: Tensor) -> Tensor:
    """inside_TE: the fewest experts of each token that hold `share` of its probability, and at least so many.

    An expert is inside if those before it hold less than the share; equals stand in the token's own order.
    """
    by_order_TE = torch.argsort(order_TE, 1)
    ordered_TE = probability_TE.gather(1, by_order_TE)
    falling_TE, place_TE = ordered_TE.sort(dim=1, descending=True, stable=True)
    before_TE = falling_TE.cumsum(1) - falling_TE
    few_E = torch.arange(probability_TE.shape[1], device=probability_TE.device) < at_least
    inside_TE = (before_TE < share) | few_E
    return torch.zeros_like(inside_TE).scatter(1, by_order_TE.gather(1, place_TE), inside_TE)


@register("rl-r")
class Reinforce(Router):
    source = "Clark et al. 2022 (arXiv 2202.01169), appendix B.3"
    sync_free = True

    @dataclass(frozen=True)
    class Options(Router.Options):
        variant: str = "B"
        """B samples the policy and learns a baseline; G takes the K highest; S samples the nucleus; BS samples the
        nucleus and learns a baseline."""
        reward: str = "logp"
        """logp: log p(next token); p: the probability itself."""
        credit: str = "token"
        """token: an action answers for its own token's reward; sequence: for the mean of its sequence."""
        temperature: float = 1.0
        """Logits are divided by it before the softmax."""
        nucleus: float = 0.9
        """Share of probability that variants S and BS sample from. 0.9 of a policy that is still even over fewer
        than ten experts is all of them."""
        importance: bool = False
        """Variants S and BS: weight each action by π over the probability it was drawn with."""
        policy_weight: float | None = None
        """Weight of the policy-gradient loss; None is that of the paper's table for the variant."""
        value_weight: float | None = None
        """Weight of the baseline's loss (variants B and BS); None is that of the paper's table."""
        value_layers: int = 1
        """Hidden layers of the network that learns the baseline, each d/8 wide."""
        value_loss: str = "huber"
        """huber: squared up to an error of one nat and straight beyond; squared: (R − b)²/2 throughout."""
        entropy_weight: float | None = None
        """Weight of the entropy; positive concentrates the policy. None is that of the paper's table."""

    default_balance_weight = 1.0

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__(width, vocabulary, layer, spec)
        options = self.options
        one_of(options.variant, tuple(VARIANTS), "option variant of router rl-r")
        one_of(options.reward, ("logp", "p"), "option reward of router rl-r")
        one_of(options.credit, ("token", "sequence"), "option credit of router rl-r")
        one_of(options.value_loss, VALUE_LOSSES, "option value_loss of router rl-r")
        if not options.temperature > 0 or not 0 < options.nucleus <= 1:
            raise InputError(
                "router rl-r needs a temperature above 0 and a nucleus above 0 and at most 1, "
                f"not {options.temperature:g} and {options.nucleus:g}."
            )
        self.variant = VARIANTS[options.variant]
        self.weight, self.bias = linear_parameters(width, self.experts)
        if self.variant.baseline:
            hidden = max(width // 8, 1)
            deeper = (nn.Parameter(torch.zeros(hidden, hidden)) for _ in range(spec.value_layers - 1))
            self.value_in = nn.Parameter(torch.zeros(hidden, width))
            self.value_hidden = nn.ParameterList(deeper)
            self.value_out = nn.Parameter(torch.zeros(hidden))

    def without_effect(self, spec: RouterSpec) -> dict[str, str]:
        sampled = [name for name, variant in VARIANTS.items() if variant.samples == "nucleus"]
        valued = [name for name, variant in VARIANTS.items() if variant.baseline]
        used = dict.fromkeys(NUCLEUS_OPTIONS, sampled) | dict.fromkeys(VALUE_OPTIONS, valued)
        return super().without_effect(spec) | {
            f"options.{name}": f"it belongs to variants {' and '.join(of)} of router {self.name}, and this is "
            f"{self.options.variant}"
            for name, of in used.items()
            if name in spec.options and self.options.variant not in of
        }

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        logits_TE = linear_logits(x_TD, self.weight, self.bias) / self.options.temperature
        log_policy_TE = torch.log_softmax(logits_TE, 1)
        order_TE = tie_order(ctx, self.experts)
        scores_TE, correction_T = self._scores(log_policy_TE.detach(), order_TE, ctx)
        expert_TK = choose(scores_TE, self.k, order_TE)
        entropy_T = torch.where(ctx.valid_T, entropy(log_policy_TE), 0.0)
        baseline_T = self._baseline(x_TD)
        return Routing(
            token_N=token_major(len(expert_TK), expert_TK.shape[1], expert_TK.device),
            expert_N=expert_TK.flatten(),
            weight_N=None,
            aux={
                **balance_prepared(logits_TE, log_policy_TE.exp(), order_TE, ctx),
                "log_policy_TK": log_policy_TE.gather(1, expert_TK),
                "correction_T": correction_T,
                "entropy_sum": entropy_T.sum(),
                "valid_BS": ctx.valid_T.view(-1, self._credited_together(ctx)),
                **({} if baseline_T is None else {"baseline_T": baseline_T}),
            },
            metrics={"entropy": mean_over_valid(entropy_T.detach(), ctx.valid_T)},
        )

    def _scores(self, log_policy_TE: Tensor, order_TE: Tensor, ctx: RouteContext) -> tuple[Tensor, Tensor]:
        """Whose K highest are the action, and π over the probability it is drawn with."""
        one_T = torch.ones_like(log_policy_TE[:, 0])
        if not ctx.training or not self.variant.samples:
            return log_policy_TE, one_T
        uniform_TE = ctx.random.uniform(SAMPLE_PURPOSE, ctx.token_T, self.experts, log_policy_TE.dtype)
        gumbel_TE = -torch.log(-torch.log(uniform_TE))
        if self.variant.samples == "policy":
            return log_policy_TE + gumbel_TE, one_T
        policy_TE = log_policy_TE.exp()
        inside_TE = nucleus(policy_TE, self.options.nucleus, self.k, order_TE)
        scores_TE = (log_policy_TE + gumbel_TE).masked_fill(~inside_TE, -torch.inf)
        return scores_TE, torch.where(inside_TE, policy_TE, 0.0).sum(1) if self.options.importance else one_T

    def _baseline(self, x_TD: Tensor) -> Tensor | None:
        if not self.variant.baseline:
            return None
        hidden_TH = F.gelu(fp32_linear(x_TD.detach(), self.value_in))
        for weight_HH in self.value_hidden:
            hidden_TH = F.gelu(fp32_linear(hidden_TH, weight_HH))
        return hidden_TH @ self.value_out.to(hidden_TH.dtype)

    def _credited_together(self, ctx: RouteContext) -> int:
        if self.options.credit == "token":
            return 1
        if not ctx.sequence_length:
            raise InputError("router rl-r: credit by sequence needs to know how long sequences are.")
        return ctx.sequence_length

    def losses(self, routing: Routing, kept_N: Tensor, token_nll_T: Tensor) -> Losses:
        """`reward` and `baseline_error` (mean |R − b|) are for the log: their weight is 0."""
        aux = routing.aux
        log_policy_TK, valid_BS = aux["log_policy_TK"], aux["valid_BS"]
        valid_T = valid_BS.flatten()
        reward_T = self._reward(token_nll_T.detach().to(log_policy_TK.dtype), valid_BS)
        baseline_T = aux.get("baseline_T", torch.zeros_like(reward_T))
        kept_TK = kept_N.view_as(log_policy_TK) & valid_T[:, None]
        advantage_T = aux["correction_T"] * (reward_T - baseline_T.detach())
        policy_TK = torch.where(kept_TK, -log_policy_TK * advantage_T[:, None], 0.0)
        error_T = (reward_T - baseline_T).detach().abs()
        count = valid_T.sum().to(reward_T.dtype)
        losses = balance_of(routing) | {
            "policy": (policy_TK.sum(), count),
            "entropy": (aux["entropy_sum"], count),
            "reward": (torch.where(valid_T, reward_T, 0.0).sum(), count),
        }
        if self.variant.baseline:
            if self.options.value_loss == "huber":
                value_T = F.huber_loss(baseline_T, reward_T, reduction="none", delta=HUBER_DELTA)
            else:
                value_T = 0.5 * (reward_T - baseline_T) ** 2
            losses["value"] = (torch.where(kept_TK.any(1), value_T, 0.0).sum(), count)
            losses["baseline_error"] = (torch.where(valid_T, error_T, 0.0).sum(), count)
        return losses

    def _reward(self, nll_T: Tensor, valid_BS: Tensor) -> Tensor:
        """R of each token: its own, or the mean over the valid tokens of its sequence."""
        reward_T = -nll_T if self.options.reward == "logp" else torch.exp(-nll_T)
        reward_BS = torch.where(valid_BS, reward_T.view_as(valid_BS), 0.0)
        mean_B1 = reward_BS.sum(1, keepdim=True) / valid_BS.sum(1, keepdim=True).clamp(min=1)
        return mean_B1.expand_as(reward_BS).flatten()

    @property
    def loss_weights(self) -> Mapping[str, float]:
        def weight(asked: float | None, default: float) -> float:
            return default if asked is None else asked

        weights = {
            "balance": self.balance_weight,
            "policy": weight(self.options.policy_weight, self.variant.policy),
            "entropy": weight(self.options.entropy_weight, self.variant.entropy),
            "reward": 0.0,
        }
        if self.variant.baseline:
            weights |= {"value": weight(self.options.value_weight, self.variant.value), "baseline_error": 0.0}
        return weights
