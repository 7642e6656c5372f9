"""What charts show, computed once for the page (charts.py) and for files that do not move (static_figures.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import DEFAULT_LEVEL, Draws, stretched_ends
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


NODES_PER_DECADE = 24
BELOW, BEYOND = 4.0, 32.0
"""How far the slider of N reaches below the smallest and beyond the largest size."""
EXPERTS_BEYOND = 8
FEWEST_EXPERTS = 64
"""The slider of E reaches at least so far."""
DRAWS = 300
"""Draws of the bootstrap behind the intervals: quantiles at the ends of 90 % need no more."""


def explorer_data(analysis: Analysis) -> dict[str, Any] | None:
    """What the page's sliders read; None where no law in (N, E) could be fitted."""
    if not analysis.laws:
        return None
    fits = {law: analysis.fits(law) for law in analysis.laws}
    known = {key: points for key, points in analysis.points.items() if any(key in own for own in fits.values())}
    trained = np.unique(np.concatenate([points.x["active_params"] for points in known.values()]))
    sizes_G = size_nodes(trained)
    experts_H = expert_nodes(max(float(points.x["experts"].max()) for points in known.values()))
    start = next(iter(analysis.judged.values())).at if analysis.judged else {}
    return {
        "sizes": [int(n) for n in sizes_G],
        "experts": [int(e) for e in experts_H],
        "start": [
            _nearest(sizes_G, start.get("active_params", float(trained[len(trained) // 2]))),
            _nearest(experts_H, start.get("experts", 8.0)),
        ],
        "level": analysis.level,
        "target": analysis.target,
        "techniques": [_technique(analysis, key) for key in known],
        "laws": [
            {
                "name": law,
                "formula": next(iter(own.values())).law.formula,
                "grids": {
                    key: grid_of(fit, sizes_G, experts_H, _draws(analysis, law, key), analysis.level)
                    for key, fit in own.items()
                },
            }
            for law, own in fits.items()
        ],
    }


def size_nodes(trained: Array) -> Array:
    """A logarithmic scale over the trained sizes and beyond; the node nearest to each trained size is that size."""
    low, high = np.log10(trained.min() / BELOW), np.log10(trained.max() * BEYOND)
    count = int(np.ceil((high - low) * NODES_PER_DECADE)) + 1
    nodes_G = np.round(10.0 ** np.linspace(low, high, count))
    spacing = np.log10(nodes_G)
    for size in trained:
        nodes_G[np.argmin(np.abs(spacing - np.log10(size)))] = size
    return np.unique(nodes_G)


def expert_nodes(most: float) -> Array:
    """1, 2, 3, … 8, 10, 12, 14, 16, 20, …: whole numbers, four to an octave."""
    last = max(FEWEST_EXPERTS, EXPERTS_BEYOND * most)
    octaves = 2.0 ** np.arange(0, np.ceil(np.log2(last)) + 1)
    nodes_H = np.concatenate([octave * np.array([1.0, 1.25, 1.5, 1.75]) for octave in octaves])
    whole_H = np.unique(nodes_H[nodes_H == np.round(nodes_H)])
    return whole_H[whole_H <= last]


def grid_of(
    fit: Fit, sizes_G: Array, experts_H: Array, draws: Draws | None = None, level: float = DEFAULT_LEVEL
) -> dict[str, Any]:
    """Loss, effective size and (with draws) the interval of the loss at every node, N by N: flat lists of G·H."""
    n_GH, e_GH = (grid.ravel() for grid in np.meshgrid(sizes_G, experts_H, indexing="ij"))
    x = {"active_params": n_GH, "experts": e_GH}
    with np.errstate(all="ignore"):
        log_loss_GH = np.broadcast_to(fit.law.log_loss(fit.params_BP, x), (1, n_GH.size))[0]
        params = np.broadcast_to(fit.params_BP, (n_GH.size, fit.params_BP.shape[1]))
        effective_GH = equivalence.size_for_loss(fit.law, params, log_loss_GH, 1.0)
        grid: dict[str, Any] = {
            "status": fit.status,
            "loss": _plain(10.0**log_loss_GH, 6),
            "effective": _plain(np.where(effective_GH < UNREACHABLE, effective_GH, np.nan), 5),
        }
        if draws is not None:
            low_GH, high_GH = loss_interval(fit, draws, x, log_loss_GH, level)
            grid |= {"low": _plain(low_GH, 5), "high": _plain(high_GH, 5)}
    return grid


def loss_interval(fit: Fit, draws: Draws, x: dict[str, Array], log_loss_N: Array, level: float) -> tuple[Array, Array]:
    """Ends of the interval of the loss at many points: quantiles of the resampled fits, widened as `Draws` does it."""
    log_RN = fit.law.log_loss(draws.params_RP[:DRAWS], x)
    if draws.method == "size-bootstrap":
        ends_2N = stretched_ends(log_loss_N, log_RN, draws.clusters, level)
    else:
        ends_2N = np.nanquantile(log_RN, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return 10.0 ** ends_2N[0], 10.0 ** ends_2N[1]


def _draws(analysis: Analysis, law: str, key: str) -> Draws | None:
    """Intervals are known of the selected law alone."""
    judged = analysis.judged.get(key)
    return judged.draws if judged and analysis.law and analysis.law.name == law else None


def _technique(analysis: Analysis, key: str) -> dict[str, Any]:
    points, look = analysis.points[key], analysis.looks[key]
    routed = points.where(~points.dense)
    return {
        "key": key,
        "label": look.label,
        "colour": look.colour,
        "symbol": look.symbol,
        "sizes": [int(routed.x["active_params"].min()), int(routed.x["active_params"].max())],
        "experts": [int(points.x["experts"].min()), int(points.x["experts"].max())],
        "measured": [
            [int(n), int(e), float(f"{loss:.6g}")]
            for n, e, loss in zip(points.x["active_params"], points.x["experts"], points.loss, strict=True)
        ],
    }


def _nearest(nodes: Array, value: float) -> int:
    return int(np.argmin(np.abs(np.log(nodes) - np.log(value))))


def _plain(values_N: Array, digits: int) -> list[float | None]:
    """Short numbers for JSON; what is not finite is null."""
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values_N]
