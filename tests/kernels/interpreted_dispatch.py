"""Run as a program under Triton's interpreter: one case, compared with the plain form; a difference is an error."""

from __future__ import annotations

import sys

import torch
from test_dispatch import ORDERS, SUMS, order_problem, rows_problem

from routelaw.kernels import dispatch_triton
from routelaw.kernels.dispatch import sorted_order, summed_rows


def main(case: str) -> None:
    dispatch_triton.wrap_triton = lambda kernel: kernel  # which takes compiled kernels only
    if case == "order":
        for given in ORDERS:
            found, wanted = (way(*order_problem(*given)) for way in (dispatch_triton.counted_order, sorted_order))
            assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, wanted, strict=True)), given
    if case == "sum":
        dispatch_triton.TILE = 256  # several tiles to a row, and several rows to a tile
        for given in SUMS:
            found, wanted = (way(*rows_problem(*given)) for way in (dispatch_triton.gathered_sum, summed_rows))
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


if __name__ == "__main__":
    main(sys.argv[1])
