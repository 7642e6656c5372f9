"""Products of sorted rows with their experts' weights on a GPU, for experts of few rows each.

With hundreds of experts a product reads or writes far more weights than rows, and takes as long as that does. A program
here has one expert and one tile of the result's columns (of a weight gradient: of the weight) and goes through all of
the expert's rows, so nobody has to work out which rows a tile has, and the busiest expert decides how long it takes:
with Zipf's skew of 0.7 over 512 experts a layer has 0.76 to 0.80 of the speed with even load. Programs of an expert
follow each other, so its rows are fetched once. Measured against torch's `grouped_mm` in docs/log.

Shapes: N rows, D and F widths, E experts.
"""

from __future__ import annotations

import triton  # pyrefly: ignore
import triton.language as tl  # pyrefly: ignore
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor  # pyrefly: ignore

TILE = 128
"""Rows and columns of a tile: widths must be multiples of it."""
STEP = 64
"""Columns of the rows that a tile of their product takes at a time."""
STEP_OF_ROWS = 32
"""Rows that a tile of a weight gradient takes at a time."""
TUNED = {"num_warps": 4, "num_stages": 3}


@triton.jit
def rows_of(ends, expert):
    """Where the expert's rows begin and end."""
    return tl.load(ends + expert - 1, mask=expert > 0, other=0), tl.load(ends + expert)


@triton.jit
def product_kernel(
    x, weight, y, ends, D, F, HEIGHT, TRANSPOSED: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr
):  # fmt: skip
    """x and weight are descriptors; the weight's, of all experts below each other, HEIGHT rows to each."""
    expert = tl.program_id(1)
    column = tl.program_id(0) * TILE
    begin, end = rows_of(ends, expert)
    for first in range(begin, end, TILE):
        total = tl.zeros((TILE, TILE), tl.float32)
        for d in range(0, D, STEP):
            if TRANSPOSED:
                tile = weight.load([expert * HEIGHT + column, d]).T
            else:
                tile = weight.load([expert * HEIGHT + d, column])
            total = tl.dot(x.load([first, d]), tile, total)
        # Rows of the next expert may have been computed, too: they are not written.
        row = first + tl.arange(0, TILE)
        place = row[:, None].to(tl.int64) * F + column + tl.arange(0, TILE)[None, :]
        tl.store(y + place, total.to(y.dtype.element_ty), mask=row[:, None] < end)


@triton.jit
def weight_gradient_kernel(x, y, out, ends, D, F, TILE: tl.constexpr, STEP: tl.constexpr):
    expert = tl.program_id(1)
    d = tl.program_id(0) // (F // TILE) * TILE + tl.arange(0, TILE)
    f = tl.program_id(0) % (F // TILE) * TILE + tl.arange(0, TILE)
    begin, end = rows_of(ends, expert)
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(begin, end, STEP):
        row = (first + tl.arange(0, STEP)).to(tl.int64)[:, None]
        a = tl.load(x + row * D + d[None, :], mask=row < end, other=0.0)
        b = tl.load(y + row * F + f[None, :], mask=row < end, other=0.0)
        total = tl.dot(a.T, b, total)
    place = expert.to(tl.int64) * D * F + d[:, None] * F + f[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty))


def rows_product(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    """As `grouped_product`, to which the weight may come transposed; rows beyond the last end stay unwritten."""
    E, D, F = weight_EDF.shape
    _whole_tiles(D, F)
    transposed = weight_EDF.stride(2) != 1
    stored = (weight_EDF.transpose(1, 2) if transposed else weight_EDF).contiguous().flatten(0, 1)
    y_NF = x_ND.new_empty(len(x_ND), F)
    rows = _described(x_ND.contiguous(), [TILE, STEP])
    weight = _described(stored, [TILE, STEP] if transposed else [STEP, TILE])
    product_kernel[(F // TILE, E)](
        rows, weight, y_NF, offsets_E.contiguous(), D, F, len(stored) // E, TRANSPOSED=transposed, TILE=TILE, STEP=STEP,
        **TUNED,
    )  # fmt: skip
    return y_NF


def weight_gradient(x_ND: Tensor, y_NF: Tensor, offsets_E: Tensor) -> Tensor:
    E, D, F = len(offsets_E), x_ND.shape[1], y_NF.shape[1]
    _whole_tiles(D, F)
    of_weight_EDF = x_ND.new_empty(E, D, F)
    weight_gradient_kernel[((D // TILE) * (F // TILE), E)](
        x_ND.contiguous(), y_NF.contiguous(), of_weight_EDF, offsets_E.contiguous(), D, F, TILE=TILE, STEP=STEP_OF_ROWS,
        **TUNED,
    )  # fmt: skip
    return of_weight_EDF


def _described(table: Tensor, block: list[int]) -> TensorDescriptor:
    return TensorDescriptor(table, list(table.shape), [table.shape[1], 1], block)


def _whole_tiles(*widths: int) -> None:
    """What is beyond the last whole tile would stay unwritten."""
    if any(width % TILE for width in widths):
        raise ValueError(f"widths {widths} are not multiples of {TILE}")
