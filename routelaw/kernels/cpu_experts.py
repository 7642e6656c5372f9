"""The feed-forward networks of experts on a CPU: one expert after the other, each from its rows to its sums.

An expert's hidden units are used while they are in the cache, and never written next to those of the others. Experts
have other numbers of rows at every step, and oneDNN compiles a kernel for every shape that it meets (0.4 ms; it keeps
1,024). So where oneDNN is used the rows of an expert are filled up with zeros to a multiple of `ROWS`.

Shapes: N rows sorted by expert, R those of one expert and zeros, D width, F hidden, E experts.
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
    """gelu(x · up) · down of every row by its expert; zero for rows after the last end."""
    return _ExpertFfw.apply(x_ND, up_EDF, down_EFD, offsets_E)  # pyrefly: ignore


class _ExpertFfw(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, up_EDF: Tensor, down_EFD: Tensor, offsets_E: Tensor) -> Tensor:
        ctx.slices = list(_slices(offsets_E))
        out_ND = _room_for_rows(x_ND, ctx.slices)
        hidden = []  # before and after the activation, by expert
        for expert, own in ctx.slices:
            before_RF = matmul(_filled_up(x_ND[own], up_EDF[expert]), up_EDF[expert])
            after_RF = F.gelu(before_RF)
            out_ND[own] = matmul(after_RF, down_EFD[expert])[: own.stop - own.start]
            hidden += [before_RF, after_RF]
        ctx.save_for_backward(x_ND, up_EDF, down_EFD, *hidden)
        return out_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore
        x_ND, up_EDF, down_EFD, *hidden = ctx.saved_tensors
        of_x, of_up, of_down = _room_for_rows(x_ND, ctx.slices), torch.empty_like(up_EDF), torch.empty_like(down_EFD)
        served = {expert for expert, _ in ctx.slices}
        for expert in set(range(len(up_EDF))) - served:
            of_up[expert], of_down[expert] = 0, 0
        for (expert, own), before_RF, after_RF in zip(ctx.slices, hidden[::2], hidden[1::2], strict=True):
            x_RD, gradient_RD = (_filled_up(of_ND[own], up_EDF[expert]) for of_ND in (x_ND, gradient_ND))
            of_hidden_RF = torch.ops.aten.gelu_backward(matmul(gradient_RD, down_EFD[expert].T), before_RF)
            outer_into(after_RF, gradient_RD, of_down[expert])
            outer_into(x_RD, of_hidden_RF, of_up[expert])
            of_x[own] = matmul(of_hidden_RF, up_EDF[expert].T)[: own.stop - own.start]
        return of_x, of_up, of_down, None


def _room_for_rows(x_ND: Tensor, slices: list[tuple[int, slice]]) -> Tensor:
    """A tensor like x, zero in the rows after those of the last expert."""
    rows_ND = torch.empty_like(x_ND)
    rows_ND[slices[-1][1].stop if slices else 0 :] = 0
    return rows_ND


def _slices(offsets_E: Tensor) -> Iterator[tuple[int, slice]]:
    """(expert, its rows), experts without rows left out."""
    for expert, (begin, end) in enumerate(pairwise([0, *offsets_E.tolist()])):
        if begin < end:
            yield expert, slice(begin, end)


def _filled_up(x_RD: Tensor, up_DF: Tensor) -> Tensor:
    missing = -len(x_RD) % ROWS
    return F.pad(x_RD, (0, 0, 0, missing)) if missing and prefers_onednn(x_RD, up_DF) else x_RD
