"""Log-domain Sinkhorn: the plain form, and the operation that takes the fastest form there is for a device.

Each routing group solves the entropy-regularised transport problem in which every token gives 1/T and every expert
receives 1/E. Its plan is exp(L + f ⊕ g)/(T·E) with

    f_i = −log[(1/E)·Σ_j exp(L_ij + g_j)],    g_j = −log[(1/T)·Σ_i exp(L_ij + f_i)]

(plus signs: as printed in Clark et al. 2022, with minus signs, the iteration does not converge).

Shapes: T tokens, E experts, G routing groups of M members.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def expert_potentials(
    logits_TE: Tensor, members_GM: Tensor, valid_T: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(g_GE, iterations_G, violation_G) of the groups: what is needed to choose experts, and how well it went."""
    if logits_TE.is_cuda or torch.compiler.is_compiling():
        return expert_potentials_op(logits_TE, members_GM, valid_T, tolerance, max_iterations)
    return sinkhorn(logits_TE[members_GM], valid_T[members_GM], tolerance, max_iterations)[1:]


@torch.library.custom_op("routelaw::expert_potentials", mutates_args=())
def expert_potentials_op(
    logits_TE: Tensor, members_GM: Tensor, valid_T: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """One operation to a compiler, which cannot look inside: how often it iterates depends on the data."""
    if logits_TE.is_cuda and logits_TE.dtype == torch.float32:
        from routelaw.kernels.sinkhorn_triton import persistent_sinkhorn

        return persistent_sinkhorn(logits_TE, members_GM, valid_T, tolerance, max_iterations)
    return sinkhorn(logits_TE[members_GM], valid_T[members_GM], tolerance, max_iterations)[1:]


@expert_potentials_op.register_fake
def _(
    logits_TE: Tensor, members_GM: Tensor, valid_T: Tensor, tolerance: float, max_iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    groups, experts = members_GM.shape[0], logits_TE.shape[1]
    g_GE = logits_TE.new_empty(groups, experts)
    return g_GE, g_GE.new_empty(groups, dtype=torch.int64), g_GE.new_empty(groups)


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
        f_GM = math.log(experts) - log_sum_exp(logits_GME + g_GE[:, None], 2)
        return torch.where(valid_GM, f_GM, 0.0)

    def of_experts(f_GM: Tensor) -> Tensor:
        g_GE = size_G.log()[:, None] - log_sum_exp(hidden_GME + f_GM[:, :, None], 1)
        return torch.where(some_G1, g_GE, 0.0)  # a group of padding alone has nothing to balance

    g_GE = torch.zeros_like(logits_GME[:, 0])
    next_GM = of_tokens(g_GE)
    f_GM = next_GM
    violation_G = torch.full_like(g_GE[:, 0], torch.inf)
    iterations_G = torch.zeros(groups, dtype=torch.int64, device=logits_GME.device)
    for _ in range(max_iterations):
        moving_G = violation_G > tolerance
        if not bool(moving_G.any()):
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


FAINTEST = -80.0
"""e^−80 is lost beside the 1 of the largest, in float64 too; a CPU takes much longer over what underflows."""


def log_sum_exp(values: Tensor, dim: int) -> Tensor:
    """torch.logsumexp to the bit. At low temperatures most terms would underflow: it takes a fifth of the time then."""
    largest = values.amax(dim, keepdim=True)
    start = largest.masked_fill(largest.abs() == torch.inf, 0.0)
    found = (values - start).clamp_(min=FAINTEST).exp_().sum(dim).log_().add_(start.squeeze(dim))
    return found.masked_fill_(largest.squeeze(dim) == -torch.inf, -torch.inf)
