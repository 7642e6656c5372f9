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

from routelaw.distributed.groups import SINGLE, Group
from routelaw.kernels.cpu_float32 import linear
from routelaw.model.relative_attention import relative_attention
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ModelSpec

ROPE_BASE = 10_000.0


def sinusoids(length: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(length, width): sines then cosines of the distances 0 … length−1."""
    distance = torch.arange(length, device=device, dtype=torch.float64)
    rate = torch.exp(torch.arange(0, width, 2, device=device, dtype=torch.float64) * (-math.log(ROPE_BASE) / width))
    angle = distance[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :width].to(dtype)


def turns(length: int, kv_size: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """(2, length, kv_size/2): cosines and sines of position · base^(−2i/V), in float32 at least."""
    rate = ROPE_BASE ** (-torch.arange(0, kv_size, 2, device=device, dtype=torch.float64) / kv_size)
    angle = torch.arange(length, device=device, dtype=torch.float64)[:, None] * rate
    return torch.stack([angle.cos(), angle.sin()]).to(torch.promote_types(dtype, torch.float32))


def rotate(x_BHSV: Tensor, turns_2SV: Tensor) -> Tensor:
    """Rotary positions: pairs (i, i + V/2) turned."""
    cos, sin = turns_2SV
    first, second = x_BHSV.to(turns_2SV.dtype).chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x_BHSV.dtype)


def position_table(spec: ModelSpec, length: int, like: Tensor) -> Tensor:
    """What all blocks need to know of positions. Made once, outside of them: a compiler would work it out anew, in
    float64, for every number that it touches."""
    if spec.positions == "rope":
        return turns(length, spec.architecture.kv_size, like.device, like.dtype)
    return sinusoids(length, spec.architecture.d_model, like.device, like.dtype)


class Attention(nn.Module):
    def __init__(self, architecture: Architecture, positions: str, tensor: Group = SINGLE) -> None:
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

    def forward(self, x_BSD: Tensor, table: Tensor) -> Tensor:
        x_BSD = self.tensor.copy_to_group(x_BSD)
        q, k, v = (self._heads(linear(x_BSD, of.weight)) for of in (self.query, self.key, self.value))
        if self.positions == "rope":
            mixed = F.scaled_dot_product_attention(rotate(q, table), rotate(k, table), v, is_causal=True)
        else:
            r_SHV = linear(table, self.relative.weight).view(len(table), self.heads, self.kv_size)
            mixed = relative_attention(q, k, v, r_SHV)
        B, _, S, _ = mixed.shape
        return self.tensor.reduce_from_group(
            linear(mixed.transpose(1, 2).reshape(B, S, self.heads * self.kv_size), self.out.weight)
        )

    def _heads(self, x_BSI: Tensor) -> Tensor:
        B, S, _ = x_BSI.shape
        return x_BSI.view(B, S, self.heads, self.kv_size).transpose(1, 2)
