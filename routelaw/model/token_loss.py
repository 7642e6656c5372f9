"""−log p of every next token under the tied embedding, without ever holding the logits of all tokens.

Logits are made for a piece of the tokens at a time and forgotten. The gradient of a piece's logits, softmax − one-hot,
needs nothing from later, so its two products are taken at once, in the forward pass: three products in all, as with
logits that are kept, where making them again in the backward pass would take a fourth. What is held until then is the
gradient of the hidden rows (T·D numbers) and of the embedding (V·D, in float32 at least) instead of T·V logits.

The embedding's gradient is that of the plain sum over tokens. A sum's backward pass hands one number to all tokens, as
a tensor of stride 0, and then it only has to be scaled. For any other weighting of the tokens it is made again from
the hidden rows: right, and slower. So a loss is best written `nll_T.sum() / count`.

Shapes: T tokens, R rows of a piece, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from routelaw.kernels.cpu_float32 import matmul, matmul_into, outer, prefers_onednn

LOGIT_ROWS = 8192
"""Tokens whose logits are there at once, at most."""


def token_nll(hidden_TD: Tensor, embedding_VD: Tensor, target_T: Tensor) -> Tensor:
    """In at least float32, and float64 where the hidden rows are."""
    if torch.is_grad_enabled() and (hidden_TD.requires_grad or embedding_VD.requires_grad):
        return _TokenNll.apply(hidden_TD, embedding_VD, target_T)  # pyrefly: ignore
    nll_of = _fused(nll_of_logits) if hidden_TD.is_cuda else nll_of_logits
    return torch.cat([nll_of(matmul(hidden_TD[r], embedding_VD.T), target_T[r]) for r in pieces(len(target_T))])


def pieces(tokens: int) -> Iterator[slice]:
    """Equal ones where they can be, so that one compiled kernel fits all."""
    count = max(1, -(-tokens // LOGIT_ROWS))
    size = -(-tokens // count)
    return (slice(first, min(first + size, tokens)) for first in range(0, max(tokens, 1), max(size, 1)))


def nll_of_logits(logits_RV: Tensor, target_R: Tensor) -> Tensor:
    wide_RV = logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))
    return F.cross_entropy(wide_RV, target_R, reduction="none")


def nll_and_gradient(logits_RV: Tensor, target_R: Tensor) -> tuple[Tensor, Tensor]:
    """nll_R, and softmax − one-hot in the type of the logits."""
    wide_RV = logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))
    log_p_RV = wide_RV.log_softmax(1)
    nll_R = -log_p_RV.gather(1, target_R[:, None])[:, 0]
    hit_RV = torch.arange(logits_RV.shape[1], device=target_R.device) == target_R[:, None]
    return nll_R, (log_p_RV.exp() - hit_RV.to(wide_RV.dtype)).to(logits_RV.dtype)


def nll_and_gradient_eager(logits_RV: Tensor, target_R: Tensor) -> tuple[Tensor, Tensor]:
    """The same where no compiler fuses it: few passes, each one kernel of torch's, and two wide copies at most."""
    wide_RV = logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32)).log_softmax(1)
    target_R1 = target_R[:, None]
    nll_R1 = -wide_RV.gather(1, target_R1)
    wide_RV.exp_().scatter_(1, target_R1, torch.expm1(-nll_R1))  # p − 1 at the target
    return nll_R1[:, 0], wide_RV.to(logits_RV.dtype)


@cache
def _fused(function: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Any]:
    """On a GPU the passes over a piece's logits become one kernel: read once, write once, for any number of rows."""
    compiled = torch.compile(function, dynamic=False)

    def call(logits_RV: Tensor, target_R: Tensor) -> Any:
        torch._dynamo.maybe_mark_dynamic(logits_RV, 0)
        torch._dynamo.maybe_mark_dynamic(target_R, 0)
        return compiled(logits_RV, target_R)

    return call


class _TokenNll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_TD: Tensor, embedding_VD: Tensor, target_T: Tensor) -> Tensor:
        of_hidden_TD = torch.empty_like(hidden_TD)
        nll_T, of_embedding_VD = _by_pieces(hidden_TD, embedding_VD, target_T, of_hidden_TD)
        ctx.save_for_backward(hidden_TD, embedding_VD, target_T, of_hidden_TD, of_embedding_VD)
        return nll_T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_T: Tensor) -> tuple[Tensor | None, Tensor | None, None]:  # pyrefly: ignore
        hidden_TD, embedding_VD, target_T, of_hidden_TD, of_embedding_VD = ctx.saved_tensors
        if gradient_T.stride() == (0,) or len(gradient_T) == 1:
            of_embedding_VD = of_embedding_VD * gradient_T[0]
        else:
            _, of_embedding_VD = _by_pieces(hidden_TD, embedding_VD, target_T, None, gradient_T)
        of_hidden_TD = (of_hidden_TD * gradient_T[:, None]).to(hidden_TD.dtype)
        wanted = ctx.needs_input_grad
        return of_hidden_TD if wanted[0] else None, of_embedding_VD.to(embedding_VD.dtype) if wanted[1] else None, None


def _by_pieces(
    hidden_TD: Tensor,
    embedding_VD: Tensor,
    target_T: Tensor,
    of_hidden_TD: Tensor | None,
    weight_T: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """nll_T and the embedding's gradient of Σ weight·nll; the hidden rows' gradient of nll, unweighted, is written to
    where it is wanted."""
    both = _fused(nll_and_gradient) if hidden_TD.is_cuda else nll_and_gradient_eager
    wide = torch.promote_types(hidden_TD.dtype, torch.float32)
    nll_T = hidden_TD.new_empty(len(target_T), dtype=wide)
    of_embedding_VD = torch.zeros_like(embedding_VD, dtype=wide)
    for r in pieces(len(target_T)):
        nll_T[r], of_logits_RV = both(matmul(hidden_TD[r], embedding_VD.T), target_T[r])
        if of_hidden_TD is not None:
            matmul_into(of_logits_RV, embedding_VD, of_hidden_TD[r])
        if weight_T is not None:
            of_logits_RV *= weight_T[r, None].to(of_logits_RV.dtype)
        if wide == hidden_TD.dtype and not prefers_onednn(of_logits_RV, embedding_VD):
            of_embedding_VD.addmm_(of_logits_RV.T, hidden_TD[r])
        else:
            of_embedding_VD += outer(of_logits_RV, hidden_TD[r])
        del of_logits_RV  # before the next piece's are made
    return nll_T, of_embedding_VD
