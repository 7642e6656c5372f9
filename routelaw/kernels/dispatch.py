"""The order in which assignments go to their experts, and the sum of what comes back for a token.

Plain forms here; kernels for a GPU in dispatch_triton.py, which a compiler launches itself but does not fuse. In both
the order is stable and sums have a fixed order, so equal input gives equal output.

Shapes: T tokens, K choices, N = T·K assignments (token-major), E experts, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def expert_order(expert_N: Tensor, kept_N: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """(order_N, inverse_N, offsets_E): assignments sorted by expert, dropped ones last; where each of them then stands;
    where an expert's slice ends (int32)."""
    if expert_N.is_cuda:
        from routelaw.kernels.dispatch_triton import counted_order

        return counted_order(expert_N, kept_N, experts)
    return sorted_order(expert_N, kept_N, experts)


def sorted_order(expert_N: Tensor, kept_N: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    sorted_expert_N, order_N = torch.sort(torch.where(kept_N, expert_N, experts).to(torch.int32), stable=True)
    inverse_N = torch.empty_like(order_N)
    inverse_N[order_N] = torch.arange(len(order_N), device=order_N.device)
    number_E = torch.arange(experts, dtype=torch.int32, device=order_N.device)
    return order_N, inverse_N, torch.searchsorted(sorted_expert_N, number_E, right=True, out_int32=True)


def summed_rows(x_ND: Tensor, place_N: Tensor, kept_N: Tensor, k: int) -> Tensor:
    """(T, D): of every token the sum of its K rows, those that were kept; the others may be anything.

    The kernel is not fused with what follows: inside the sum over tokens of a LayerNorm's gradient such a gather took
    430 µs instead of 55 (docs/log).
    """
    if x_ND.is_cuda and x_ND.dtype != torch.float64:
        from routelaw.kernels.dispatch_triton import gathered_sum

        return gathered_sum(x_ND, place_N, kept_N, k)
    rows_ND = x_ND.index_select(0, place_N).masked_fill_(~kept_N[:, None], 0)
    return rows_ND if k == 1 else rows_ND.view(-1, k, x_ND.shape[1]).sum(1)
