"""The feed-forward networks of experts on a CPU: one expert after the other, each from its rows to its sums.

An expert's hidden units are used while they are in the cache, and never written next to those of the others. Where the
rows are still those of the tokens, an expert also fetches, weights and returns its own (`routed_ffw`), so no pass over
all rows is needed for that. Experts have other numbers of rows at every step, and oneDNN compiles a kernel for every
shape that it meets (0.4 ms; it keeps 1,024). So where oneDNN is used the rows of an expert are filled up with zeros to
a multiple of `ROWS`.

Shapes: T tokens, K choices, N = T·K rows, R those of one expert and zeros, D width, F hidden, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from routelaw.kernels.cpu_product import matmul, outer_into, prefers_onednn

ROWS = 16


def expert_ffw(x_ND: Tensor, up_EDF: Tensor, down_EFD: Tensor, offsets_E: Tensor) -> Tensor:
    """gelu(x · up) · down of rows sorted by expert; zero for rows after the last end."""
    return _ExpertFfw.apply(x_ND, up_EDF, down_EFD, offsets_E, None, None)  # pyrefly: ignore


def routed_ffw(
    x_TD: Tensor, up_EDF: Tensor, down_EFD: Tensor, weight_N: Tensor | None, order_N: Tensor, offsets_E: Tensor
) -> Tensor:
    """Σ over the K choices of a token of weight · gelu(x · up) · down; zero for assignments after the last end.

    `order_N` sorts the assignments (token-major) by expert; `weight_N` is in their own order.
    """
    T, D = x_TD.shape
    out_ND = _ExpertFfw.apply(x_TD, up_EDF, down_EFD, offsets_E, order_N, weight_N)  # pyrefly: ignore
    return out_ND if len(out_ND) == T else out_ND.view(T, -1, D).sum(1)  # pyrefly: ignore


class _ExpertFfw(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        up_EDF: Tensor,
        down_EFD: Tensor,
        offsets_E: Tensor,
        order_N: Tensor | None,
        weight_N: Tensor | None,
    ) -> Tensor:
        rows = len(x) if order_N is None else len(order_N)
        ctx.slices, ctx.k = list(_slices(offsets_E)), rows // max(len(x), 1)
        ctx.all_served = sum(own.stop - own.start for _, own in ctx.slices) == rows
        out_ND = _rows_like(x, rows, ctx.all_served)
        hidden = []  # of each expert: its rows, before and after the activation, and its output where it is weighted
        for expert, own in ctx.slices:
            which = own if order_N is None else order_N[own]
            x_RD = _fetched(x, which, ctx.k, up_EDF[expert])
            before_RF = matmul(x_RD, up_EDF[expert])
            after_RF = F.gelu(before_RF)
            made_ND = matmul(after_RF, down_EFD[expert])[: own.stop - own.start]
            hidden += [x_RD, before_RF, after_RF]
            if weight_N is not None:
                hidden.append(made_ND)
                made_ND = made_ND * weight_N[which].to(made_ND.dtype)[:, None]
            _put(out_ND, which, made_ND)
        ctx.save_for_backward(x, up_EDF, down_EFD, order_N, weight_N, *hidden)
        return out_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore
        x, up_EDF, down_EFD, order_N, weight_N, *hidden = ctx.saved_tensors
        of_x_ND = _rows_like(x, len(gradient_ND), ctx.all_served)
        of_up, of_down = torch.empty_like(up_EDF), torch.empty_like(down_EFD)
        of_weight_N = None if weight_N is None else torch.zeros_like(weight_N)
        served = {expert for expert, _ in ctx.slices}
        for expert in set(range(len(up_EDF))) - served:
            of_up[expert], of_down[expert] = 0, 0
        saved = iter(hidden)
        for expert, own in ctx.slices:
            which = own if order_N is None else order_N[own]
            x_RD, before_RF, after_RF = next(saved), next(saved), next(saved)
            gradient_RD = _fetched(gradient_ND, which, 1, up_EDF[expert])
            if of_weight_N is not None:
                made_ND, own_ND = next(saved), gradient_RD[: own.stop - own.start]
                of_weight_N[which] = (own_ND * made_ND).sum(1).to(of_weight_N.dtype)
                own_ND *= weight_N[which].to(own_ND.dtype)[:, None]
            of_hidden_RF = torch.ops.aten.gelu_backward(matmul(gradient_RD, down_EFD[expert].T), before_RF)
            outer_into(after_RF, gradient_RD, of_down[expert])
            outer_into(x_RD, of_hidden_RF, of_up[expert])
            _put(of_x_ND, which, matmul(of_hidden_RF, up_EDF[expert].T)[: own.stop - own.start])
        of_x = of_x_ND if ctx.k <= 1 else of_x_ND.view(len(x), ctx.k, -1).sum(1)
        return of_x, of_up, of_down, None, None, of_weight_N


def _rows_like(x: Tensor, rows: int, all_served: bool) -> Tensor:
    """Room for rows like those of x: zeros, unless experts write every one of them."""
    return (x.new_empty if all_served else x.new_zeros)(rows, x.shape[1])


def _fetched(x: Tensor, which: slice | Tensor, k: int, up_DF: Tensor) -> Tensor:
    """The rows of one expert: of sorted rows a slice, otherwise those of its assignments, of which a token has k."""
    x_RD = x[which] if isinstance(which, slice) else x.index_select(0, which if k == 1 else which // k)
    missing = -len(x_RD) % ROWS
    return F.pad(x_RD, (0, 0, 0, missing)) if missing and prefers_onednn(x_RD, up_DF) else x_RD


def _put(out_ND: Tensor, which: slice | Tensor, rows_ND: Tensor) -> None:
    if isinstance(which, slice):
        out_ND[which] = rows_ND
    else:
        out_ND.index_copy_(0, which, rows_ND)


def _slices(offsets_E: Tensor) -> Iterator[tuple[int, slice]]:
    """(expert, its rows), experts without rows left out."""
    for expert, (begin, end) in enumerate(pairwise([0, *offsets_E.tolist()])):
        if begin < end:
            yield expert, slice(begin, end)
