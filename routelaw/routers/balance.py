"""The balance loss: E·Σ_e m_e·g_e/T over a routing group (Clark et al. 2022, appendix B.1; Fedus et al. 2021).

m_e is the mean softmax of expert e and g_e the number of tokens whose own argmax it is: what the router asked for,
before any reassignment or drop. g carries no gradient. The loss is 1 when the softmax is uniform, E when one expert
has everything.

Shapes: T tokens, E experts, G routing groups.
"""

from __future__ import annotations

import torch
from torch import Tensor

from routelaw.routers.router import RouteContext


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
