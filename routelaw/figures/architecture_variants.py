"""S-BASE models that differ in K or in R only, and laws fitted to so few of them.

The release has these variants for two sizes and three expert counts. Six runs for each K or R cannot determine six
parameters: two sizes and three E make the saturated law exactly as rich as the grid. So the saturation is held at the
router's fit to the main sweep and the four coefficients that remain are fitted, which is linear least squares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelaw.fitting import Fit, Points, fit_law, select_points
from routelaw.laws.compute import LAW as COMPUTE
from routelaw.laws.law import Inputs
from routelaw.laws.power_sum import PowerSum
from routelaw.laws.saturated import LAW as SATURATED
from routelaw.runs.table import RunTable

ROUTER = "s-base"
MAIN_K, MAIN_FREQUENCY = 1, 0.5


@dataclass(frozen=True)
class Variation:
    """One knob of the routing architecture and the values of it that the paper compares."""

    column: str
    symbol: str
    values: tuple[float, ...]

    def label(self, value: float) -> str:
        return f"{self.symbol} = {value:g}"


VARY_K = Variation("k", "K", (1, 2, 4))
VARY_R = Variation("routing_frequency", "R", (1.0, 0.5, 0.25))


def variant_points(table: RunTable, vary: Variation) -> Points:
    """The grid of sizes and expert counts that every value of the knob has; the other knob at its usual value."""
    points = select_points(table, ROUTER, include_dense=False, mixed=True)
    fixed = "routing_frequency" if vary.column == "k" else "k"
    usual = MAIN_FREQUENCY if fixed == "routing_frequency" else MAIN_K
    points = points.where(np.isclose(points.x[fixed], usual), f"with {fixed} other than {usual:g}")
    cells = [set(zip(g.size, g.x["experts"], strict=True)) for g in by_value(points, vary).values()]
    common = set.intersection(*cells)
    chosen = [cell in common for cell in zip(points.size, points.x["experts"], strict=True)]
    compared = np.isclose(points.x[vary.column][:, None], vary.values).any(1)
    return points.where(np.array(chosen) & compared, f"not trained for every {vary.symbol} compared")


def by_value(points: Points, vary: Variation) -> dict[float, Points]:
    return {value: points.where(np.isclose(points.x[vary.column], value)) for value in vary.values}


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


def held_laws(table: RunTable) -> tuple[PowerSum, PowerSum]:
    """The (N, E) and the (F, B) law with the saturation of the router's main sweep (K = 1, R = 0.5, dense as E = 1)."""
    sweep = select_points(table, ROUTER, k=MAIN_K, routing_frequency=MAIN_FREQUENCY)
    return held_saturation(SATURATED, fit_law(SATURATED, sweep)), held_saturation(COMPUTE, fit_law(COMPUTE, sweep))
