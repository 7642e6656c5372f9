"""Against logits that are all there at once, in value, gradient and memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from routelaw.model import token_loss
from routelaw.model.token_loss import nll_and_gradient, nll_of_logits, pieces, token_nll

T, D, V = 37, 12, 53
WEIGHTINGS = ["sum", "mean", "some tokens", "one token"]
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def problem(dtype: torch.dtype, device: str = "cpu", tokens: int = T) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    hidden_TD = torch.randn(tokens, D, generator=generator, dtype=torch.float64)
    embedding_VD = torch.randn(V, D, generator=generator, dtype=torch.float64)
    target_T = torch.randint(V, (tokens,), generator=generator)
    values = (x.to(device, dtype).requires_grad_() for x in (hidden_TD, embedding_VD))
    return *values, target_T.to(device)  # pyrefly: ignore


def plain(hidden_TD: Tensor, embedding_VD: Tensor, target_T: Tensor) -> Tensor:
    return F.cross_entropy((hidden_TD @ embedding_VD.T).double(), target_T, reduction="none")


def weighted(nll_T: Tensor, weighting: str) -> Tensor:
    if weighting == "sum":
        return 0.3 * nll_T.sum()
    if weighting == "mean":
        return nll_T.mean()
    if weighting == "one token":
        return nll_T[3]
    return (nll_T * torch.linspace(-1, 2, len(nll_T), device=nll_T.device)).sum()


def relative(ours: Tensor, theirs: Tensor) -> float:
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.filterwarnings("ignore")  # tracing, torch warns of itself
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[GPU, pytest.mark.gpu])])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 1e-2)]
)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("rows", [8, 37, 1000])
def test_equals_the_plain_one(
    monkeypatch: pytest.MonkeyPatch, rows: int, weighting: str, dtype: torch.dtype, tolerance: float, device: str
) -> None:
    monkeypatch.setattr(token_loss, "LOGIT_ROWS", rows)
    hidden_TD, embedding_VD, target_T = problem(dtype, device)
    nll_T = token_nll(hidden_TD, embedding_VD, target_T)
    assert nll_T.dtype == torch.promote_types(dtype, torch.float32)
    weighted(nll_T, weighting).backward()
    exact = [x.detach().double().requires_grad_() for x in (hidden_TD, embedding_VD)]
    wanted_T = plain(*exact, target_T)
    weighted(wanted_T, weighting).backward()
    assert relative(nll_T, wanted_T) < tolerance
    for ours, theirs in zip((hidden_TD, embedding_VD), exact, strict=True):
        assert ours.grad is not None
        assert ours.grad.dtype == dtype
        assert relative(ours.grad, theirs.grad) < tolerance
    with torch.no_grad():
        assert relative(token_nll(hidden_TD, embedding_VD, target_T), wanted_T) < tolerance


@pytest.mark.parametrize("needs", [(True, False), (False, True)])
def test_one_of_the_two_may_be_fixed(needs: tuple[bool, bool]) -> None:
    given, target_T = problem(torch.float64)[:2], problem(torch.float64)[2]
    ours = [x.detach().clone().requires_grad_(n) for x, n in zip(given, needs, strict=True)]
    theirs = [x.detach().clone().requires_grad_(n) for x, n in zip(given, needs, strict=True)]
    token_nll(*ours, target_T).sum().backward()
    plain(*theirs, target_T).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if b.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


def test_both_ways_to_the_gradient_of_logits_agree() -> None:
    """The one that is written to be fused, and the one that saves memory where nothing fuses."""
    logits_RV = 4 * torch.randn(9, V, generator=torch.Generator().manual_seed(1))
    target_R = torch.randint(V, (9,), generator=torch.Generator().manual_seed(2))
    nll_R, gradient_RV = nll_and_gradient(logits_RV, target_R)
    again_R, again_RV = token_loss.nll_and_gradient_eager(logits_RV.clone(), target_R)
    torch.testing.assert_close(again_R, nll_R)
    torch.testing.assert_close(again_RV, gradient_RV)
    torch.testing.assert_close(nll_of_logits(logits_RV, target_R), nll_R)
    assert gradient_RV.sum(1).abs().max() < 1e-5


@pytest.mark.filterwarnings("ignore")  # tracing, torch warns of itself
def test_any_number_of_rows_is_one_graph() -> None:
    """Evaluation brings batches of many sizes, and a compiler gives up after a few graphs of one function."""
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for rows in (7, 30, 31, 32, 33, 64, 100, 255, 256, 1000, 1001, 8192):
        logits_RV, target_R = torch.randn(rows, V), torch.randint(V, (rows,))
        fused = token_loss._fused(nll_of_logits)
        torch.testing.assert_close(fused(logits_RV, target_R), nll_of_logits(logits_RV, target_R))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs + 1


def test_a_logit_that_is_no_number_is_told() -> None:
    hidden_TD, embedding_VD, target_T = problem(torch.float32)
    with torch.no_grad():
        hidden_TD[4, 0] = torch.nan
    nll_T = token_nll(hidden_TD, embedding_VD, target_T)
    assert nll_T.isnan().nonzero().flatten().tolist() == [4]
    nll_T.sum().backward()
    assert embedding_VD.grad is not None
    assert embedding_VD.grad.isnan().any()


class Watch(TorchDispatchMode):
    """Counts products with the vocabulary, and the most rows of any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.rows = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if "mm" in func.__name__:
            self.products += 1
            self.rows = max(self.rows, result.shape[0] if result.shape[1] == V else 0)
        return result


def test_three_products_a_piece_and_never_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A weighting that is not a plain sum takes two more; a mean's gradient does not look like a sum's."""
    monkeypatch.setattr(token_loss, "LOGIT_ROWS", 10)
    for weighting, products in (("sum", 3 * 4), ("some tokens", 5 * 4)):
        with Watch() as watch:
            weighted(token_nll(*problem(torch.float32)), weighting).backward()
        assert watch.products == products
        assert watch.rows == 10


def test_pieces_are_even_and_cover_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_loss, "LOGIT_ROWS", 10)
    for tokens in (1, 9, 10, 11, 40, 41):
        cut = list(pieces(tokens))
        assert [i for piece in cut for i in range(tokens)[piece]] == list(range(tokens))
        assert max(piece.stop - piece.start for piece in cut) <= 10
    assert [piece.stop - piece.start for piece in pieces(40)] == [10] * 4
