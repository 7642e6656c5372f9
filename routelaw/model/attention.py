"""Causal self-attention with Transformer-XL relative positions (Dai et al. 2019) or rotary ones (Su et al. 2021).

The paper's form has no global biases u and v: score_ij = (q_i·k_j + q_i·r_{i−j}) / √v with r = sinusoid·W_r, one
projection d → H·v per block. Keys and values have their own size v, so H·v need not equal the width. Tensor-parallel
processes have their share of the heads each; what they add to the residual stream is summed.

Shapes: B batch, S sequence, D width, H heads, V key/value size.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from routelaw.model.parallel import NOBODY_ELSE, Team
from routelaw.specs.architecture import Architecture

ROPE_BASE = 10_000.0


def sinusoids(length: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(length, width): sines then cosines of the distances 0 … length−1."""
    distance = torch.arange(length, device=device, dtype=torch.float64)
    rate = torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float64) * (-math.log(ROPE_BASE) / width))
    angle = distance[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width].to(dtype)


def by_distance_to_by_key(score_BHSS: Tensor) -> Tensor:
    """Scores indexed by distance i−j, (…, i, distance), moved to (…, i, j); entries with j > i are garbage to be
    masked.

    Row i reversed holds distances S−1 … 0; shifting it left by S−1−i puts distance i−j at column j. A pad and a
    reshape do it.
    """
    B, H, S, _ = score_BHSS.shape
    padded = F.pad(score_BHSS.flip(-1), (1, 0))
    return padded.reshape(B, H, S + 1, S)[:, :, 1:].reshape(B, H, S, S)


def rotate(x_BHSV: Tensor) -> Tensor:
    """Rotary positions: pairs (i, i + V/2) turned by position · base^(−2i/V)."""
    S, V = x_BHSV.shape[-2:]
    rate = ROPE_BASE ** (-torch.arange(0, V, 2, device=x_BHSV.device, dtype=torch.float64) / V)
    angle_SV = torch.arange(S, device=x_BHSV.device, dtype=torch.float64)[:, None] * rate
    wide = torch.promote_types(x_BHSV.dtype, torch.float32)
    cos, sin = angle_SV.cos().to(wide), angle_SV.sin().to(wide)
    first, second = x_BHSV.to(wide).chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x_BHSV.dtype)


class Attention(nn.Module):
    def __init__(self, architecture: Architecture, positions: str, tensor: Team = NOBODY_ELSE) -> None:
        super().__init__()
        self.tensor, self.positions = tensor, positions
        self.heads, self.kv_size = architecture.heads // tensor.size, architecture.kv_size
        width, inner = architecture.d_model, self.heads * self.kv_size
        self.query = nn.Linear(width, inner, bias=False)
        self.key = nn.Linear(width, inner, bias=False)
        self.value = nn.Linear(width, inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        if positions == "xl":
            self.relative = nn.Linear(width, inner, bias=False)

    def forward(self, x_BSD: Tensor) -> Tensor:
        x_BSD = self.tensor.enter(x_BSD)
        q, k, v = (self._heads(project(x_BSD)) for project in (self.query, self.key, self.value))
        if self.positions == "rope":
            mixed = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self._relative_scores(x_BSD, q))
        B, _, S, _ = mixed.shape
        return self.tensor.leave(self.out(mixed.transpose(1, 2).reshape(B, S, self.heads * self.kv_size)))

    def _relative_scores(self, x_BSD: Tensor, q_BHSV: Tensor) -> Tensor:
        """q_i·r_{i−j}/√v where j ≤ i and −∞ elsewhere: an additive mask for the attention product."""
        S, D = x_BSD.shape[1:]
        r_SHV = self.relative(sinusoids(S, D, x_BSD.device, x_BSD.dtype)).view(S, self.heads, self.kv_size)
        by_distance = torch.einsum("bhsv,thv->bhst", q_BHSV, r_SHV) / math.sqrt(self.kv_size)
        future = torch.ones(S, S, dtype=torch.bool, device=x_BSD.device).triu(1)
        return by_distance_to_by_key(by_distance).masked_fill(future, float("-inf"))

    def _heads(self, x_BSI: Tensor) -> Tensor:
        B, S, _ = x_BSI.shape
        return x_BSI.view(B, S, self.heads, self.kv_size).transpose(1, 2)
