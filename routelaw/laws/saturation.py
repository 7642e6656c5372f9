"""The paper's saturating transform of the expert count (its Eq. for 1/Ê), with its derivatives.

    1/Ê = 1/(E − E_min + (1/E_start − 1/E_max)^−1) + 1/E_max

so that Ê(E_min) = E_start and Ê → E_max as E grows. Below E_min (dense models in the (F, B) form) it is used as far
as it stays positive; beyond that it is NaN and a fit turns away from such parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelaw.laws.law import LN10, Array, Parameter


@dataclass(frozen=True)
class Saturation:
    """Which two parameters saturate the second axis, and the value E_min at which it begins."""

    start: Parameter
    ceiling: Parameter
    minimum: float = 1.0

    def log_effective(self, experts_N: Array, start_B: Array, ceiling_B: Array) -> Array:
        """log10 Ê for every (fit, point): (B, N)."""
        return np.log10(self._effective(experts_N, start_B, ceiling_B)[0])

    def derivatives(self, experts_N: Array, start_B: Array, ceiling_B: Array) -> tuple[Array, Array]:
        """d log10 Ê by E_start and by E_max, each (B, N)."""
        effective_BN, shifted_BN, base_B1 = self._effective(experts_N, start_B, ceiling_B)
        start_B1, ceiling_B1 = start_B[:, None], ceiling_B[:, None]
        # 1/Ê = 1/s + 1/M with s = E − E_min + q and q = 1/(1/S − 1/M): dq/dS = q²/S², dq/dM = −q²/M².
        by_start = effective_BN / shifted_BN**2 * base_B1**2 / start_B1**2
        by_ceiling = effective_BN / ceiling_B1**2 * (1.0 - base_B1**2 / shifted_BN**2)
        return by_start / LN10, by_ceiling / LN10

    def _effective(self, experts_N: Array, start_B: Array, ceiling_B: Array) -> tuple[Array, Array, Array]:
        start_B1, ceiling_B1 = start_B[:, None], ceiling_B[:, None]
        room_B1 = 1.0 / start_B1 - 1.0 / ceiling_B1
        base_B1 = 1.0 / np.where(room_B1 > 0, room_B1, np.nan)
        shifted_BN = experts_N - self.minimum + base_B1
        shifted_BN = np.where(shifted_BN > 0, shifted_BN, np.nan)
        effective_BN = 1.0 / (1.0 / shifted_BN + 1.0 / ceiling_B1)
        return effective_BN, shifted_BN, base_B1


E_START = Parameter(
    "e_start",
    "effective experts of a dense model, Ê(1): above 1, routing pays an overhead at small E",
    low=0.1,
    high=1e3,
    log=True,
    starts=(1.05, 1.6, 2.5, 4.5, 9.0),
)
E_MAX = Parameter(
    "e_max",
    "effective experts as E → ∞: where the power law in E has run out",
    low=2.0,
    high=1e6,
    log=True,
    starts=(30.0, 100.0, 250.0, 600.0, 2e3, 2e4),
)
EXPERTS = Saturation(E_START, E_MAX)
