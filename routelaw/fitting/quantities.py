"""Things one wants an interval for: a law's parameters and what follows from them, on a scale where errors are even.

A quantity maps parameter vectors to values on its own scale (log10 for sizes and expert counts), so bootstrap draws and
profiles treat parameters and derived quantities alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from routelaw.laws import equivalence
from routelaw.laws.law import Array, Law


@dataclass(frozen=True)
class Quantity:
    name: str
    of: Callable[[Array], Array]
    """params_BP -> value on the quantity's scale, (B,)."""
    log: bool = False
    """The scale is log10 of the value; reported values are undone."""
    low: float = -np.inf
    high: float = np.inf
    """Limits on the scale: an interval that reaches one is open there."""

    def value(self, scaled: float) -> float:
        with np.errstate(over="ignore"):
            return float(10.0**scaled) if self.log else float(scaled)


def parameter_quantities(law: Law) -> list[Quantity]:
    low_P, high_P = law.search_bounds()
    return [
        Quantity(
            p.name,
            lambda params_BP, i=i: law.to_search(params_BP)[:, i],
            log=p.log,
            low=float(low_P[i]),
            high=float(high_P[i]),
        )
        for i, p in enumerate(law.parameters)
    ]


def _log10(values_B: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log10(values_B)


def n_cut(law: Law) -> Quantity:
    return Quantity("n_cut", lambda p: _log10(equivalence.cutoff(law, p)), log=True)


def effective_params(law: Law, active_params: float, experts: float) -> Quantity:
    return Quantity("epc", lambda p: _log10(equivalence.effective_params(law, p, active_params, experts)), log=True)


def max_effective_params(law: Law, active_params: float) -> Quantity:
    return Quantity("epc_max", lambda p: _log10(equivalence.max_effective_params(law, p, active_params)), log=True)


def size_slope(law: Law, active_params: float, experts: float) -> Quantity:
    return Quantity("a_of_e", lambda p: equivalence.slopes_at(law, p, active_params, experts)[0])


def expert_slope(law: Law, active_params: float, experts: float) -> Quantity:
    return Quantity("b_of_n", lambda p: equivalence.slopes_at(law, p, active_params, experts)[1])


def loss_at(law: Law, **inputs: float) -> Quantity:
    """Loss at a point given in the law's own inputs."""
    x = {k: np.array([v], dtype=float) for k, v in inputs.items()}
    return Quantity("loss", lambda p: np.broadcast_to(law.log_loss(p, x), (len(p), 1))[:, 0], log=True)


def derived_quantities(law: Law, active_params: float, experts: float) -> list[Quantity]:
    """The paper's applications for a law in (N, E), at a reference size and expert count."""
    if not {"active_params", "experts"} <= set(law.inputs) <= {"active_params", "experts"}:
        return []
    return [
        n_cut(law),
        effective_params(law, active_params, experts),
        max_effective_params(law, active_params),
        size_slope(law, active_params, experts),
        expert_slope(law, active_params, experts),
        loss_at(law, active_params=active_params, experts=experts),
    ]
