"""The procedure of Clark et al. 2022 for comparison: the best of many L-BFGS-B runs on all parameters at once.

The paper says no more than that; the rest is what someone following it would take: SciPy's defaults, natural parameter
values, finite-difference gradients, the mean squared residual of log10 L. That mean is about 1e-5 at the optimum and
SciPy's tolerances are absolute at such a scale (a gradient below 1e-5, a gain below 2e-9), so nearly every run stops on
the floor of the valley before its lowest point, and a parameter in which the floor is flat (e_max above all) depends on
where the run began. Use `fit_law` for results; this is here to show the difference.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, minimize

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit, check_fittable, fit_status, scaled_jacobian
from routelaw.fitting.points import Points
from routelaw.laws import get_law
from routelaw.laws.law import Array, Law, Parameter

DEFAULT_STARTS = 500
UNDEFINED = 1e3
"""Objective where a law has no value (e.g. e_start above e_max): finite, so that a line search can back away from
it."""
SETTLED = 1e-6
"""A fit counts as converged if one linear step would take off no more than this share of its squared error."""


def fit_lbfgsb(law: str | Law, points: Points, starts: int = DEFAULT_STARTS, seed: int = 0) -> Fit:
    """The lowest of `starts` L-BFGS-B runs from random values; the same kind of result as `fit_law`."""
    law = get_law(law)
    check_fittable(law, points)
    rng = np.random.default_rng(seed)
    bounds = Bounds(np.array([p.low for p in law.parameters]), np.array([p.high for p in law.parameters]))
    log_loss_N, share_N = points.log_loss, points.weight / points.weight.sum()

    def mean_squared(params_P: Array) -> float:
        residual_N = law.log_loss(params_P[None], points.x)[0] - log_loss_N
        mean = float(share_N @ residual_N**2)
        return mean if np.isfinite(mean) else UNDEFINED

    with np.errstate(all="ignore"):
        runs = [minimize(mean_squared, row, method="L-BFGS-B", bounds=bounds) for row in _random(law, starts, rng)]
    best = min(runs, key=lambda run: run.fun)
    if best.fun >= UNDEFINED:
        raise InputError(f"law {law.name} has no finite prediction for these points at any of {starts} random starts.")
    search_P = law.to_search(best.x[None])[0]
    status, warnings = fit_status(law, points, search_P, _unfinished_share(law, points, search_P) <= SETTLED)
    params = {name: float(value) for name, value in zip(law.names, best.x, strict=True)}
    return Fit(
        law, points, params, float(np.sqrt(best.fun)), status, "squared", (*points.warnings, *warnings), search_P
    )


def start_range(parameter: Parameter) -> tuple[float, float]:
    """Where random starts of a parameter lie, in search coordinates (log10 for expert counts).

    Between the least and greatest of the law's own starting values where it names any; over its bounds where both are
    finite; otherwise (slopes and intercepts of log L) from −1 to 1.
    """
    limits = parameter.starts or (parameter.low, parameter.high)
    low, high = min(limits), max(limits)
    if not np.isfinite([low, high]).all():
        return -1.0, 1.0
    return (float(np.log10(low)), float(np.log10(high))) if parameter.log else (low, high)


def _random(law: Law, count: int, rng: np.random.Generator) -> Array:
    low_P, high_P = np.array([start_range(p) for p in law.parameters]).T
    return law.from_search(rng.uniform(low_P, high_P, size=(count, low_P.size)))


def _unfinished_share(law: Law, points: Points, search_P: Array) -> float:
    """Share of the squared error that one undamped linear step promises to remove: 0 at an optimum."""
    residual_N = law.log_loss(law.from_search(search_P[None]), points.x)[0] - points.log_loss
    weighted_N = residual_N * np.sqrt(points.weight)
    jac_NP = scaled_jacobian(law, points, search_P)
    step_P, *_ = np.linalg.lstsq(jac_NP, weighted_N)
    explained_N = jac_NP @ step_P
    return float(explained_N @ explained_N / (weighted_N @ weighted_N))
