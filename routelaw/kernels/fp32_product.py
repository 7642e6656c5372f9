"""A linear map of bfloat16 numbers with a result in float32, for routers: as exact as if all were widened, and quick.

A product of two bfloat16 numbers fits into float32, and tensor cores add in float32: widening both sides first computes
the same, many times slower. In the backward pass the gradient is float32. It is split into two bfloat16 numbers, which
hold 16 of its 24 bits, and both are multiplied at once, so that what comes out is rounded to bfloat16 once, as any
gradient is. On a CPU, and in other precisions, everything is widened.

Shapes: T tokens, D and E widths, G = 2E.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def fp32_linear(x_TD: Tensor, weight_ED: Tensor) -> Tensor:
    """x·weightᵀ in float32, or float64 where x is."""
    if x_TD.is_cuda and x_TD.dtype == weight_ED.dtype == torch.bfloat16:
        return bf16_linear(x_TD, weight_ED)
    wide = torch.promote_types(x_TD.dtype, torch.float32)
    return F.linear(x_TD.to(wide), weight_ED.to(wide))


@torch.library.custom_op("routelaw::bf16_linear", mutates_args=())
def bf16_linear(x_TD: Tensor, weight_ED: Tensor) -> Tensor:
    """A bfloat16 product with a float32 result."""
    return _product(x_TD, weight_ED.T)


@bf16_linear.register_fake
def _(x_TD: Tensor, weight_ED: Tensor) -> Tensor:
    return x_TD.new_empty(x_TD.shape[0], weight_ED.shape[0], dtype=torch.float32)


@torch.library.custom_op("routelaw::in_two", mutates_args=())
def in_two(gradient_TE: Tensor) -> Tensor:
    """(T, 2E) of bfloat16: what it is rounded to, and of what is left the same. A compiler that looked inside would
    not round between the two, and nothing would be left."""
    high_TE = gradient_TE.to(torch.bfloat16)
    return torch.cat([high_TE, (gradient_TE - high_TE).to(torch.bfloat16)], 1)


@in_two.register_fake
def _(gradient_TE: Tensor) -> Tensor:
    return gradient_TE.new_empty(gradient_TE.shape[0], 2 * gradient_TE.shape[1], dtype=torch.bfloat16)


@torch.library.custom_op("routelaw::bf16_linear_weight_gradient", mutates_args=())
def weight_gradient(both_TG: Tensor, x_TD: Tensor) -> Tensor:
    """The weight's gradient, from a gradient that comes in two parts."""
    high_ED, low_ED = _product(both_TG.T, x_TD).chunk(2)
    return (high_ED + low_ED).to(x_TD.dtype)


@weight_gradient.register_fake
def _(both_TG: Tensor, x_TD: Tensor) -> Tensor:
    return x_TD.new_empty(both_TG.shape[1] // 2, x_TD.shape[1])


def _product(a: Tensor, b: Tensor) -> Tensor:
    if a.is_cuda:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.to(torch.float32) @ b.to(torch.float32)  # for tests


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, gradient_TE: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x_TD, weight_ED = ctx.saved_tensors
    both_TG = in_two(gradient_TE)
    of_x = both_TG @ torch.cat([weight_ED, weight_ED]) if ctx.needs_input_grad[0] else None
    return of_x, weight_gradient(both_TG, x_TD) if ctx.needs_input_grad[1] else None


bf16_linear.register_autograd(_backward, setup_context=_keep)
