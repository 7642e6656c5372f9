"""Numbers behind the sliders: the loss and the effective size that every fitted law predicts, on a grid of (N, E).

A slider moves from node to node of the grid, so what the page shows is what was computed here, for any law, plugin laws
included, without interpolation and without a second implementation of the laws. Nodes are logarithmic, and the sizes
that were trained are among them.

Shapes: G nodes in N, H nodes in E, R draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import DEFAULT_LEVEL, Draws, stretched_ends
from routelaw.laws import equivalence
from routelaw.laws.law import Array
from routelaw.report.runs.analysis import Analysis
from routelaw.report.runs.chart_data import UNREACHABLE

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
