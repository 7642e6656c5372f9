"""Random numbers as a function of where they are used: (seed, step, layer, purpose, global token, choice).

No generator state: a step can be recomputed, resumed or split over devices and micro-batches, and every token still
draws the numbers it would have drawn. The mixing function is splitmix64's finaliser (Steele et al. 2014) in wrapping
int64 arithmetic.

Shapes: T tokens, J numbers per token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MASK53 = (1 << 53) - 1


def _signed(value: int) -> int:
    """A 64-bit pattern as the int64 that holds it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


_GAMMA, _MIX1, _MIX2 = (_signed(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mix(value: Tensor) -> Tensor:
    """A bijection of int64 that scatters neighbouring values."""
    value = value + _GAMMA
    value = (value ^ _logical_shift(value, 30)) * _MIX1
    value = (value ^ _logical_shift(value, 27)) * _MIX2
    return value ^ _logical_shift(value, 31)


def _logical_shift(value: Tensor, bits: int) -> Tensor:
    return (value >> bits) & ((1 << (64 - bits)) - 1)


@dataclass(frozen=True)
class Randomness:
    """Numbers for one layer at one step. `purpose` separates the uses within a layer."""

    key: Tensor
    """int64 scalar tensor, so that a compiled step does not see a new constant at every step."""

    @classmethod
    def of(cls, seed: int, step: int | Tensor, layer: int | Tensor, device: torch.device | None = None) -> Randomness:
        key = mix(torch.full((), seed, dtype=torch.int64, device=device))  # filled there: a copy would be waited for
        if not isinstance(step, Tensor):
            step = torch.full((), step, dtype=torch.int64, device=device)
        key = mix(key ^ step)
        return cls(mix(key ^ layer))

    def bits(self, purpose: int, token_T: Tensor, choices: int = 1) -> Tensor:
        """(T, choices) int64, all 64 bits random."""
        choice_J = torch.arange(choices, device=token_T.device, dtype=torch.int64)
        key = mix(self.key ^ (purpose + 1))
        return mix(mix(key ^ token_T.to(torch.int64))[:, None] ^ choice_J)

    def uniform(self, purpose: int, token_T: Tensor, choices: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
        """(T, choices) in the open interval (0, 1), so that its logarithm is finite."""
        mantissa = _logical_shift(self.bits(purpose, token_T, choices), 11) & _MASK53
        value = (mantissa.to(torch.float64) + 0.5) * 2.0**-53
        return value.to(dtype).clamp(min=torch.finfo(dtype).tiny, max=1 - torch.finfo(dtype).eps)
