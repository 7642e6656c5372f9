"""What to predict from the rest, where runs differ in length: the longest training, the most compute, the far corner.

Errors on a size left out say how a law interpolates; whoever plans a larger run wants it to extrapolate, in size and in
tokens. Each split holds out the runs that are furthest along in one respect, all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from routelaw.fitting.fit import Fit, is_determined, solve
from routelaw.fitting.points import Points
from routelaw.laws.law import Array

SAME_LENGTH_CLASS = 2.0
"""Runs within this factor of the longest are held out with it, and those within it of the most compute with that."""
MOST_HELD_OUT = 0.5
"""No more than this share of the points is held out."""


def training_flops(points: Points) -> Array | None:
    """FLOPs of training: three times the forward pass over all tokens, or 6·N·D where FLOPs are not counted; None where
    tokens are not known."""
    tokens_N, forward_N = points.x["tokens"], points.x["flops_per_token"]
    if not np.isfinite(tokens_N).all():
        return None
    if not np.isfinite(forward_N).all():
        forward_N = 2.0 * points.x["active_params"]
    return 3.0 * forward_N * tokens_N


def _longest(points: Points) -> Array | None:
    return _furthest(points.x["tokens"])


def _most_compute(points: Points) -> Array | None:
    return _furthest(training_flops(points))


def _corner(points: Points) -> Array | None:
    """The largest size at its longest training, from all smaller models and all shorter trainings."""
    longest_N = _longest(points)
    if longest_N is None or len(points.sizes) < 2:
        return None
    largest_N = points.x["active_params"] > points.x["active_params"].max() / SAME_LENGTH_CLASS
    return longest_N & largest_N


def _furthest(values_N: Array | None) -> Array | None:
    if values_N is None or not np.isfinite(values_N).all():
        return None
    held_N = values_N > values_N.max() / SAME_LENGTH_CLASS
    return None if held_N.all() else held_N


SPLITS: Mapping[str, Callable[[Points], Array | None]] = {
    "longest_out": _longest,
    "most_compute_out": _most_compute,
    "corner_out": _corner,
}
"""By name, the points to hold out; None where the points have no such split."""
MEANINGS = {
    "longest_out": "runs within a factor of 2 of the most tokens, predicted from shorter ones",
    "most_compute_out": "runs within a factor of 2 of the most training FLOPs, predicted from the rest",
    "corner_out": "the longest trainings of the largest models, predicted from all other runs",
}


def held_out(points: Points, split: str) -> Array | None:
    """The points that a split holds out; None where there are none, or too many."""
    mask_N = SPLITS[split](points)
    if mask_N is None or not mask_N.any() or mask_N.mean() > MOST_HELD_OUT:
        return None
    return mask_N


def errors_of_splits(fit: Fit) -> dict[str, float | None]:
    """The error on every split that the points have, by name."""
    held = {name: held_out(fit.points, name) for name in SPLITS}
    return {name: error_on(fit, mask_N)[0] for name, mask_N in held.items() if mask_N is not None}


def error_on(fit: Fit, held_N: Array) -> tuple[float | None, Array]:
    """RMSLE of points that a refit has not seen, and their residuals (predicted − measured log10 L); None where the
    others do not determine the law."""
    points, law = fit.points, fit.law
    kept_N = ~held_N
    if not is_determined(fit, kept_N):
        return None, np.full(int(held_N.sum()), np.nan)
    weights_1N = np.where(kept_N, points.weight, 0.0)[None]
    search_1P, _, _ = solve(law, points, weights_1N, error=fit.error)
    x = {name: values[held_N] for name, values in points.x.items()}
    with np.errstate(all="ignore"):
        residual_N = law.log_loss(law.from_search(search_1P), x)[0] - np.log10(points.loss[held_N])
    if not np.isfinite(residual_N).all():
        return None, residual_N
    return float(np.sqrt(np.average(residual_N**2, weights=points.weight[held_N]))), residual_N
