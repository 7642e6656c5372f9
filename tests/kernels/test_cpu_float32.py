"""Products on a CPU, by oneDNN or by torch's own: both paths against float64, whichever this processor would take."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from routelaw.kernels import cpu_float32
from routelaw.kernels.cpu_float32 import expert_ffw, linear, matmul, matmul_into, outer, outer_into, routed_ffw

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch is built without oneDNN")


@pytest.fixture(params=[True, False], ids=["oneDNN", "torch"])
def onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Every product by oneDNN however small, or none."""
    monkeypatch.setattr(cpu_float32, "has_faster_onednn", lambda: request.param)
    monkeypatch.setattr(cpu_float32, "FEWEST_PRODUCTS", 1)
    monkeypatch.setattr(cpu_float32._uses_onednn, "__defaults__", (1,))
    monkeypatch.setattr(cpu_float32, "FEWEST_IN_OUTER", 1)
    return request.param


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def near(found: Tensor, exact: Tensor) -> None:
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 1, 1), (7, 5, 3), (64, 32, 96), (33, 128, 17)])
def test_products_are_those_of_float64(rows: int, inner: int, columns: int) -> None:
    a, b = normal(rows, inner), normal(inner, columns, seed=1)
    exact = a.double() @ b.double()
    near(matmul(a, b), exact)
    near(matmul(a, b.T.contiguous().T), exact)
    near(matmul(a.T.contiguous().T, b), exact)
    near(outer(a.T.contiguous(), b), exact)
    near(outer(b, a.T.contiguous()), exact.T)
    for into, left in ((matmul_into, a), (outer_into, a.T.contiguous())):
        out = torch.full((rows + 2, columns), 9.0)
        into(left, b, out[1:-1])
        near(out[1:-1], exact)
        assert bool((out[[0, -1]] == 9).all())


def test_each_path_is_taken(onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = cpu_float32._onednn
    monkeypatch.setattr(cpu_float32, "_onednn", lambda a, b: calls.append(a.shape) or real(a, b))
    x, weight = normal(4, 6, 8).requires_grad_(), normal(16, 8, seed=1).requires_grad_()
    linear(x, weight).sum().backward()
    assert calls == ([(24, 8), (24, 16), (8, 24)] if onednn else [])


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_a_linear_layer(transposed: bool) -> None:
    x, weight, against = normal(3, 5, 8), normal(12, 8, seed=1), normal(3, 5, 12, seed=2)
    if transposed:
        weight = weight.T.contiguous().T
    ours, exact = [
        torch.autograd.grad(layer(a, w), (a, w), against.to(a.dtype))
        for layer, a, w in (
            (linear, x.requires_grad_(), weight.requires_grad_()),
            (torch.nn.functional.linear, *(t.detach().double().requires_grad_() for t in (x, weight))),
        )
    ]
    for one, other in zip(ours, exact, strict=True):
        near(one, other)


def test_the_choice_does_not_hang_on_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run takes the same products: shapes and processor decide."""
    monkeypatch.setattr(cpu_float32, "has_faster_onednn", lambda: True)
    large, small = normal(256, 256), normal(16, 16)
    assert cpu_float32.prefers_onednn(large, large)
    assert not cpu_float32.prefers_onednn(small, small)
    assert not cpu_float32.prefers_onednn(large.double(), large.double())
    monkeypatch.setattr(cpu_float32, "has_faster_onednn", lambda: False)
    assert not cpu_float32.prefers_onednn(large, large)


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("counts", [[5, 0, 40, 3], [0, 0, 0, 0], [0, 61, 0, 0], [16, 16, 16, 13], [1, 1, 1, 1]])
def test_experts_one_by_one_are_those_of_float64(counts: list[int]) -> None:
    """Values and gradients, with rows of dropped assignments after the last end."""
    rows, width, hidden = 61, 8, 12
    offsets_E = torch.tensor(counts).cumsum(0).to(torch.int32)
    x, up, down = normal(rows, width), normal(4, width, hidden, seed=1), normal(4, hidden, width, seed=2)
    against = normal(rows, width, seed=3)
    leaves = [t.requires_grad_() for t in (x, up, down)]
    ours = expert_ffw(*leaves, offsets_E)  # pyrefly: ignore
    exact_leaves = [t.detach().double().requires_grad_() for t in leaves]
    exact = naive(*exact_leaves, counts)
    near(ours.detach(), exact.detach())
    assert bool((ours[sum(counts) :] == 0).all())
    for one, other in zip(
        torch.autograd.grad(ours, leaves, against),
        torch.autograd.grad(exact, exact_leaves, against.double()),
        strict=True,
    ):
        near(one, other)


def naive(x_ND: Tensor, up_EDF: Tensor, down_EFD: Tensor, counts: list[int]) -> Tensor:
    parts, first = [], 0
    for expert, count in enumerate(counts):
        part = x_ND[first : first + count]
        parts.append(torch.nn.functional.gelu(part @ up_EDF[expert]) @ down_EFD[expert])
        first += count
    return torch.cat([*parts, x_ND[first:] * 0])


@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dropped", [0, 9])
def test_experts_that_fetch_and_return_their_rows_are_those_of_float64(k: int, weighted: bool, dropped: int) -> None:
    """Assignments in any order, the last of which are dropped, against a loop over them."""
    tokens, width, hidden, experts = 37, 8, 12, 4
    generator = torch.Generator().manual_seed(k)
    order_N = torch.randperm(tokens * k, generator=generator)
    ends = [0, 5, 5, 20, tokens * k - dropped]
    x, up, down = normal(tokens, width), normal(experts, width, hidden, seed=1), normal(experts, hidden, width, seed=2)
    leaves = [t.requires_grad_() for t in (x, up, down, *([normal(tokens * k, seed=4)] if weighted else []))]
    against = normal(tokens, width, seed=3)
    ours = routed_ffw(*leaves[:3], leaves[3] if weighted else None, order_N, torch.tensor(ends[1:], dtype=torch.int32))  # pyrefly: ignore
    exact_leaves = [t.detach().double().requires_grad_() for t in leaves]
    exact = torch.zeros(tokens, width, dtype=torch.float64)
    for expert, (begin, end) in enumerate(pairwise(ends)):
        for n in order_N[begin:end].tolist():
            row = torch.nn.functional.gelu(exact_leaves[0][n // k] @ exact_leaves[1][expert]) @ exact_leaves[2][expert]
            one_D = row * exact_leaves[3][n] if weighted else row
            exact = exact.index_add(0, torch.tensor([n // k]), one_D[None])
    near(ours.detach(), exact.detach())
    for one, other in zip(
        torch.autograd.grad(ours, leaves, against),
        torch.autograd.grad(exact, exact_leaves, against.double()),
        strict=True,
    ):
        near(one, other)


def test_rows_of_other_experts_leave_no_trace() -> None:
    """Whatever the rows beside an expert's hold."""
    offsets_E = torch.tensor([5, 21], dtype=torch.int32)
    x, up, down = normal(24, 8), normal(2, 8, 12, seed=1), normal(2, 12, 8, seed=2)
    other = x.clone()
    other[5:] = float("nan")
    found = []
    for rows in (x, other):
        leaves = [t.clone().requires_grad_() for t in (rows, up, down)]
        out = expert_ffw(*leaves, offsets_E)  # pyrefly: ignore
        gradients = torch.autograd.grad(out[:5].sum(), leaves)
        found.append((out[:5].detach(), gradients[0][:5], gradients[1][0], gradients[2][0]))
    for one, two in zip(*found, strict=True):
        assert torch.equal(one, two)
