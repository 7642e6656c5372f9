"""One matrix product per expert over rows that are sorted by expert, as one operation to a compiler.

In bfloat16 on a GPU that is `grouped_mm`, with ends that never leave the device, and on Hopper kernels of our own where
experts have few rows each (kernels/few_rows_triton.py); elsewhere one plain product per slice, written straight into
the result. (On a CPU `grouped_mm` has no float64, wants aligned strides, and was measured within
5 % of the plain way from width 128 on.) A compiler fuses what stands before and after; it does not look inside, since a
loop over slices it cannot follow. Eager on a CPU the experts are kernels/cpu_float32.py, and no such operation is
needed: calling one imports the compiler and costs as much as a product of a small model does.

Rows beyond the last end mean nothing: `grouped_mm` leaves them unwritten, in results and gradients. The weight gradient
of an expert without rows is zero on Hopper; on later chips torch leaves it unwritten, too (pytorch#172439), so there it
is cleared.

Shapes: N rows, D and F widths, E experts.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from routelaw.kernels.cpu_float32 import matmul_into, outer_into

HOPPER = 9
FEW = 128
"""Rows to an expert on average up to which our kernels take over: with 128 of each of 512 experts they were quicker
than torch's, with 256 of each of 256 they were not. With Zipf's skew of 0.7 over 512 experts a layer of width 1024 is
still quicker by a tenth, one of width 512 slower by 3 % (docs/log). Both round alike but for the order of sums."""
WIDTHS = 128
"""What a width must be a multiple of for them."""


def takes_groups(x: Tensor) -> bool:
    """Whether torch has a grouped product for such numbers there."""
    return x.is_cuda and x.dtype == torch.bfloat16


def leaves_empty_groups() -> bool:
    """Whether torch's grouped product writes nothing for a group without rows."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] > HOPPER


def few_rows(x_ND: Tensor, experts: int, *widths: int) -> bool:
    """Whether such a product is for our kernels, on a GPU that has what they load by."""
    fits = 0 < len(x_ND) <= FEW * experts and all(width % WIDTHS == 0 for width in widths)
    return fits and torch.version.hip is None and torch.cuda.get_device_capability(x_ND.device)[0] == HOPPER


def grouped_product(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    """Rows of expert e (those from end e−1 to end e) times weight e. offsets_E is int32."""
    if x_ND.is_cuda or torch.compiler.is_compiling():
        return grouped_product_op(x_ND, weight_EDF, offsets_E)
    return _SliceProducts.apply(x_ND, weight_EDF, offsets_E)  # pyrefly: ignore


def product_by_slice(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    y_NF = x_ND.new_empty(x_ND.shape[0], weight_EDF.shape[2])
    ends = [0, *offsets_E.tolist()]
    for expert, (a, b) in enumerate(pairwise(ends)):
        if a < b:
            matmul_into(x_ND[a:b], weight_EDF[expert], y_NF[a:b])
    y_NF[ends[-1] :] = 0
    return y_NF


def weight_gradient_by_slice(x_ND: Tensor, y_NF: Tensor, offsets_E: Tensor) -> Tensor:
    gradient_EDF = x_ND.new_empty(len(offsets_E), x_ND.shape[1], y_NF.shape[1])
    for expert, (a, b) in enumerate(pairwise([0, *offsets_E.tolist()])):
        outer_into(x_ND[a:b], y_NF[a:b], gradient_EDF[expert])  # zero where there are no rows
    return gradient_EDF


class _SliceProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
        ctx.save_for_backward(x_ND, weight_EDF, offsets_E)
        return product_by_slice(x_ND, weight_EDF, offsets_E)

    @staticmethod
    def backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyrefly: ignore
        return _gradients(ctx, gradient_NF, product_by_slice, weight_gradient_by_slice)


@torch.library.custom_op("routelaw::grouped_product", mutates_args=())
def grouped_product_op(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    """What `grouped_product` is on a GPU, and to a compiler."""
    if not takes_groups(x_ND):
        return product_by_slice(x_ND, weight_EDF, offsets_E)
    if few_rows(x_ND, *weight_EDF.shape):
        from routelaw.kernels.few_rows_triton import rows_product

        return rows_product(x_ND, weight_EDF, offsets_E)
    return F.grouped_mm(x_ND, weight_EDF, offs=offsets_E)


@grouped_product_op.register_fake
def _(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    return x_ND.new_empty(x_ND.shape[0], weight_EDF.shape[2])


@torch.library.custom_op("routelaw::grouped_weight_gradient", mutates_args=())
def grouped_weight_gradient(x_ND: Tensor, y_NF: Tensor, offsets_E: Tensor) -> Tensor:
    """(E, D, F): of every expert's rows, transposed, times their gradients."""
    if not takes_groups(x_ND):
        return weight_gradient_by_slice(x_ND, y_NF, offsets_E)
    if few_rows(x_ND, len(offsets_E), x_ND.shape[1], y_NF.shape[1]):
        from routelaw.kernels.few_rows_triton import weight_gradient

        return weight_gradient(x_ND, y_NF, offsets_E)
    of_weight = F.grouped_mm(x_ND.T, y_NF, offs=offsets_E)
    if leaves_empty_groups():
        empty_E = offsets_E.diff(prepend=offsets_E.new_zeros(1)) == 0
        of_weight.masked_fill_(empty_E[:, None, None], 0)
    return of_weight


@grouped_weight_gradient.register_fake
def _(x_ND: Tensor, y_NF: Tensor, offsets_E: Tensor) -> Tensor:
    return x_ND.new_empty(offsets_E.shape[0], x_ND.shape[1], y_NF.shape[1])


def _save_inputs(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    return _gradients(ctx, gradient_NF, grouped_product_op, grouped_weight_gradient)


def _gradients(
    ctx: Any, gradient_NF: Tensor, product: Callable[..., Tensor], weight_gradient: Callable[..., Tensor]
) -> tuple[Tensor | None, Tensor | None, None]:
    x_ND, weight_EDF, offsets_E = ctx.saved_tensors
    gradient_NF = gradient_NF.contiguous()
    of_x, of_weight = None, None
    if ctx.needs_input_grad[0]:
        of_x = product(gradient_NF, weight_EDF.transpose(1, 2), offsets_E)
    if ctx.needs_input_grad[1]:
        of_weight = weight_gradient(x_ND, gradient_NF, offsets_E)
    return of_x, of_weight, None


grouped_product_op.register_autograd(_backward, setup_context=_save_inputs)
