"""What charts show, computed once for the page (charts.py) and for files that do not move (static_figures.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from routelaw.fitting.fit import Fit
from routelaw.fitting.selection import mean_error
from routelaw.fitting.slopes import law_slopes, slopes_by_size
from routelaw.laws import equivalence
from routelaw.laws.law import Array
from routelaw.report.runs.analysis import Analysis

CURVE_POINTS = 40
UNREACHABLE = 1e30
"""Effective sizes beyond this are none: no dense model reaches the loss."""
SOURCES = 8
"""Sources of a report whose series are kept until its page is written."""


@dataclass(frozen=True, eq=False)
class Series:
    """One line or one row of marks of a technique."""

    technique: str
    x: Array
    y: Array
    law: str = ""
    """That it belongs to; empty for what was measured without one."""
    size: str = ""
    """The size of the models, where all are of one."""
    active_params: float = np.nan
    measured: bool = False


@lru_cache(maxsize=SOURCES)
def loss_series(analysis: Analysis) -> list[Series]:
    """Loss over E, size by size: the routed models, and every fitted law in (N, E) before them."""
    found = []
    for key, points in analysis.points.items():
        for law in analysis.laws:
            if fit := analysis.fits(law).get(key):
                experts = _experts_grid(fit)
                for size, active, _ in fit.points.by_size():
                    losses = fit.predict(active_params=active, experts=experts)
                    found.append(Series(key, experts, losses, law, size, active))
        for size, active, group in points.where(~points.dense).by_size():
            found.append(Series(key, group.x["experts"], group.loss, "", size, active, measured=True))
    return found


@lru_cache(maxsize=SOURCES)
def effective_series(analysis: Analysis) -> list[Series]:
    """N̄ over E by size, under each law: how large a dense model of the same loss would be. Lines are
    what the law predicts, marks the measured losses turned into sizes by it."""
    found = []
    for law in analysis.laws:
        for key, fit in analysis.fits(law).items():
            experts = _experts_grid(fit)
            for size, active, group in fit.points.by_size():
                predicted = fit.predict(active_params=active, experts=experts)
                found.append(Series(key, experts, effective_sizes(fit, predicted), law, size, active))
                if len(routed := group.where(~group.dense)):
                    measured = effective_sizes(fit, routed.loss)
                    found.append(Series(key, routed.x["experts"], measured, law, size, active, measured=True))
    return found


def effective_sizes(fit: Fit, losses: Array) -> Array:
    """Sizes of dense models of these losses under a fit; NaN where there is none."""
    params = np.broadcast_to(fit.params_BP, (len(losses), fit.params_BP.shape[1]))
    with np.errstate(all="ignore"):
        sizes = equivalence.size_for_loss(fit.law, params, np.log10(losses), 1.0)
    return np.where((sizes > 1) & (sizes < UNREACHABLE), sizes, np.nan)


@lru_cache(maxsize=SOURCES)
def slope_series(analysis: Analysis) -> list[Series]:
    """Slope of log L in log E over N: of each size alone, and of the predictions of each law."""
    found = []
    for key, points in analysis.points.items():
        if measured := slopes_by_size(points):
            _, active, slopes = zip(*measured, strict=True)
            found.append(Series(key, np.array(active), np.array(slopes), measured=True))
        sizes = points.x["active_params"]
        grid = np.geomspace(sizes.min(), sizes.max(), CURVE_POINTS)
        found += [
            Series(key, grid, law_slopes(fit, grid), law)
            for law in analysis.laws
            if (fit := analysis.fits(law).get(key))
        ]
    return found


@dataclass(frozen=True, eq=False)
class RankedLaws:
    """Laws by leave-size-out error, in 1e-4 of log10 L: a row of a chart for each, with a mark for each technique."""

    parameters: dict[str, int]
    """By law, the best first."""
    rows: dict[str, list[tuple[str, float, float, float, float]]]
    """By technique: law, place (a row, a little beside the other techniques), error, and its interval."""


@lru_cache(maxsize=SOURCES)
def ranked_laws(analysis: Analysis) -> RankedLaws:
    parameters = {r.fit.law.name: len(r.fit.law.parameters) for rows in analysis.ranked.values() for r in rows}
    order = sorted(parameters, key=lambda name: (mean_error(analysis.ranked, name), parameters[name]))
    fitted = [key for key, rows in analysis.ranked.items() if rows]
    found: dict[str, list[tuple[str, float, float, float, float]]] = {}
    for nth, key in enumerate(fitted):
        offset = 0.0 if len(fitted) == 1 else 0.5 * (nth / (len(fitted) - 1) - 0.5)
        found[key] = []
        for r in analysis.ranked[key]:
            if (error := r.validation.leave_size_out) is not None:
                low, high = r.interval or (np.nan, np.nan)
                place = order.index(r.fit.law.name) + offset
                found[key].append((r.fit.law.name, place, 1e4 * error, 1e4 * low, 1e4 * high))
    return RankedLaws({name: parameters[name] for name in order}, found)


def _experts_grid(fit: Fit) -> Array:
    return np.geomspace(1, fit.points.x["experts"].max(), CURVE_POINTS)
