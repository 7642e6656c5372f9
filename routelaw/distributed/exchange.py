"""Rows of tokens on their way to the processes that have their experts, and back.

Rows are sorted by expert, so those for one process are a slice of them. What arrives is sorted by origin first and by
expert second; a permutation makes an expert's rows one slice again.

Shapes: N rows, D width, X processes of the group, E experts of one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from routelaw.distributed.groups import Group


class _Permute(torch.autograd.Function):
    """Nothing in place: of what a function changes in its forward, torch 2.11 compiles a gradient of zero."""

    @staticmethod
    def forward(x_N: Tensor, order_N: Tensor, inverse_N: Tensor) -> Tensor:
        return x_N.index_select(0, order_N)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor) -> tuple[Tensor, None, None]:  # pyrefly: ignore
        (inverse_N,) = ctx.saved_tensors
        return gradient_N.index_select(0, inverse_N), None, None


def permuted(x_N: Tensor, order_N: Tensor, inverse_N: Tensor | None = None) -> Tensor:
    """Rows in the order given, which is a permutation; the gradient is its inverse, not a scatter."""
    return _Permute.apply(x_N, order_N, torch.argsort(order_N) if inverse_N is None else inverse_N)  # pyrefly: ignore


@dataclass(frozen=True)
class ExchangePlan:
    group: Group
    sent: list[int]
    """Rows for each process."""
    received: list[int]
    order_N: Tensor
    inverse_N: Tensor
    sorted_expert_N: Tensor
    """Local expert of each row, once sorted."""
    counts_E: Tensor
    """Rows of each local expert."""

    def send(self, rows_ND: Tensor) -> Tensor:
        arrived_ND = self.group.exchange(rows_ND[: sum(self.sent)], self.sent, self.received)
        return permuted(arrived_ND, self.order_N, self.inverse_N)

    def send_back(self, made_ND: Tensor, rows: int) -> Tensor:
        """As many rows as were there; those that were dropped, at the end, are zero."""
        by_origin_ND = permuted(made_ND, self.inverse_N, self.order_N)
        home_ND = self.group.exchange(by_origin_ND, self.received, self.sent)  # pyrefly: ignore
        return F.pad(home_ND, (0, 0, 0, rows - home_ND.shape[0]))


def exchange_plan(counts_XE: Tensor, group: Group) -> ExchangePlan:
    """From how many rows this process has for each expert of each process; all processes tell each other."""
    arriving_XE = torch.empty_like(counts_XE)
    dist.all_to_all_single(arriving_XE, counts_XE.contiguous(), group=group.process_group)
    expert_XE = torch.arange(counts_XE.shape[1], device=counts_XE.device).expand_as(arriving_XE)
    expert_N = torch.repeat_interleave(expert_XE.reshape(-1), arriving_XE.reshape(-1))
    order_N = torch.argsort(expert_N, stable=True)
    inverse_N = torch.empty_like(order_N)
    inverse_N[order_N] = torch.arange(len(order_N), device=order_N.device)
    sent, received = (counts_XE.sum(1).tolist() for counts_XE in (counts_XE, arriving_XE))
    return ExchangePlan(group, sent, received, order_N, inverse_N, expert_N[order_N], arriving_XE.sum(0))


@dataclass(frozen=True)
class Shuffle:
    group: Group
    token_T: Tensor
    """Global numbers of the tokens that this process routes."""
    outgoing_T: Tensor
    """Own tokens in the order of their destination."""
    incoming_T: Tensor
    """Arrivals in the order of the groups."""
    sent: list[int]
    received: list[int]

    def send(self, x_TD: Tensor) -> Tensor:
        arrived_TD = self.group.exchange(permuted(x_TD, self.outgoing_T), self.sent, self.received)
        return permuted(arrived_TD, self.incoming_T)

    def restore(self, x_TD: Tensor) -> Tensor:
        by_origin_TD = permuted(x_TD, torch.argsort(self.incoming_T))
        back_TD = self.group.exchange(by_origin_TD, self.received, self.sent)
        return permuted(back_TD, torch.argsort(self.outgoing_T))


def plan_shuffle(key_B: Tensor, first_token: Tensor, span: int, group: Group) -> Shuffle:
    """From the random keys of a whole block, in the order of its tokens, of which the first has this number."""
    T = len(key_B) // span
    place = group.rank % span
    order_B = torch.argsort(key_B, stable=True)
    position_B = torch.argsort(order_B)  # where each token of the block goes
    mine = slice(place * T, (place + 1) * T)
    outgoing_T = torch.argsort(position_B[mine])
    source_T = order_B[mine] // T
    incoming_T = torch.argsort(torch.argsort(source_T, stable=True))
    begin = group.rank - place
    sent, received = [0] * group.size, [0] * group.size
    sent[begin : begin + span] = torch.bincount(position_B[mine] // T, minlength=span).tolist()
    received[begin : begin + span] = torch.bincount(source_T, minlength=span).tolist()
    return Shuffle(group, first_token + order_B[mine], outgoing_T, incoming_T, sent, received)
