"""Something that predicts losses: a law with parameters, from a fit of yours or from the literature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelaw.fitting.intervals import DEFAULT_LEVEL, Draws
from routelaw.fitting.judgement import Judgement
from routelaw.fitting.points import DEFAULT_FREQUENCY, DEFAULT_K
from routelaw.fitting.quantities import Quantity
from routelaw.laws.law import Array, Law


@dataclass(frozen=True, eq=False)
class Predictor:
    name: str
    router: str
    law: Law
    params_BP: Array
    """One row: the fitted or published parameters."""
    source: str
    size_range: tuple[float, float]
    """Active parameters between which the law was fitted; outside is extrapolation."""
    experts_range: tuple[float, float]
    draws: Draws | None = None
    k: int = DEFAULT_K
    routing_frequency: float = DEFAULT_FREQUENCY
    """K and R of the routed models behind a law in (N, E): the only ones it speaks of."""

    @classmethod
    def from_judgement(cls, judged: Judgement) -> Predictor:
        fit = judged.fit
        sizes, experts = fit.points.x["active_params"], fit.points.x["experts"]
        routed_N = ~fit.points.dense
        ks, frequencies = (np.unique(fit.points.x[name][routed_N]) for name in ("k", "routing_frequency"))
        return cls(
            name=f"{fit.law.name} fitted to {fit.points.router}",
            router=fit.points.router,
            law=fit.law,
            params_BP=fit.params_BP,
            source=fit.points.source,
            size_range=(float(sizes.min()), float(sizes.max())),
            experts_range=(float(experts.min()), float(experts.max())),
            draws=judged.draws,
            k=int(ks[0]) if len(ks) == 1 else DEFAULT_K,
            routing_frequency=float(frequencies[0]) if len(frequencies) == 1 else DEFAULT_FREQUENCY,
        )

    def value(self, quantity: Quantity) -> float:
        return quantity.value(float(quantity.of(self.params_BP)[0]))

    def interval(self, quantity: Quantity, level: float = DEFAULT_LEVEL) -> tuple[float, float] | None:
        """None for published coefficients, which come without uncertainty."""
        if self.draws is None:
            return None
        ends = self.draws.interval(quantity, level)
        return ends.low, ends.high

    def log_loss(self, **inputs: Array) -> Array:
        """log10 L at many points at once, (N,)."""
        return self.law.log_loss(self.params_BP, {k: np.asarray(v, float) for k, v in inputs.items()})[0]

    def extrapolation(self, active_params: float, experts: float) -> str:
        """How a point lies outside what was fitted, in words; empty inside."""
        reasons = []
        low, high = self.size_range
        if active_params < low * 0.99 or active_params > high * 1.01:
            side = (
                f"{active_params / high:.1f}× the largest"
                if active_params > high
                else f"{low / active_params:.1f}× below the smallest"
            )
            reasons.append(f"size is {side} fitted")
        fewest, most = self.experts_range
        if experts > most:
            reasons.append(f"E is beyond the {most:g} fitted")
        if experts < fewest:
            reasons.append(f"E is below the {fewest:g} fitted")
        return " and ".join(reasons)
