"""Products for experts of few rows, against a float64 loop: interpreted on a CPU, themselves on a GPU."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from places import interpret, interpreter, on_gpu
from torch import Tensor

import routelaw.model.grouped_product as grouped

LOADS = {
    "even": [16] * 4,
    "some have none": [0, 5, 0, 0, 33, 1, 0],
    "one has all": [0, 0, 70, 0],
    "none": [0, 0, 0],
    "one expert": [9],
    "one row": [0, 1],
    "many tiles": [17, 16, 15, 129, 128, 127, 300],
}
"""Rows of each expert; some more follow, which were dropped."""
DROPPED = 7


def problem(
    load: list[int], d: int, f: int, dtype: torch.dtype, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What was dropped is not a number."""
    draw = torch.Generator().manual_seed(sum(load))
    rows = sum(load) + DROPPED
    x_ND, y_NF = (torch.randn(rows, width, generator=draw).to(dtype) for width in (d, f))
    weight_EDF = (torch.randn(len(load), d, f, generator=draw) / d**0.5).to(dtype)
    for table in (x_ND, y_NF):
        table[sum(load) :] = torch.nan
    offsets_E = torch.tensor(load).cumsum(0).to(torch.int32)
    return x_ND.to(device), weight_EDF.to(device), y_NF.to(device), offsets_E.to(device)


def wanted_product(x_ND: Tensor, weight_EDF: Tensor, offsets_E: Tensor) -> Tensor:
    slices = pairwise([0, *offsets_E.tolist()])
    return torch.cat([x_ND[a:b].double() @ weight_EDF[e].double() for e, (a, b) in enumerate(slices)])


def wanted_gradient(x_ND: Tensor, y_NF: Tensor, offsets_E: Tensor) -> Tensor:
    slices = pairwise([0, *offsets_E.tolist()])
    return torch.stack([x_ND[a:b].double().T @ y_NF[a:b].double() for a, b in slices])


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("_", [pytest.param("", marks=interpreter)])
def test_the_interpreted_kernels(load: str, _: str) -> None:
    interpret("interpreted_few_rows.py", load)


hopper = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != grouped.HOPPER, reason="not for this GPU"
)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("widths", [(128, 512), (384, 128)], ids=str)
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("_", [pytest.param("", marks=[*on_gpu, hopper])])
def test_on_a_gpu(load: str, widths: tuple[int, int], compiled: bool, _: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the operation that the model calls, forwards and backwards; eager results are NaN before they are
    written."""
    monkeypatch.setattr(grouped, "FEW", 10_000)
    if not compiled:
        monkeypatch.setattr(torch.Tensor, "new_empty", lambda self, *shape: self.new_full(shape, torch.nan))
    x_ND, weight_EDF, y_NF, offsets_E = problem(LOADS[load], *widths, torch.bfloat16, "cuda")
    written = int(offsets_E[-1])
    assert grouped.few_rows(x_ND, *weight_EDF.shape)
    leaves = x_ND.clone().requires_grad_(), weight_EDF.clone().requires_grad_()
    product = torch.compile(grouped.grouped_product, fullgraph=True) if compiled else grouped.grouped_product
    found_NF = product(*leaves, offsets_E)
    of_x_ND, of_weight_EDF = torch.autograd.grad(found_NF, leaves, y_NF)
    for found, wanted in (
        (found_NF[:written], wanted_product(x_ND, weight_EDF, offsets_E)),
        (of_x_ND[:written], wanted_product(y_NF, weight_EDF.transpose(1, 2), offsets_E)),
        (of_weight_EDF, wanted_gradient(x_ND, y_NF, offsets_E)),
    ):
        assert found.isfinite().all()
        assert (found.double() - wanted).norm() <= 4e-3 * wanted.norm()


@pytest.mark.parametrize(
    ("rows", "experts", "widths", "few"),
    [(0, 8, (128,), False), (1024, 8, (128, 512), True), (1025, 8, (128, 512), False), (8, 8, (128, 192), False)],
)
def test_who_has_few_rows(
    rows: int, experts: int, widths: tuple[int, ...], few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x_ND = torch.empty(rows, widths[0])
    for generation, able in ((grouped.HOPPER - 1, False), (grouped.HOPPER, True), (grouped.HOPPER + 1, False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, g=generation: (g, 0))
        assert grouped.few_rows(x_ND, experts, *widths) is (few and able)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (grouped.HOPPER, 0))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not grouped.few_rows(x_ND, experts, *widths)
