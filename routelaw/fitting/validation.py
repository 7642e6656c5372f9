"""Error on points a fit has not seen: one point out, one size out, the largest size out. All RMSLE in log10 L."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelaw.fitting.fit import RESAMPLE_SEARCHES, Fit, solve
from routelaw.fitting.leave_out import determined_without, refits_without
from routelaw.laws.law import Array

FEW = 20
"""Groups; without each of so few the law is searched for as in the whole data."""
SEARCHED = 1 << 14
"""Groups times points up to which every refit is a search; many refits of many points are expanded (leave_out.py)."""
SEARCHED_AT_ONCE = 1 << 15
"""Groups times points that are searched in one call: starting values take hundreds of times the memory."""


@dataclass(frozen=True, eq=False)
class Validation:
    """The four errors; None where the data left over could not determine the law."""

    in_sample: float
    leave_one_out: float | None
    leave_size_out: float | None
    largest_size_out: float | None
    one_out_N: Array
    """Residual of each point when it alone was left out (NaN where that was not possible)."""
    size_out_N: Array
    """Residual of each point when its whole size was left out."""
    warnings: tuple[str, ...] = ()

    @property
    def errors(self) -> dict[str, float | None]:
        """The four by name, as JSON has them."""
        names = ("in_sample", "leave_one_out", "leave_size_out", "largest_size_out")
        return {name: getattr(self, name) for name in names}


def validate(fit: Fit, *, each_point: bool = True) -> Validation:
    """Refit without every point and without every size in turn; of many points the first takes most of the time, and is
    not done unless `each_point`."""
    points = fit.points
    # Along training the evaluations of a run are one curve: leaving one out would leave out nothing.
    groups_N = points.size if fit.law.along_training else np.arange(len(points))
    one_out_N = held_out_residuals(fit, groups_N) if each_point else np.full(len(points), np.nan)
    size_out_N = held_out_residuals(fit, points.size)
    largest_N = points.size == points.sizes[-1]
    warnings = []
    if np.isnan(size_out_N).any():
        warnings.append(
            f"leave-size-out error is not available: without one of the {len(points.sizes)} sizes "
            f"law {fit.law.name} is not determined."
        )
    return Validation(
        in_sample=fit.rmsle,
        leave_one_out=_rms(one_out_N, points.weight),
        leave_size_out=_rms(size_out_N, points.weight),
        largest_size_out=_rms(size_out_N[largest_N], points.weight[largest_N]),
        one_out_N=one_out_N,
        size_out_N=size_out_N,
        warnings=tuple(warnings),
    )


def held_out_residuals(fit: Fit, groups_N: Array) -> Array:
    """Residual (predicted − measured log10 L) of every point under the fit that left its group out."""
    points = fit.points
    names, group_N = np.unique(groups_N.astype(str), return_inverse=True)
    search_GP, known_G = np.repeat(fit.search_P[None], len(names), axis=0), np.zeros(len(names), bool)
    determined_G = determined_without(fit, group_N, len(names))
    few = int(determined_G.sum()) <= FEW
    if not few and len(names) * len(points) > SEARCHED:
        search_GP, known_G = refits_without(fit, group_N, len(names))
    searched = np.flatnonzero(determined_G & ~known_G)
    at_once = 1 + SEARCHED_AT_ONCE // len(points)
    for piece in (searched[i : i + at_once] for i in range(0, searched.size, at_once)):
        weights_RN = np.where(group_N != piece[:, None], points.weight, 0.0)
        searches = fit.law.searches if few else RESAMPLE_SEARCHES
        search_GP[piece], _, _ = solve(
            fit.law, points, weights_RN, warm_P=fit.search_P, searches=searches, error=fit.error
        )
    x_N1 = {name: np.asarray(values)[:, None] for name, values in points.x.items()}
    with np.errstate(all="ignore"):
        log_loss_N1 = fit.law.log_loss(fit.law.from_search(search_GP)[group_N], x_N1)
    residual_N = np.broadcast_to(log_loss_N1, (len(points), 1))[:, 0] - points.log_loss
    return np.where(determined_G[group_N], residual_N, np.nan)


def error_e4(value: float | None) -> str:
    """An error of log10 L as tables have it, in units of 1e-4."""
    return "–" if value is None else f"{value * 1e4:.1f}"


def _rms(residual_N: Array, weight_N: Array) -> float | None:
    if not weight_N.any() or np.isnan(residual_N).any():
        return None
    return float(np.sqrt(np.average(residual_N**2, weights=weight_N)))
