"""AdamW's update of one tensor in one pass over memory: clip, moments, step, decay, and the bf16 copy that computes.

A compiler makes one kernel of it, for tensors of any length. It reads gradients as they are, bf16 or fp32, and where
the step is not finite it writes back what it read, so that nobody has to ask the device. Per element it moves 30 bytes
in bfloat16 with float32 masters, where a gradient converted to float32, a norm over it and torch's fused AdamW move 42.

Moments may be held in bfloat16: for very large E they are half of all memory. They are then rounded at random, up with
the probability of what is cut off, since rounding to nearest would never move a moment by less than 1/256 of itself
(β₂ = 0.95 moves it by 1/20 of a difference). The random bits are a function of (step, place), so a step can be
repeated.

Shapes: N elements of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from routelaw.routers.router import mix

EPSILON = 1e-8
CUT = 16
"""Bits that bfloat16 lacks of float32."""


@dataclass(frozen=True)
class ParameterState:
    """One parameter, its gradient and its statistics."""

    master: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    bf16: Tensor | None
    """The copy that computes, where there is one."""


@dataclass(frozen=True)
class UpdateScalars:
    """Scalars of a step, on the device: the same for all tensors."""

    rate: Tensor
    scale: Tensor
    """What clips the gradients."""
    finite: Tensor
    taken: Tensor
    """Steps, this one included, as a float."""
    unbias_mean: Tensor
    """1/(1 − β₁^taken): worked out once, since a kernel would do it for every element."""
    unbias_square: Tensor

    @classmethod
    def of(
        cls, rate: Tensor, scale: Tensor, finite: Tensor, taken: Tensor, beta1: float, beta2: float
    ) -> UpdateScalars:
        return cls(rate, scale, finite, taken, 1 / (1 - beta1**taken), 1 / (1 - beta2**taken))


def update(state: ParameterState, scalars: UpdateScalars, decay: Tensor, beta1: float, beta2: float) -> None:
    """Update flat tensors."""
    master_N, gradient_N, mean_N, square_N = state.master, state.gradient, state.mean, state.square
    rate, scale, finite, taken = scalars.rate, scalars.scale, scalars.finite, scalars.taken
    gradient = gradient_N.to(torch.float32) * scale
    mean = beta1 * mean_N.to(torch.float32) + (1 - beta1) * gradient
    square = beta2 * square_N.to(torch.float32) + (1 - beta2) * gradient * gradient
    deviation = (square * scalars.unbias_square).sqrt() + EPSILON
    master = master_N * (1 - rate * decay) - rate * scalars.unbias_mean * mean / deviation
    if mean_N.dtype != torch.float32:
        place_N = torch.arange(len(master_N), device=master_N.device, dtype=torch.int64)
        bits_N = mix(place_N ^ mix(taken.to(torch.int64)))
        mean, square = rounded_at_random(mean, bits_N), rounded_at_random(square, bits_N >> CUT)
    mean_N.copy_(torch.where(finite, mean.to(mean_N.dtype), mean_N))
    square_N.copy_(torch.where(finite, square.to(square_N.dtype), square_N))
    master = torch.where(finite, master, master_N)
    master_N.copy_(master)
    if state.bf16 is not None:
        state.bf16.copy_(master)


def rounded_at_random(value_N: Tensor, bits_N: Tensor) -> Tensor:
    """float32 with the low half cut off after something random was added to it: exact in bfloat16."""
    cut = (1 << CUT) - 1
    raised_N = value_N.view(torch.int32) + (bits_N & cut).to(torch.int32)
    return (raised_N & ~cut).view(torch.float32)


@cache
def _compiled() -> Callable[..., None]:
    return torch.compile(update, dynamic=False, fullgraph=True)


def apply(state: ParameterState, scalars: UpdateScalars, decay: Tensor, beta1: float, beta2: float) -> None:
    bf16 = None if state.bf16 is None else _flat(state.bf16)
    flat = ParameterState(_flat(state.master), _flat(state.gradient), _flat(state.mean), _flat(state.square), bf16)
    (_compiled() if state.master.is_cuda else update)(flat, scalars, decay, beta1, beta2)


def _flat(tensor: Tensor) -> Tensor:
    """A flat view whose length the compiler takes for one of many."""
    flat_N = tensor.detach().contiguous().view(-1)
    torch._dynamo.maybe_mark_dynamic(flat_N, 0)
    return flat_N
