"""float32 on a CPU: matrix products by whichever library of torch's is the quicker one, and the experts' FFWs.

torch multiplies float32 matrices with MKL, which uses AVX-512 on Intel's processors alone. On an AMD EPYC with AVX-512,
oneDNN (which torch ships too, for convolutions and bfloat16) was 2.2 times as fast: 220 GFLOP/s on a core where MKL
reached 98 (2026-11-18, torch 2.13). So there, large products go to oneDNN. The choice depends on the processor and on
the shapes alone, never on a measurement: a resumed run must take the same path to be bit-identical.

Whatever else arrives (other types, GPUs, small products, what a compiler traces) is left to torch.

The feed-forward networks of experts run one expert after the other, each from its rows to its sums. An expert's hidden
units are used while they are in the cache, and never written next to those of the others. Where the rows are still
those of the tokens, an expert also fetches, weights and returns its own (`routed_ffw`), so no pass over all rows is
needed for that. Experts have other numbers of rows at every step, and oneDNN compiles a kernel for every shape that it
meets (0.4 ms; it keeps 1,024). So where oneDNN is used the rows of an expert are filled up with zeros to a multiple of
`ROWS`.

Shapes: T tokens or rows, K choices, N = T·K rows, R those of one expert and zeros, D width, F hidden, E experts.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

FEWEST_PRODUCTS = 2**21
"""Multiplications from which oneDNN pays (its call costs 15 µs): at 2²² it was 1.5 to 2.2 times as fast, at 2²⁰ not."""
FEWEST_IN_OUTER = 2**23
"""The same for gradients of weights."""


@cache
def has_faster_onednn() -> bool:
    """Whether float32 products of oneDNN are faster here than torch's own: AVX-512 that MKL leaves unused."""
    return (
        torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and cpu_vendor() == "AuthenticAMD"
    )


def cpu_vendor() -> str:
    """The processor's own name for its maker, GenuineIntel or AuthenticAMD on x86; empty if unknown."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("vendor_id"):
                return line.partition(":")[2].strip()
    except OSError:  # not Linux
        return next((name for name in ("GenuineIntel", "AuthenticAMD") if name in platform.processor()), "")
    return ""


def linear(x: Tensor, weight_FD: Tensor) -> Tensor:
    """x · weightᵀ over the last dimension of x, with gradients: `F.linear`, possibly quicker."""
    if _is_eager_float32(x) and _uses_onednn(x.numel() // x.shape[-1], *weight_FD.shape):
        return _Linear.apply(x.flatten(0, -2), weight_FD).unflatten(0, x.shape[:-1])  # pyrefly: ignore
    return F.linear(x, weight_FD)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of two matrices, without gradients: `torch.mm`, possibly quicker."""
    return _onednn(a, b) if prefers_onednn(a, b) else torch.mm(a, b)


def matmul_into(a: Tensor, b: Tensor, out: Tensor) -> None:
    """The same, written to where it is wanted."""
    if prefers_onednn(a, b):
        out.copy_(_onednn(a, b))
    else:
        torch.mm(a, b, out=out)


def outer(x_TD: Tensor, y_TF: Tensor) -> Tensor:
    """xᵀ·y, without gradients: what weights get as theirs. oneDNN copies its transposed factor: the narrower one."""
    if not _is_eager_float32(x_TD) or not _uses_onednn(x_TD.shape[1], *y_TF.shape, fewest=FEWEST_IN_OUTER):
        return x_TD.T @ y_TF
    if x_TD.shape[1] <= y_TF.shape[1]:
        return _onednn(x_TD.T, y_TF)
    return _onednn(y_TF.T, x_TD).T


def outer_into(x_RD: Tensor, y_RF: Tensor, out_DF: Tensor) -> None:
    """xᵀ·y, written to where it is wanted; zero where there are no rows."""
    if _is_eager_float32(x_RD) and _uses_onednn(x_RD.shape[1], *y_RF.shape, fewest=FEWEST_IN_OUTER):
        out_DF.copy_(_onednn(x_RD.T, y_RF))
    else:
        torch.mm(x_RD.T, y_RF, out=out_DF)


def prefers_onednn(a: Tensor, b: Tensor) -> bool:
    rows, inner = a.shape
    return _is_eager_float32(a) and _uses_onednn(rows, inner, b.shape[1])


def _is_eager_float32(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and not torch.compiler.is_compiling()


def _uses_onednn(rows: int, inner: int, columns: int, fewest: int = FEWEST_PRODUCTS) -> bool:
    return rows * inner * columns >= fewest and has_faster_onednn()


def _onednn(a: Tensor, b: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b.T, None, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, weight_FD: Tensor) -> Tensor:
        ctx.save_for_backward(x_TD, weight_FD)
        return matmul(x_TD, weight_FD.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_TF: Tensor) -> tuple[Tensor | None, Tensor | None]:  # pyrefly: ignore
        x_TD, weight_FD = ctx.saved_tensors
        of_x, of_weight = ctx.needs_input_grad
        return matmul(gradient_TF, weight_FD) if of_x else None, outer(gradient_TF, x_TD) if of_weight else None


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
