"""Something that predicts losses: a law with parameters, from a fit of yours or from the literature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.fit_report import FitReport, Range, fitted_range, judge, outside, outside_grid
from routelaw.fitting.intervals import DEFAULT_DRAWS, DEFAULT_LEVEL, Draws, Quantity, Resamples
from routelaw.fitting.points import DEFAULT_FREQUENCY, DEFAULT_K, has_finished, knows_routing, select_points
from routelaw.fitting.profile import profile_intervals
from routelaw.laws import get_law
from routelaw.laws.law import Array, Law
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE, canonical_router

AXES = {
    "flops_per_token": "compute per token",
    "total_params": "the number of parameters in all",
    "params_per_flop": "the number of parameters per FLOP",
}
"""What a law may read beside N and E, in words. The last is B = P/F, the second axis of the law in compute."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """A law with parameters and the ranges it was fitted on: of a fit of yours, or from the literature.

    >>> mine = rl.Predictor.from_report(rl.judge(fit, draws=50))
    >>> mine
    Predictor(bilinear fitted to s-base)
    >>> mine.extrapolation(active_params=1e10, experts=64)
    'size is 10.0× the largest fitted'
    """

    name: str
    router: str
    law: Law
    params_BP: Array
    """One row: the fitted or published parameters."""
    source: str
    size_range: Range
    """Active parameters between which the law was fitted; outside is extrapolation."""
    experts_range: Range
    draws: Draws | Resamples | None = None
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

    def __repr__(self) -> str:
        return f"Predictor({self.name})"

    @classmethod
    def from_report(cls, judged: FitReport) -> Predictor:
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
            size_range=fitted_range(x["active_params"]),
            experts_range=fitted_range(x["experts"]),
            k=min(ks) if len(ks) == 1 else DEFAULT_K,
            routing_frequency=min(frequencies) if len(frequencies) == 1 else DEFAULT_FREQUENCY,
            architectures=frozenset(pairs),
            axis_ranges={name: fitted_range(values_N) for name, values_N in _axes(fit.law, x).items()},
            left_out=fit.points.left_out,
            warnings=fit.warnings,
        )

    def value(self, quantity: Quantity) -> float:
        return quantity.at(self.params_BP)

    def interval(self, quantity: Quantity, level: float = DEFAULT_LEVEL) -> Range | None:
        """None for coefficients that were published without uncertainty, and for too few points."""
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
        reasons = [*outside_grid(self.size_range, self.experts_range, active_params, experts)]
        if architecture and experts > 1:
            reasons.append(self._unseen(*architecture))
        for name, value in _axes(self.law, counted or {}).items():
            if name in self.axis_ranges:
                reasons.append(outside(AXES[name], "most", float(value), self.axis_ranges[name]))
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


def fitted_predictors(
    table: RunTable,
    law: str | Law,
    routers: Sequence[str] = (),
    *,
    target: str = "loss_validation",
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    check: Callable[[Law], None] = lambda _: None,
    notice: Callable[[str], None] = lambda _: None,
) -> list[Predictor]:
    """The law fitted to each router of the table, or to those named. `check` refuses a law that the caller has no use
    for, before anything is fitted; `notice` hears which routers are left out."""
    law = get_law(law)
    check(law)
    asked = list(dict.fromkeys(map(canonical_router, routers)))
    wanted = asked or ([r for r in table.routers if r != DENSE] if knows_routing(law) else [DENSE])
    if not wanted:
        raise InputError(f"{table.source}: there are only dense runs, which --law dense describes.")
    made = []
    for router in wanted:
        if not asked and len(wanted) > 1 and not has_finished(table, router):
            notice(f"{router} is left out: it has no finished run.")
            continue
        points = select_points(table, router, law, target=target)
        made.append(Predictor.from_report(judge(fit_law(law, points), draws=draws, seed=seed)))
    if not made:
        raise InputError(f"{table.source}: no router has a finished run to fit.")
    return made
