"""Something that predicts losses: a law with parameters, from a fit of yours or from the literature."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import DEFAULT_LEVEL, Draws
from routelaw.fitting.judgement import Judgement
from routelaw.fitting.points import DEFAULT_FREQUENCY, DEFAULT_K
from routelaw.fitting.profile import profile_intervals
from routelaw.fitting.quantities import Quantity
from routelaw.laws.law import Array, Law

Range = tuple[float, float]

AXES = {
    "flops_per_token": "compute per token",
    "total_params": "the number of parameters in all",
    "params_per_flop": "the number of parameters per FLOP",
}
"""What a law may read beside N and E, in words. The last is B = P/F, the second axis of the law in compute."""


@dataclass(frozen=True, eq=False)
class Predictor:
    name: str
    router: str
    law: Law
    params_BP: Array
    """One row: the fitted or published parameters."""
    source: str
    size_range: Range
    """Active parameters between which the law was fitted; outside is extrapolation."""
    experts_range: Range
    draws: Draws | None = None
    k: int = DEFAULT_K
    routing_frequency: float = DEFAULT_FREQUENCY
    """K and R of the routed models behind a law in (N, E): the only ones it speaks of."""
    architectures: frozenset[tuple[int, float]] = frozenset({(DEFAULT_K, DEFAULT_FREQUENCY)})
    """Every (K, R) of the routed models fitted."""
    axis_ranges: Mapping[str, Range] = field(default_factory=dict)
    """Between which values of the law's other inputs (see AXES) it was fitted."""
    left_out: tuple[str, ...] = ()
    """Runs of the table that the fit did not take."""
    warnings: tuple[str, ...] = ()
    profiled: Fit | None = None
    """The fit, where its intervals are profiles because it has too few sizes to resample."""
    is_published: bool = False

    @classmethod
    def from_judgement(cls, judged: Judgement) -> Predictor:
        fit = judged.fit
        return replace(
            cls.from_fit(fit),
            draws=judged.draws,
            warnings=judged.warnings,
            profiled=fit if judged.draws is None and judged.method == "profile" else None,
        )

    @classmethod
    def from_fit(cls, fit: Fit) -> Predictor:
        """Without intervals: what it predicts, and how far its data reach."""
        x, routed_N = fit.points.x, ~fit.points.dense
        pairs = {(int(k), float(r)) for k, r in zip(x["k"][routed_N], x["routing_frequency"][routed_N], strict=True)}
        ks, frequencies = {k for k, _ in pairs}, {r for _, r in pairs}
        return cls(
            name=f"{fit.law.name} fitted to {fit.points.router}",
            router=fit.points.router,
            law=fit.law,
            params_BP=fit.params_BP,
            source=fit.points.source,
            size_range=_range(x["active_params"]),
            experts_range=_range(x["experts"]),
            k=min(ks) if len(ks) == 1 else DEFAULT_K,
            routing_frequency=min(frequencies) if len(frequencies) == 1 else DEFAULT_FREQUENCY,
            architectures=frozenset(pairs),
            axis_ranges={name: _range(values_N) for name, values_N in _axes(fit.law, x).items()},
            left_out=fit.points.left_out,
            warnings=fit.warnings,
        )

    def value(self, quantity: Quantity) -> float:
        return quantity.value(float(quantity.of(self.params_BP)[0]))

    def interval(self, quantity: Quantity, level: float = DEFAULT_LEVEL) -> Range | None:
        """None for published coefficients, which come without uncertainty, and for too few points."""
        if self.draws is not None:
            ends = self.draws.interval(quantity, level)
        elif self.profiled is not None:
            (ends,) = profile_intervals(self.profiled, [quantity], level)
        else:
            return None
        return ends.low, ends.high

    def log_loss(self, **inputs: Array) -> Array:
        """log10 L at many points at once, (N,)."""
        return self.law.log_loss(self.params_BP, {k: np.asarray(v, float) for k, v in inputs.items()})[0]

    def extrapolation(
        self,
        active_params: float,
        experts: float,
        architecture: tuple[int, float] | None = None,
        counted: Mapping[str, float] | None = None,
    ) -> str:
        """How a point lies outside what was fitted, in words; empty inside.

        `architecture` is its (K, R), which mean nothing with one expert; `counted` its compute and total parameters.
        """
        reasons = [_outside("size", "largest", active_params, self.size_range)]
        fewest, most = self.experts_range
        if experts > most:
            reasons.append(f"E is beyond the {most:g} fitted")
        if experts < fewest:
            reasons.append(f"E is below the {fewest:g} fitted")
        if architecture and experts > 1:
            reasons.append(self._unseen(*architecture))
        for name, value in _axes(self.law, counted or {}).items():
            if name in self.axis_ranges:
                reasons.append(_outside(AXES[name], "most", float(value), self.axis_ranges[name]))
        return " and ".join(filter(None, reasons))

    def _unseen(self, k: int, routing_frequency: float) -> str:
        if any(k == seen_k and np.isclose(routing_frequency, seen_r) for seen_k, seen_r in self.architectures):
            return ""
        return f"no model of K = {k} with R = {routing_frequency:g} was fitted"


def _axes(law: Law, x: Mapping[str, Array] | Mapping[str, float]) -> dict[str, Array]:
    """What a law reads beside N and E: compute and parameters per operation, or parameters alone."""
    read = {
        name: np.asarray(x[name], float)
        for name in ("flops_per_token", "total_params")
        if name in law.inputs and name in x
    }
    if len(read) == 2:
        return {
            "flops_per_token": read["flops_per_token"],
            "params_per_flop": read["total_params"] / read["flops_per_token"],
        }
    return read


def _range(values_N: Array) -> Range:
    return float(np.min(values_N)), float(np.max(values_N))


def _outside(what: str, extreme: str, value: float, fitted: Range) -> str:
    low, high = fitted
    least = {"largest": "smallest", "most": "least"}[extreme]
    if value > high * 1.01:
        return f"{what} is {_times(value / high)}× the {extreme} fitted"
    if value < low * 0.99:
        return f"{what} is {_times(low / value)}× below the {least} fitted"
    return ""


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}" if ratio < 1e5 else f"{ratio:.1e}"
