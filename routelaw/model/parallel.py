"""Where a process stands among those that compute one model together, and what they exchange.

Gradients are those of the sum over all processes: a token's loss counts once, wherever it was computed. Two pairs of
operations keep tensor-parallel processes, which hold the same tokens, in step (Shoeybi et al. 2019): `copy_to_group` is
the identity whose gradient is summed over them, `reduce_from_group` sums values and passes gradients on. All others
hold different tokens and talk by all-to-all, whose gradient is the all-to-all back.

Shapes: N rows, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class Group:
    """Some processes, and this one among them; a group of one has no process group and sends nothing."""

    process_group: ProcessGroup | None = None
    rank: int = 0
    size: int = 1

    def all_sum(self, value: Tensor) -> Tensor:
        """The sum over the group, in place; without a gradient."""
        if self.process_group is not None:
            dist.all_reduce(value, group=self.process_group)
        return value

    def copy_to_group(self, x: Tensor) -> Tensor:
        return x if self.process_group is None else _CopyToGroup.apply(x, self.process_group)  # pyrefly: ignore

    def reduce_from_group(self, x: Tensor) -> Tensor:
        return x if self.process_group is None else _ReduceFromGroup.apply(x, self.process_group)  # pyrefly: ignore

    def exchange(self, x_ND: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Rows in the order of their destination for rows in the order of their origin."""
        if self.process_group is None:
            return x_ND
        return _Exchange.apply(x_ND, list(sent), list(received), self.process_group)  # pyrefly: ignore


SINGLE = Group()


@dataclass(frozen=True)
class Parallel:
    """The groups of one process; alone by default."""

    batch: Group = SINGLE
    """data × expert: each holds a part of the batch, all hold the same other parameters."""
    data: Group = SINGLE
    """Those that hold the same experts."""
    expert: Group = SINGLE
    """Those that hold different experts of a layer."""
    tensor: Group = SINGLE
    """Those that hold the same tokens and different heads and hidden units."""

    @property
    def alone(self) -> bool:
        return self.batch.size * self.tensor.size == 1

    def any_says(self, so: bool, device: torch.device | str = "cpu") -> bool:
        """Whether any process does: what one alone hears, a signal say, all must act upon in the same step."""
        if self.alone:
            return so
        return bool(self.tensor.all_sum(self.batch.all_sum(torch.tensor(float(so), device=device))))


ALONE = Parallel()


class _CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        x = x.contiguous().clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        return gradient, None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return exchanged(x_ND, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor, None, None, None]:  # pyrefly: ignore
        return exchanged(gradient_ND, ctx.received, ctx.sent, ctx.group), None, None, None


def exchanged(x_ND: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
    out_ND = x_ND.new_empty(sum(received), *x_ND.shape[1:])
    dist.all_to_all_single(out_ND, x_ND.contiguous(), received, sent, group=group)
    return out_ND
