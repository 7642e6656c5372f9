"""Models that differ in K or in R only, and laws fitted to so few of them.

The paper's release has these variants for one router, two sizes and three expert counts. Six runs for each K or R
cannot determine six parameters: two sizes and three E make the saturated law exactly as rich as the grid. So the
saturation is held at the router's fit to the main sweep and the four coefficients that remain are fitted, which is
linear least squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelaw.figures.figure import CannotDraw
from routelaw.figures.selection import allowed, fit_of, points_of, routed_techniques, usual_of
from routelaw.fitting import Fit, Points
from routelaw.laws.compute import LAW as COMPUTE
from routelaw.laws.law import Inputs
from routelaw.laws.power_sum import PowerSum
from routelaw.laws.saturated import LAW as SATURATED
from routelaw.runs.table import RunTable

LEAST_SIZES, LEAST_EXPERTS = 2, 2
"""Sizes and expert counts that every value compared must have in common."""


@dataclass(frozen=True)
class Knob:
    """One choice of the routing architecture."""

    column: str
    symbol: str
    other: str
    """The choice that stays at its usual value."""


K = Knob("k", "K", "routing_frequency")
R = Knob("routing_frequency", "R", "k")


@dataclass(frozen=True)
class Variation:
    """The models of one router that differ in a knob, and the values of it that can be compared."""

    knob: Knob
    router: str
    values: tuple[float, ...]
    """In the order of the panels: ascending K, descending R."""
    usual: float
    points: Points
    """The grid of sizes and expert counts that every value has; the other knob at its usual value."""

    @property
    def symbol(self) -> str:
        return self.knob.symbol

    def label(self, value: float) -> str:
        return f"{self.symbol} = {value:.3g}"

    def by_value(self) -> dict[float, Points]:
        column = self.points.x[self.knob.column]
        return {value: self.points.where(np.isclose(column, value)) for value in self.values}


def varied(table: RunTable, knob: Knob) -> Variation:
    """The router with most models that differ in this knob alone, at several sizes and expert counts."""
    found, reasons = [], []
    for router in routed_techniques(table):
        try:
            found.append(_variation(table, router, knob))
        except CannotDraw as error:
            reasons.append(str(error))
    if not found:
        raise CannotDraw(reasons[0] if len(reasons) == 1 else _none_varied(knob, bool(reasons)))
    return max(found, key=lambda variation: len(variation.points))


def _none_varied(knob: Knob, routed: bool) -> str:
    if not routed:
        return "there are no routed runs."
    return (
        f"no router was trained with several {knob.symbol} at {LEAST_SIZES} sizes and {LEAST_EXPERTS} expert counts "
        "alike."
    )


def _variation(table: RunTable, router: str, knob: Knob) -> Variation:
    points = points_of(table, router, include_dense=False, mixed=True)
    usual = {"k": usual_of(table).k, "routing_frequency": usual_of(table).routing_frequency}
    points = points.where(np.isclose(points.x[knob.other], usual[knob.other]), f"with another {knob.other}")
    column = points.x[knob.column]
    cells = {float(v): _cells(points.where(np.isclose(column, v))) for v in np.unique(column)}
    main = next((value for value in cells if np.isclose(value, usual[knob.column])), None)
    if main is None or len(cells) < 2:
        raise CannotDraw(f"{router} was not trained with several {knob.symbol}, the usual one among them.")
    values, common = [main], cells[main]
    # Those that share most models with the usual value first; a value that leaves too few to compare is left out.
    for value in sorted(cells, key=lambda v: (-len(cells[v] & cells[main]), v)):
        if value != main and _is_grid(common & cells[value]):
            values, common = [*values, value], common & cells[value]
    if len(values) < 2:
        raise CannotDraw(
            f"{router} was trained with several {knob.symbol}, but not at {LEAST_SIZES} sizes and {LEAST_EXPERTS} "
            "expert counts alike."
        )
    chosen = np.array([cell in common for cell in zip(points.size, points.x["experts"], strict=True)])
    compared = np.isclose(column[:, None], values).any(1)
    points = points.where(chosen & compared, f"not trained for every {knob.symbol} compared")
    return Variation(knob, router, tuple(sorted(values, reverse=knob is R)), main, points)


def _cells(points: Points) -> set[tuple[str, float]]:
    return set(zip(points.size, points.x["experts"], strict=True))


def _is_grid(cells: set[tuple[str, float]]) -> bool:
    sizes, experts = ({cell[i] for cell in cells} for i in (0, 1))
    return len(sizes) >= LEAST_SIZES and len(experts) >= LEAST_EXPERTS


def held_saturation(law: PowerSum, fit: Fit) -> PowerSum:
    """`law` with its saturation at the values of `fit`: what is left is linear in its four coefficients."""
    saturation, second = law.saturation, law.second
    assert saturation is not None
    assert second is not None
    start, ceiling = (np.array([fit.params[p.name]]) for p in (saturation.start, saturation.ceiling))

    def effective(x: Inputs):
        values = np.atleast_2d(second(x))
        return 10.0 ** saturation.log_effective(values, start, ceiling).reshape(np.shape(second(x)))

    return PowerSum(
        name=f"{law.name}, saturation held",
        formula=law.formula,
        source=law.source,
        inputs=law.inputs,
        terms=law.terms,
        first=law.first,
        second=effective,
    )


def held_laws(table: RunTable, router: str) -> tuple[PowerSum, PowerSum]:
    """The (N, E) and the (F, B) law with the saturation of the router's main sweep: usual K and R, dense as E = 1."""
    sweep = points_of(table, router)
    in_experts, in_compute = fit_of(SATURATED, sweep), fit_of(COMPUTE, sweep)
    return allowed(sweep, lambda: (held_saturation(SATURATED, in_experts), held_saturation(COMPUTE, in_compute)))
