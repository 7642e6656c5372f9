"""One matrix product per expert over rows that are sorted by expert, as one operation to a compiler.

In bfloat16 on a GPU that is `grouped_mm`, with ends that never leave the device, and on Hopper kernels of our own where
experts have few rows each (kernels/few_rows_triton.py); elsewhere one plain product per slice, written straight into
the result. (On a CPU `grouped_mm` has no float64, wants aligned strides, and was measured within
5 % of the plain way from width 128 on.) A compiler fuses what stands before and after; it does not look inside, since a
loop over slices it cannot follow.

Rows beyond the last end mean nothing: `grouped_mm` leaves them unwritten, in results and gradients. The weight gradient
of an expert without rows is zero on Hopper; on later chips torch leaves it unwritten, too (pytorch#172439), so there it
is cleared.

Shapes: N rows, D and F widths, E experts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

HOPPER = 9
FEW = 128
"""Rows to an expert on average up to which our kernels take over: with 128 of each of 512 experts they were quicker
than torch's, with 256 of each of 256 they were not. With Zipf's skew of .7 over 512 experts a layer of width 1024 is
still quicker by a tenth, one of width 512 slower by 3 % (LOG.md). Both round alike but for the order of sums."""
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


@torch.library.custom_op("routelaw::grouped_product", mutates_args=())
def grouped_product(x_ND: Tensor, weight_EDF: Tensor, ends_E: Tensor) -> Tensor:
    """Rows of expert e (those from end e−1 to end e) times weight e. ends_E is int32."""
    if takes_groups(x_ND):
        if few_rows(x_ND, *weight_EDF.shape):
            from routelaw.kernels.few_rows_triton import rows_product

            return rows_product(x_ND, weight_EDF, ends_E)
        return F.grouped_mm(x_ND, weight_EDF, offs=ends_E)
    y_NF = x_ND.new_empty(x_ND.shape[0], weight_EDF.shape[2])
    ends = [0, *ends_E.tolist()]
    for expert, (a, b) in enumerate(pairwise(ends)):
        torch.mm(x_ND[a:b], weight_EDF[expert], out=y_NF[a:b])
    y_NF[ends[-1] :] = 0
    return y_NF


@grouped_product.register_fake
def _(x_ND: Tensor, weight_EDF: Tensor, ends_E: Tensor) -> Tensor:
    return x_ND.new_empty(x_ND.shape[0], weight_EDF.shape[2])


@torch.library.custom_op("routelaw::grouped_weight_gradient", mutates_args=())
def grouped_weight_gradient(x_ND: Tensor, y_NF: Tensor, ends_E: Tensor) -> Tensor:
    """(E, D, F): of every expert's rows, transposed, times their gradients."""
    if takes_groups(x_ND):
        if few_rows(x_ND, len(ends_E), x_ND.shape[1], y_NF.shape[1]):
            from routelaw.kernels.few_rows_triton import weight_gradient

            return weight_gradient(x_ND, y_NF, ends_E)
        of_weight = F.grouped_mm(x_ND.T, y_NF, offs=ends_E)
        if leaves_empty_groups():
            empty_E = ends_E.diff(prepend=ends_E.new_zeros(1)) == 0
            of_weight.masked_fill_(empty_E[:, None, None], 0)
        return of_weight
    of_weight = x_ND.new_empty(len(ends_E), x_ND.shape[1], y_NF.shape[1])
    for expert, (a, b) in enumerate(pairwise([0, *ends_E.tolist()])):
        torch.mm(x_ND[a:b].T, y_NF[a:b], out=of_weight[expert])
    return of_weight


@grouped_weight_gradient.register_fake
def _(x_ND: Tensor, y_NF: Tensor, ends_E: Tensor) -> Tensor:
    return x_ND.new_empty(ends_E.shape[0], x_ND.shape[1], y_NF.shape[1])


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x_ND, weight_EDF, ends_E = ctx.saved_tensors
    gradient_NF = gradient_NF.contiguous()
    of_x, of_weight = None, None
    if ctx.needs_input_grad[0]:
        of_x = grouped_product(gradient_NF, weight_EDF.transpose(1, 2), ends_E)
    if ctx.needs_input_grad[1]:
        of_weight = grouped_weight_gradient(x_ND, gradient_NF, ends_E)
    return of_x, of_weight, None


grouped_product.register_autograd(_backward, setup_context=_keep)
