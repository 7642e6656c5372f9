"""The experts of a layer: dispatch by sorted assignment, one grouped matrix product per weight, combine.

Assignments are sorted by expert, dropped ones last, so an expert's tokens are a slice of the rows (grouped_product.py).
The rows of dropped assignments may be uninitialised, forwards and backwards. They are masked where they would get out:
before they are weighted and in the gradient of dispatch, never multiplied by zero.

Spread over processes, each has some of the experts (whole layers of them where nothing is spread): sorted rows are
already in the order of the processes they go to, one all-to-all takes them there and another one back. Tensor-parallel
processes have their share of every expert's hidden units.

Gathering rows has a scatter as its gradient; here both directions are permutations and sums over a fixed axis, which
makes them deterministic at any number of threads.

In training an expert takes at most ⌈C·T·K/E⌉ of the T tokens of a routing group; the surplus is dropped at random.
Experts may share their slots (those of one device, in the paper). Shapes stay static: the result is a mask.

Shapes: T tokens, D width, F = 4D hidden, E experts, K choices, N = T·K assignments (token-major), P pools: the groups'
sets of experts that share slots.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routelaw.distributed.exchange import exchange_plan, permuted
from routelaw.distributed.groups import SINGLE, Group
from routelaw.kernels.cpu_float32 import expert_ffw, linear, routed_ffw
from routelaw.kernels.dispatch import expert_order, summed_rows
from routelaw.model.grouped_product import grouped_product, takes_groups
from routelaw.routers.router import RouteContext, Routing

DROP_PURPOSE = 101
"""Distinguishes this use of the layer's random numbers from the router's own."""
PRIORITY_BITS = 40
"""Bits of the random number that decides who is dropped; the number of the pool stands above them."""


def slots(capacity_factor: float, group_tokens: int, k: int, experts: int) -> int:
    """⌈C·T·K/E⌉ of C as written: 1.1·200/4 is 55, which binary fractions would make 56."""
    return math.ceil(Fraction(str(capacity_factor)) * group_tokens * k / experts)


# A compiler cannot follow fractions and need not: the result is a constant. This is the mark that
# torch.compiler.assume_constant_result sets; the function itself would import the compiler, in every process.
slots._dynamo_marked_constant = True  # pyrefly: ignore


def within_capacity(
    routing: Routing, ctx: RouteContext, experts: int, k: int, capacity_factor: float, shared_slots: int = 1
) -> Tensor:
    """kept_N: valid assignments that find a slot. Evaluation and capacity_factor = 0 keep every valid one."""
    valid_N = ctx.valid_T[routing.token_N]
    groups, members = ctx.members_GM.shape
    room = slots(capacity_factor, members, k, experts) * shared_slots
    at_most = members * min(k, shared_slots)  # a token's experts are distinct
    if not ctx.training or capacity_factor == 0 or room >= at_most:
        return valid_N
    pools = experts // shared_slots
    pool_N = ctx.group_T[routing.token_N] * pools + routing.expert_N // shared_slots
    pool_N = torch.where(valid_N, pool_N, groups * pools)  # padding queues elsewhere and takes no slot
    choice_N = torch.arange(pool_N.shape[0], device=pool_N.device) % k
    random_N = ctx.random.bits(DROP_PURPOSE, ctx.token_T[routing.token_N] * k + choice_N)[:, 0]
    priority_N = (random_N >> (64 - PRIORITY_BITS)) & ((1 << PRIORITY_BITS) - 1)
    order = torch.argsort((pool_N << PRIORITY_BITS) | priority_N, stable=True)
    sorted_expert_N = pool_N[order]
    size_P = torch.zeros(groups * pools + 1, dtype=torch.int64, device=pool_N.device)
    size_P = size_P.scatter_add(0, pool_N, torch.ones_like(pool_N))
    start_P = size_P.cumsum(0) - size_P
    place_N = torch.arange(sorted_expert_N.shape[0], device=sorted_expert_N.device) - start_P[sorted_expert_N]
    kept_N = torch.empty_like(valid_N)
    kept_N[order] = place_N < room
    return kept_N & valid_N


class _Dispatch(torch.autograd.Function):
    """Rows of tokens in the order of the assignments; its gradient sums the kept rows of each token."""

    @staticmethod
    def forward(x_TD: Tensor, order_N: Tensor, inverse_N: Tensor, kept_N: Tensor) -> Tensor:
        k = order_N.shape[0] // x_TD.shape[0]
        return x_TD.index_select(0, order_N if k == 1 else order_N // k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x_TD, _, inverse_N, kept_N = inputs
        ctx.tokens = x_TD.shape[0]
        ctx.save_for_backward(inverse_N, kept_N)

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor, None, None, None]:  # pyrefly: ignore
        inverse_N, kept_N = ctx.saved_tensors
        return summed_rows(gradient_ND, inverse_N, kept_N, len(inverse_N) // ctx.tokens), None, None, None


def offsets_of(counts_E: Tensor) -> Tensor:
    """Where slices of these sizes end."""
    return counts_E.cumsum(0).to(torch.int32)


class Experts(nn.Module):
    """E feed-forward stacks. A dense FFW is the same with E = 1 and no routing."""

    def __init__(
        self, width: int, experts: int, ffws: int = 1, expert_group: Group = SINGLE, tensor: Group = SINGLE
    ) -> None:
        super().__init__()
        self.experts, self.ffws, self.group, self.tensor = experts, ffws, expert_group, tensor
        self.local = experts // expert_group.size
        hidden = 4 * width // tensor.size
        self.up = nn.ParameterList([nn.Parameter(torch.empty(self.local, width, hidden)) for _ in range(ffws)])
        self.down = nn.ParameterList([nn.Parameter(torch.empty(self.local, hidden, width)) for _ in range(ffws)])
        # The first FFW of a stack uses the block's LayerNorm; each further one has its own in every expert.
        self.norm_scale = nn.ParameterList([nn.Parameter(torch.empty(self.local, width)) for _ in range(ffws - 1)])
        self.norm_offset = nn.ParameterList([nn.Parameter(torch.empty(self.local, width)) for _ in range(ffws - 1)])

    def dense(self, normed_TD: Tensor) -> Tensor:
        """What a single FFW adds to the residual stream of every token."""
        hidden_TF = F.gelu(linear(self.tensor.copy_to_group(normed_TD), self.up[0].squeeze(0).T))
        return self.tensor.reduce_from_group(linear(hidden_TF, self.down[0].squeeze(0).T))

    def forward(self, normed_TD: Tensor, residual_TD: Tensor, routing: Routing, kept_N: Tensor) -> Tensor:
        """What the chosen experts add to the residual stream: Σ weight·expert(x), zero for dropped assignments."""
        T, D = normed_TD.shape
        N = routing.token_N.shape[0]
        order_N, inverse_N, offsets_E = expert_order(routing.expert_N, kept_N, self.experts)
        if _is_eager_on_cpu(normed_TD) and self.ffws == 1 and self.group is SINGLE and self.tensor is SINGLE:
            return routed_ffw(normed_TD, self.up[0], self.down[0], routing.weight_N, order_N, offsets_E)
        rows_ND = _Dispatch.apply(normed_TD, order_N, inverse_N, kept_N)
        residual_ND = _Dispatch.apply(residual_TD, order_N, inverse_N, kept_N) if self.ffws > 1 else None
        if self.group.process_group is not None:
            counts_E = offsets_E.to(torch.int64).diff(prepend=offsets_E.new_zeros(1, dtype=torch.int64))
            added_ND = self._expert_parallel(rows_ND, residual_ND, counts_E)  # pyrefly: ignore
        else:
            sorted_expert_N = torch.where(kept_N, routing.expert_N, self.experts).index_select(0, order_N)
            added_ND = self._apply_experts(rows_ND, residual_ND, sorted_expert_N, offsets_E)
        dropped_N = torch.arange(N, device=offsets_E.device) >= offsets_E[-1]
        added_ND = added_ND.masked_fill(dropped_N[:, None], 0)
        if routing.weight_N is not None:  # before they go back: gradients of both then take one pass over the rows
            weight_N = permuted(routing.weight_N, order_N, inverse_N)
            added_ND = added_ND * weight_N[:, None].to(added_ND.dtype)
        added_ND = permuted(added_ND, inverse_N, order_N)
        return added_ND if N == T else added_ND.view(T, -1, D).sum(1)

    def _apply_experts(
        self, rows_ND: Tensor, residual_ND: Tensor | None, sorted_expert_N: Tensor, offsets_E: Tensor
    ) -> Tensor:
        """What this process's experts make of rows sorted by expert."""
        added_ND = self._ffw(0, rows_ND, offsets_E)
        return added_ND if residual_ND is None else self._stack(added_ND, residual_ND, sorted_expert_N, offsets_E)

    def _expert_parallel(self, rows_ND: Tensor, residual_ND: Tensor | None, counts_E: Tensor) -> Tensor:
        """Rows sorted by expert go to the processes that have the experts, and what these make of them comes back."""
        there = exchange_plan(counts_E.view(self.group.size, self.local), self.group)
        arrived_ND = there.send(rows_ND)
        stacked_ND = None if residual_ND is None else there.send(residual_ND)
        made_ND = self._apply_experts(arrived_ND, stacked_ND, there.sorted_expert_N, offsets_of(there.counts_E))
        return there.send_back(made_ND, rows_ND.shape[0])

    def _stack(self, total_ND: Tensor, residual_ND: Tensor, sorted_expert_N: Tensor, offsets_E: Tensor) -> Tensor:
        """The FFWs after the first, on rows sorted by expert; the sum of what all of them add."""
        for i in range(1, self.ffws):
            whole_ND = F.layer_norm(residual_ND + total_ND, residual_ND.shape[-1:])
            scale_ND, offset_ND = (
                _rows(of[i - 1], sorted_expert_N, offsets_E) for of in (self.norm_scale, self.norm_offset)
            )
            total_ND = total_ND + self._ffw(i, whole_ND * scale_ND + offset_ND, offsets_E)
        return total_ND

    def _ffw(self, i: int, x_ND: Tensor, offsets_E: Tensor) -> Tensor:
        x_ND = self.tensor.copy_to_group(x_ND)
        if _is_eager_on_cpu(x_ND):
            return self.tensor.reduce_from_group(expert_ffw(x_ND, self.up[i], self.down[i], offsets_E))
        hidden_NF = F.gelu(grouped_product(x_ND, self.up[i], offsets_E))
        return self.tensor.reduce_from_group(grouped_product(hidden_NF, self.down[i], offsets_E))


def _is_eager_on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def _rows(table_ED: Tensor, sorted_expert_N: Tensor, offsets_E: Tensor) -> Tensor:
    """table[expert] for sorted rows."""
    if takes_groups(table_ED):
        return _padded_rows(table_ED, sorted_expert_N)
    return grouped_product(table_ED.new_ones(len(sorted_expert_N), 1), table_ED[:, None], offsets_E)


def _padded_rows(table_ED: Tensor, sorted_expert_N: Tensor) -> Tensor:
    """Dropped rows, queued as expert E, read and teach a row that is thrown away."""
    return F.pad(table_ED, (0, 0, 0, 1))[sorted_expert_N]
