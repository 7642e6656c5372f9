"""Causal attention with a term for the distance, score_ij = (q_i·k_j + q_i·r_{i−j}) / √v, put together in three ways.

No fused attention of torch has such a term. `biased` works it out for all pairs and hands it over as a mask;
`in_pieces` takes a piece of the queries at a time with the keys up to its end, so that nearly half of the pairs are
never made, and writes the products out: what lies between them a compiler makes into one kernel. On an H200, forward
and backward, compiled and recorded, against flash attention without the term, at (batch, length, heads, key size)
(8, 2048, 8, 64), (8, 2048, 16, 64) and (4, 2048, 16, 128): `biased` 11.3, 11.7 and 10.0 times, FlexAttention with
scores read in its kernel 12.9, 13.2 and 7.4, `in_pieces` of 256 rows 6.3, 6.2 and 5.0, of 512 5.8, 6.1 and 4.3, of 1024
6.2, 6.5 and 4.5; those of 512 take the least memory, 564, 1,126 and 702 MiB, where `biased` takes 1,141, 2,278 and
1,253 (`routelaw bench attention`, 2026-11-16).

On a CPU nothing is fused for us, so `eager_attention` takes few passes over the S × S scores: forwards the product
with the distances, one pass that shifts and masks it, the product with the keys added in place, and the softmax;
backwards as many. `biased` is its plain reference, and what a compiler is given on a CPU.

Shapes: B batch, H heads, S sequence, V key/value size, R rows of a piece.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 512
"""Queries in a piece."""


def relative_attention(q_BHSV: Tensor, k_BHSV: Tensor, v_BHSV: Tensor, r_SHV: Tensor) -> Tensor:
    """r_SHV is by distance, 0 first."""
    if q_BHSV.is_cuda:
        return in_pieces(q_BHSV, k_BHSV, v_BHSV, r_SHV)
    if torch.compiler.is_compiling() or q_BHSV.dtype == torch.bfloat16:  # scores would be rounded to bfloat16
        return biased(q_BHSV, k_BHSV, v_BHSV, r_SHV)
    return eager_attention(q_BHSV, k_BHSV, v_BHSV, r_SHV)


def eager_attention(q_BHSV: Tensor, k_BHSV: Tensor, v_BHSV: Tensor, r_SHV: Tensor) -> Tensor:
    # Heads first: then the product with the distances, which all sequences share, is one matrix product per head.
    q, k, v = (x.transpose(0, 1).contiguous() for x in (q_BHSV, k_BHSV, v_BHSV))
    return _EagerAttention.apply(q, k, v, r_SHV.permute(1, 0, 2)).transpose(0, 1)  # pyrefly: ignore


class _EagerAttention(torch.autograd.Function):
    """The attention of tensors (H, B, S, V) and distances (H, S, V).

    Scores by distance are made with the largest distance first: column c of row i is distance S−1−c, which belongs to
    key j = c − (S−1−i). In memory that is i·S + c = (S−1) + i·(S−1) + j, so scores by key are the same numbers read
    from place S−1 on in rows that are S−1 apart. Keys in the future read numbers of the next row, and are masked.
    """

    @staticmethod
    def forward(ctx: Any, q_HBSV: Tensor, k_HBSV: Tensor, v_HBSV: Tensor, r_HSV: Tensor) -> Tensor:
        H, B, S, V = q_HBSV.shape
        q_XSV = (q_HBSV / math.sqrt(V)).flatten(0, 1)
        k_XSV, v_XSV, r_HSV = k_HBSV.flatten(0, 1), v_HBSV.flatten(0, 1), r_HSV.flip(1)
        by_distance = torch.bmm(q_XSV.view(H, B * S, V), r_HSV.transpose(1, 2)).view(H * B, S, S)
        by_key = by_distance.as_strided((H * B, S, S), (S * S, S - 1, 1), S - 1)
        scores_XSS = torch.add(by_key, _causal(S, q_XSV.dtype))
        weight_XSS = scores_XSS.baddbmm_(q_XSV, k_XSV.transpose(1, 2)).softmax(-1)
        ctx.save_for_backward(q_XSV, k_XSV, v_XSV, r_HSV, weight_XSS)
        return torch.bmm(weight_XSS, v_XSV).view(H, B, S, V)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_HBSV: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # pyrefly: ignore
        q_XSV, k_XSV, v_XSV, r_HSV, weight_XSS = ctx.saved_tensors
        H, B, S, V = gradient_HBSV.shape
        gradient_XSV = gradient_HBSV.reshape(H * B, S, V)
        of_v = torch.bmm(weight_XSS.transpose(1, 2), gradient_XSV)
        of_weight = torch.bmm(gradient_XSV, v_XSV.transpose(1, 2))
        of_score = torch._softmax_backward_data(of_weight, weight_XSS, -1, weight_XSS.dtype)
        of_k = torch.bmm(of_score.transpose(1, 2), q_XSV)
        # Back to rows by distance; a masked score has no gradient, so what it would write over is zero anyway. The last
        # key is seen by the last query alone.
        of_distance = torch.empty_like(of_score)
        flat = of_distance.view(H * B, S * S)
        flat[:, : S - 1] = 0
        flat[:, S - 1 : -1].view(H * B, S, S - 1).copy_(of_score[:, :, : S - 1])
        flat[:, -1] = of_score[:, -1, -1]
        of_distance = of_distance.view(H, B * S, S)
        of_r = torch.bmm(of_distance.transpose(1, 2), q_XSV.view(H, B * S, V)).flip(1)
        of_q = torch.bmm(of_score, k_XSV).view(H, B * S, V).baddbmm_(of_distance, r_HSV)
        shape = (H, B, S, V)
        return (of_q / math.sqrt(V)).view(shape), of_k.view(shape), of_v.view(shape), of_r


@lru_cache(maxsize=8)
def _causal(length: int, dtype: torch.dtype) -> Tensor:
    """(S, S): minus infinity for keys in the future, else zero. Made once: it is the same in every block and step."""
    return torch.full((length, length), float("-inf"), dtype=dtype).triu(1)


def biased(q_BHSV: Tensor, k_BHSV: Tensor, v_BHSV: Tensor, r_SHV: Tensor) -> Tensor:
    S, V = q_BHSV.shape[-2:]
    by_distance = torch.einsum("bhsv,thv->bhst", q_BHSV, r_SHV) / math.sqrt(V)
    future_SS = torch.ones(S, S, dtype=torch.bool, device=q_BHSV.device).triu(1)
    bias_BHSS = by_distance_to_by_key(by_distance).masked_fill(future_SS, float("-inf"))
    return F.scaled_dot_product_attention(q_BHSV, k_BHSV, v_BHSV, attn_mask=bias_BHSS)


def by_distance_to_by_key(score_BHSS: Tensor) -> Tensor:
    """Scores indexed by distance i−j, (…, i, distance), moved to (…, i, j); entries with j > i are garbage to be
    masked.

    Row i reversed holds distances S−1 … 0; shifting it left by S−1−i puts distance i−j at column j. A pad and a
    reshape do it.
    """
    B, H, S, _ = score_BHSS.shape
    padded = F.pad(score_BHSS.flip(-1), (1, 0))
    return padded.reshape(B, H, S + 1, S)[:, :, 1:].reshape(B, H, S, S)


def in_pieces(q_BHSV: Tensor, k_BHSV: Tensor, v_BHSV: Tensor, r_SHV: Tensor, rows: int = ROWS) -> Tensor:
    S, V = q_BHSV.shape[-2:]
    wide = torch.promote_types(q_BHSV.dtype, torch.float32)
    mixed = []
    for first in range(0, S, rows):
        end = min(first + rows, S)
        R, q_BHRV = end - first, q_BHSV[:, :, first:end]
        # Column c is distance end−1−c. Row i read from R−1−i on: a view, where the padded rows are seen askew.
        by_distance = torch.einsum("bhsv,thv->bhst", q_BHRV, r_SHV[:end].flip(0))
        askew = F.pad(by_distance, (0, 1)).flatten(2)[:, :, R - 1 : -1].unflatten(2, (R, end))
        scores = (q_BHRV @ k_BHSV[:, :, :end].transpose(2, 3)).to(wide) + askew.to(wide)
        future = torch.ones(R, end, dtype=torch.bool, device=q_BHSV.device).triu(first + 1)
        weight = _Softmax.apply((scores / math.sqrt(V)).masked_fill(future, float("-inf")), q_BHSV.dtype)
        mixed.append(weight @ v_BHSV[:, :, :end])  # pyrefly: ignore
    return torch.cat(mixed, 2)


class _Softmax(torch.autograd.Function):
    """Worked out in wide numbers, and kept, for the product that follows and for its own gradient, in narrow ones."""

    @staticmethod
    def forward(scores: Tensor, dtype: torch.dtype) -> Tensor:
        return scores.softmax(-1).to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.wide = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        weight, gradient = ctx.saved_tensors[0].to(ctx.wide), gradient.to(ctx.wide)
        return weight * (gradient - (weight * gradient).sum(-1, keepdim=True)), None
