"""Matrix products in float32 on a CPU, by whichever library of torch's is the quicker one.

torch multiplies float32 matrices with MKL, which uses AVX-512 on Intel's processors alone. On an AMD EPYC with AVX-512,
oneDNN (which torch ships too, for convolutions and bfloat16) was 2.2 times as fast: 220 GFLOP/s on a core where MKL
reached 98 (2026-11-18, torch 2.13). So there, large products go to oneDNN. The choice depends on the processor and on
the shapes alone, never on a measurement: a resumed run must take the same path to be bit-identical.

Whatever else arrives (other types, GPUs, small products, what a compiler traces) is left to torch.

Shapes: T rows, D and F widths.
"""

from __future__ import annotations

import platform
from functools import cache
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
