"""Dispatch on a GPU: a counting sort of two passes over the assignments, and a gather that masks and adds up.

The sort: every program counts the experts of its block; one running sum over experts and blocks says where each block's
assignments to each expert begin; a program's own order within its block comes from comparing all of it with itself.
A radix sort of pairs took a dozen launches for the same. Measured for 8 to 512 experts (docs/log); the table
of counts has (E + 1)·N / BLOCK cells.

Shapes: T tokens, K choices, N = T·K assignments, E experts, D width, B blocks.
"""

from __future__ import annotations

import torch
import triton  # pyrefly: ignore
import triton.language as tl  # pyrefly: ignore
from torch import Tensor
from torch.library import triton_op, wrap_triton

BLOCK = 128
"""Assignments of a program."""
PIECE = 32
"""How many of them are compared with all others at once."""
TILE = 4096
"""Numbers that a program gathers at once."""


@triton.jit
def key_of(expert, kept, place, N, E):
    """The expert's number; E for dropped assignments, E + 1 beyond the last."""
    there = place < N
    number = tl.load(expert + place, mask=there, other=0).to(tl.int32)
    keep = tl.load(kept + place, mask=there, other=0) != 0
    return tl.where(there, tl.where(keep, number, E), E + 1)


@triton.jit
def count_kernel(expert, kept, count, N, E, B, BLOCK: tl.constexpr, BINS: tl.constexpr):
    block = tl.program_id(0)
    key = key_of(expert, kept, block * BLOCK + tl.arange(0, BLOCK), N, E)
    number = tl.arange(0, BINS)
    tl.store(count + number * B + block, tl.histogram(key, BINS), mask=number <= E)


@triton.jit
def place_kernel(
    expert, kept, count, running, order, inverse, ends, N, E, B,
    BLOCK: tl.constexpr, PIECE: tl.constexpr, BINS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    key = key_of(expert, kept, place, N, E)
    before = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, BLOCK, PIECE):
        other = block * BLOCK + first + tl.arange(0, PIECE)
        same = key[:, None] == key_of(expert, kept, other, N, E)[None, :]
        before += tl.sum((same & (other[None, :] < place[:, None])).to(tl.int32), 1)
    there = place < N
    cell = key * B + block
    begin = tl.load(running + cell, mask=there, other=0) - tl.load(count + cell, mask=there, other=0)
    stands = (begin + before).to(tl.int64)
    tl.store(order + stands, place.to(tl.int64), mask=there)
    tl.store(inverse + place, stands, mask=there)
    if block == 0:
        number = tl.arange(0, BINS)
        tl.store(ends + number, tl.load(running + number * B + B - 1, mask=number < E, other=0), mask=number < E)


@triton_op("routelaw::counted_order", mutates_args=())
def counted_order(expert_N: Tensor, kept_N: Tensor, experts: int) -> tuple[Tensor, Tensor, Tensor]:
    N, B, bins = len(expert_N), triton.cdiv(len(expert_N), BLOCK), triton.next_power_of_2(experts + 2)
    count = torch.empty((experts + 1) * B, dtype=torch.int32, device=expert_N.device)
    order_N, inverse_N = (torch.empty(N, dtype=torch.int64, device=expert_N.device) for _ in range(2))
    offsets_E = torch.empty(experts, dtype=torch.int32, device=expert_N.device)
    given = expert_N.contiguous(), kept_N.contiguous()
    wrap_triton(count_kernel)[(B,)](*given, count, N, experts, B, BLOCK=BLOCK, BINS=bins)
    running = count.cumsum(0, dtype=torch.int32)
    wrap_triton(place_kernel)[(B,)](
        *given, count, running, order_N, inverse_N, offsets_E, N, experts, B, BLOCK=BLOCK, PIECE=PIECE, BINS=bins
    )
    return order_N, inverse_N, offsets_E


@triton.jit
def sum_kernel(x, place, kept, out, T, D, K: tl.constexpr, ROWS: tl.constexpr, BLOCK_D: tl.constexpr):
    token = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    total = tl.zeros((ROWS, BLOCK_D), tl.float32)
    for choice in tl.static_range(K):
        row = tl.load(place + token * K + choice, mask=token < T, other=0)
        keep = tl.load(kept + token * K + choice, mask=token < T, other=0) != 0
        mask = keep[:, None] & (column < D)[None, :]
        total += tl.load(x + row[:, None] * D + column[None, :], mask=mask, other=0.0).to(tl.float32)
    mask = (token < T)[:, None] & (column < D)[None, :]
    tl.store(out + token[:, None] * D + column[None, :], total.to(out.dtype.element_ty), mask=mask)


@triton_op("routelaw::gathered_sum", mutates_args=())
def gathered_sum(x_ND: Tensor, place_N: Tensor, kept_N: Tensor, k: int) -> Tensor:
    T, D = len(place_N) // k, x_ND.shape[1]
    out_TD = x_ND.new_empty(T, D)
    block = min(triton.next_power_of_2(D), TILE)
    rows = TILE // block
    wrap_triton(sum_kernel)[(triton.cdiv(T, rows), triton.cdiv(D, block))](
        x_ND.contiguous(), place_N, kept_N.contiguous(), out_TD, T, D, K=k, ROWS=rows, BLOCK_D=block
    )
    return out_TD
