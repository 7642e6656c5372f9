"""Error on points a fit has not seen: one point out, one size out, the largest size out. All RMSLE in log10 L."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelaw.fitting.fit import RESAMPLE_SEARCHES, Fit, is_determined, solve
from routelaw.laws.law import Array


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


def validate(fit: Fit) -> Validation:
    points = fit.points
    # Along training the evaluations of a run are one curve: leaving one out would leave out nothing.
    one_out_N = held_out_residuals(fit, points.size if fit.law.along_training else np.arange(len(points)))
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
    points, law = fit.points, fit.law
    residual_N = np.full(len(points), np.nan)
    groups = [g for g in dict.fromkeys(groups_N.tolist()) if is_determined(fit, groups_N != g)]
    if not groups:
        return residual_N
    weights_RN = np.stack([np.where(groups_N != g, points.weight, 0.0) for g in groups])
    few = len(groups) <= 20
    search_RP, _, _ = solve(
        law,
        points,
        weights_RN,
        warm_P=fit.search_P,
        searches=law.searches if few else RESAMPLE_SEARCHES,
        error=fit.error,
    )
    with np.errstate(all="ignore"):
        residual_RN = law.log_loss(law.from_search(search_RP), points.x) - points.log_loss
    for group, row_N in zip(groups, residual_RN, strict=True):
        residual_N = np.where(groups_N == group, row_N, residual_N)
    return residual_N


def _rms(residual_N: Array, weight_N: Array) -> float | None:
    if not weight_N.any() or np.isnan(residual_N).any():
        return None
    return float(np.sqrt(np.average(residual_N**2, weights=weight_N)))
