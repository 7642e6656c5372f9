"""Slopes of log L in log E, size by size: as measured, and as a fitted law has them.

Shapes: G sizes, H expert counts.
"""

from __future__ import annotations

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.points import Points
from routelaw.laws.law import Array


def slopes_by_size(points: Points) -> list[tuple[str, float, float]]:
    """(size, N, b) of a power law in E fitted to each size alone, where it has at least three expert counts."""
    found = []
    for size, active, group in points.by_size():
        try:
            found.append((size, active, fit_law("experts", group).params["b"]))
        except InputError:
            continue
    return found


def law_slopes(fit: Fit, sizes_G: Array) -> Array:
    """The same slope of a law's own predictions: a straight line through them at the expert counts that were trained.

    So marks and lines mean the same for every law, saturating ones included.
    """
    experts = np.unique(fit.points.x["experts"])
    u_H = np.log10(experts) - np.log10(experts).mean()
    n_GH, e_GH = (grid.ravel() for grid in np.meshgrid(sizes_G, experts, indexing="ij"))
    log_loss_GH = np.log10(fit.predict(active_params=n_GH, experts=e_GH)).reshape(len(sizes_G), len(experts))
    return log_loss_GH @ u_H / (u_H @ u_H)


def affine_by_size(x_N: Array, points: Points) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float]]]:
    """(slope, intercept) of log L in x for every size: with slopes of their own, and with the one slope that fits best.

    Every size keeps its own intercept in both; the shared slope is least squares on deviations from the sizes' means.
    """
    y_N = points.log_loss
    means = {s: (x_N[points.size == s].mean(), y_N[points.size == s].mean()) for s in points.sizes}
    own, covariances, variances = {}, [], []
    for size, (x_mean, y_mean) in means.items():
        dx, dy = x_N[points.size == size] - x_mean, y_N[points.size == size] - y_mean
        covariances.append(dx @ dy)
        variances.append(dx @ dx)
        own[size] = (covariances[-1] / variances[-1], y_mean - covariances[-1] / variances[-1] * x_mean)
    slope = sum(covariances) / sum(variances)
    return own, {size: (slope, y_mean - slope * x_mean) for size, (x_mean, y_mean) in means.items()}
