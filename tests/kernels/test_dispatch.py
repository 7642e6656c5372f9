"""Dispatch: the plain forms against loops, the kernels against the plain forms (interpreted on a CPU,
themselves on a GPU)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from places import interpret, interpreter, on_gpu
from torch import Tensor

from routelaw.kernels.dispatch import expert_order, sorted_order, summed_rows

ORDERS = [
    (1, 1, 1.0),
    (7, 3, 0.5),
    (512, 8, 0.9),
    (1500, 5, 0.0),
    (1025, 64, 0.7),
    (2048, 1, 1.0),
    (700, 300, 0.8),
    (200, 4096, 0.9),
]
"""Assignments, experts, share that is kept."""
SUMS = [(9, 16, 1, 0.5), (33, 40, 2, 0.8), (5, 300, 3, 1.0), (64, 512, 1, 0.0)]
"""Tokens, width, choices, share that is kept."""


def order_problem(assignments: int, experts: int, kept: float, device: str = "cpu") -> tuple[Tensor, Tensor, int]:
    draw = torch.Generator().manual_seed(assignments + experts)
    expert_N = torch.randint(experts, (assignments,), generator=draw)
    kept_N = torch.rand(assignments, generator=draw) < kept
    return expert_N.to(device), kept_N.to(device), experts


def rows_problem(
    tokens: int, width: int, k: int, kept: float, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Rows of what was dropped are not numbers."""
    draw = torch.Generator().manual_seed(tokens + width)
    x_ND = torch.randn(tokens * k, width, generator=draw).to(dtype)
    place_N = torch.randperm(tokens * k, generator=draw)
    kept_N = torch.rand(tokens * k, generator=draw) < kept
    x_ND[place_N[~kept_N]] = torch.nan
    return x_ND.to(device), place_N.to(device), kept_N.to(device), k


@pytest.mark.parametrize("given", ORDERS, ids=str)
def test_the_order_by_hand(given: tuple[int, int, float]) -> None:
    expert_N, kept_N, experts = order_problem(*given)
    order_N, inverse_N, offsets_E = expert_order(expert_N, kept_N, experts)
    queue = [int(e) if keep else experts for e, keep in zip(expert_N, kept_N, strict=True)]
    assert order_N.tolist() == sorted(range(len(queue)), key=queue.__getitem__)  # Python's sort is stable
    assert inverse_N[order_N].tolist() == list(range(len(queue)))
    assert offsets_E.tolist() == np.cumsum([queue.count(e) for e in range(experts)]).tolist()


@pytest.mark.parametrize("given", SUMS, ids=str)
def test_the_sum_by_hand(given: tuple[int, int, int, float]) -> None:
    x_ND, place_N, kept_N, k = rows_problem(*given)
    found_TD = summed_rows(x_ND, place_N, kept_N, k)
    for token in range(len(found_TD)):
        rows = [x_ND[place_N[n]].double() for n in range(token * k, token * k + k) if kept_N[n]]
        torch.testing.assert_close(found_TD[token].double(), sum(rows, torch.zeros(x_ND.shape[1]).double()))


@pytest.mark.parametrize("_", [pytest.param("", marks=on_gpu)])
def test_a_compiler_sees_operations_of_the_right_shape(_: str) -> None:
    from routelaw.kernels.dispatch_triton import counted_order, gathered_sum

    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(counted_order, order_problem(50, 7, 0.8, device="cuda"), test_utils=utils)
    torch.library.opcheck(gathered_sum, rows_problem(9, 16, 2, 1.0, device="cuda"), test_utils=utils)


@pytest.mark.parametrize("case", ["order", "sum"])
@pytest.mark.parametrize("_", [pytest.param("", marks=interpreter)])
def test_the_interpreted_kernels(case: str, _: str) -> None:
    """See interpreted_dispatch.py for what is compared."""
    interpret("interpreted_dispatch.py", case)


@pytest.mark.parametrize(
    "given", [pytest.param(g, marks=on_gpu, id=str(g)) for g in [*ORDERS, (65536, 8, 1.0), (131072, 512, 0.9)]]
)
def test_the_order_on_a_gpu(given: tuple[int, int, float]) -> None:
    problem = order_problem(*given, device="cuda")
    for found, wanted in zip(expert_order(*problem), sorted_order(*problem), strict=True):
        assert found.dtype == wanted.dtype
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("given", [pytest.param(g, marks=on_gpu, id=str(g)) for g in [*SUMS, (65536, 512, 1, 0.9)]])
def test_the_sum_on_a_gpu(given: tuple[int, int, int, float], dtype: torch.dtype) -> None:
    found = summed_rows(*rows_problem(*given, device="cuda", dtype=dtype))
    wanted = summed_rows(*rows_problem(*given, dtype=dtype))
    torch.testing.assert_close(found.cpu(), wanted)
