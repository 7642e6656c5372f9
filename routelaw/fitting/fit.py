"""Fit a law to points: every promising start followed to its optimum, the best kept, and its status."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.least_squares import minimise
from routelaw.fitting.noise import SAME_LENGTH
from routelaw.fitting.points import Points
from routelaw.laws import get_law
from routelaw.laws.law import FEW_EXPERTS, LN10, Array, Law

Status = Literal["converged", "at-bound", "unidentified", "not-converged"]
Error = Literal["squared", "huber"]

HUBER_DELTA = 1e-3 / float(LN10)
"""Residuals of log10 L beyond this count linearly: 1e-3 of the natural logarithm, as Hoffmann et al. 2022 have it."""
RANK_TOLERANCE = 1e-8
SAME_AS_START = 1e-9
"""Relative distance of a parameter from one of its starting values within which it has not moved."""
EXACT_FIT = 1e-9
"""RMSLE below which a law passes through all points, and may well lie at a starting value."""
RESAMPLE_SEARCHES = 2
"""Starts of its own that each resample follows, beside the optimum of the whole data."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A law, the points it was fitted to, and the outcome.

    >>> fit
    Fit(bilinear to s-base: a = ..., b = ..., c = ..., d = ...; 20 points, RMSLE ..., converged)
    >>> loss = fit.predict(active_params=370e6, experts=64)  # in nats, of one model or of an array of them
    >>> bool(loss[0] < fit.predict(active_params=370e6, experts=1)[0])
    True
    """

    law: Law
    points: Points
    params: dict[str, float]
    rmsle: float
    """Root mean squared residual of log10 L over the fitted points."""
    status: Status
    error: Error = "squared"
    warnings: tuple[str, ...] = ()
    search_P: Array = field(default_factory=lambda: np.zeros(0), repr=False)
    """The optimum in search coordinates."""

    def __repr__(self) -> str:
        params = ", ".join(f"{name} = {value:.4g}" for name, value in self.params.items())
        how = f"{len(self.points)} points, RMSLE {self.rmsle:.3g}, {self.status}"
        return f"Fit({self.law.name} to {self.points.router}: {params}; {how})"

    @property
    def params_BP(self) -> Array:
        return self.law.row(self.params)

    def predict(self, **inputs: float | Array) -> Array:
        """Predicted loss in nats: `fit.predict(active_params=370e6, experts=64)`."""
        return self.law.predict(self.params, **inputs)

    @property
    def residual_N(self) -> Array:
        """log10 predicted minus log10 measured."""
        return self.law.log_loss(self.params_BP, self.points.x)[0] - self.points.log_loss


def fit_law(law: str | Law, points: Points, *, error: Error = "squared") -> Fit:
    """Least squares (or Huber) on log10 L. Wrong input raises; a fit that is not determined is a value that says so.

    >>> fit = rl.fit_law("bilinear", rl.select_points(table, "s-base"))
    >>> fit.status, sorted(fit.params)
    ('converged', ['a', 'b', 'c', 'd'])
    """
    law, reduced = reduced_law(get_law(law), points)
    check_fittable(law, points)
    search_RP, error_R, converged_R = solve(law, points, points.weight[None], error=error)
    search_P = search_RP[0]
    if not np.isfinite(error_R[0]):
        raise InputError(f"law {law.name} has no finite prediction for these points at any starting value.")
    params_P = law.from_search(search_P[None])[0]
    residual_N = law.log_loss(params_P[None], points.x)[0] - points.log_loss
    rmsle = float(np.sqrt(np.average(residual_N**2, weights=points.weight)))
    status, warnings = fit_status(law, points, search_P, bool(converged_R[0]))
    if rmsle > EXACT_FIT:
        warnings = (*warnings, *_unmoved(law, params_P))
    params = {name: float(v) for name, v in zip(law.names, params_P, strict=True)}
    return Fit(law, points, params, rmsle, status, error, (*points.warnings, *reduced, *warnings), search_P)


def reduced_law(law: Law, points: Points) -> tuple[Law, list[str]]:
    """The law itself, or the simpler one that it is on these points, and a sentence that says so."""
    tokens_N = points.x["tokens"] if law.at_one_length else np.array([np.nan])
    if np.isfinite(tokens_N).all() and tokens_N.max() <= SAME_LENGTH * tokens_N.min():
        return get_law(law.at_one_length), [
            f"all runs were trained on {np.median(tokens_N):.4g} tokens, where law {law.name} is law "
            f"{law.at_one_length}: the fit says nothing of other lengths."
        ]
    counts = len(np.unique(points.x["experts"])) if law.of_few_experts else 0
    if 2 <= counts < FEW_EXPERTS:
        return get_law(law.of_few_experts), [
            f"{counts} expert counts do not show where Ê saturates: law {law.name} is fitted with E in place of Ê, as "
            f"law {law.of_few_experts}."
        ]
    return law, []


def _unmoved(law: Law, params_P: Array) -> list[str]:
    """A warning where parameters end exactly where the search began: it did not move them, or they do nothing."""
    places = zip(law.parameters, params_P, strict=True)
    stuck = [p.name for p, value in places if np.isclose(value, p.starts, rtol=SAME_AS_START, atol=0.0).any()]
    if not stuck:
        return []
    are, them = ("are", "them") if len(stuck) > 1 else ("is", "it")
    return [f"{' and '.join(stuck)} {are} where the search began: the data say nothing of {them}."]


def solve(
    law: Law,
    points: Points,
    weights_RN: Array,
    *,
    warm_P: Array | None = None,
    searches: int | None = None,
    error: Error = "squared",
) -> tuple[Array, Array, Array]:
    """Global optimum under each of R weightings: search coordinates (R, P), error (R,), converged (R,).

    A resample gets the optimum of the whole data (`warm_P`) as one start: it cannot end in a worse basin than that.
    """
    starts_RSP = law.to_search(law.starts(points.x, points.loss, weights_RN, searches or law.searches))
    if warm_P is not None:
        warm_RSP = np.broadcast_to(warm_P, (len(weights_RN), 1, warm_P.size))
        starts_RSP = np.concatenate([warm_RSP, starts_RSP], axis=1)
    R, S, P = starts_RSP.shape
    if not S:
        raise InputError(f"law {law.name} has no finite prediction for these points at any starting value.")
    delta = HUBER_DELTA if error == "huber" else None
    repeated_BN = np.repeat(weights_RN, S, axis=0)
    found = minimise(law, points.x, points.log_loss, repeated_BN, starts_RSP.reshape(R * S, P), delta=delta)
    best_R = np.arange(R) * S + found.error_B.reshape(R, S).argmin(axis=1)
    return found.search_BP[best_R], found.error_B[best_R], found.converged_B[best_R]


def check_fittable(law: Law, points: Points) -> None:
    """Say in one sentence why these points cannot determine this law, if they cannot."""
    where = f"{points.source}: " if points.source else ""
    for name in law.inputs:
        if name not in points.x:
            raise InputError(f"law {law.name} reads {name!r}; a law may read {', '.join(points.x)}.")
        known_N = np.isfinite(points.x[name])
        if not known_N.all():
            lacking = "some of these runs lack" if known_N.any() else f"no run of {points.router} has"
            raise InputError(f"{where}law {law.name} needs the column {name}, which {lacking}.")
    sizes = len(np.unique(points.x["active_params"]))
    scales = {"active_params", "flops_per_token", "total_params"} & set(law.inputs)
    if scales and sizes < 2:
        raise InputError(
            f"{where}law {law.name} describes scaling in size and there is one model size only "
            f"({points.sizes[0]}): train another size, or use --law experts."
        )
    if not scales and sizes > 1:
        raise InputError(
            f"{where}law {law.name} describes one model size and there are {sizes}: "
            f"choose one with --size ({', '.join(points.sizes)})."
        )
    used = int((points.weight > 0).sum())
    if used <= len(law.parameters):
        raise InputError(
            f"{where}law {law.name} has {len(law.parameters)} parameters and {points.router} has {used} "
            f"point{'s' if used > 1 else ''}: it needs at least {len(law.parameters) + 1}."
        )
    experts = np.unique(points.x["experts"])
    if "experts" in law.inputs and len(experts) < 2:
        raise InputError(
            f"{where}law {law.name} describes scaling in E, and all points of {points.router} have E = {experts[0]:g}."
        )


def scaled_jacobian(law: Law, points: Points, search_P: Array) -> Array:
    """Weighted Jacobian of log10 L in search coordinates, (N, P)."""
    params_1P = law.from_search(search_P[None])
    chain_P = np.where(law.log_mask_P, params_1P[0] * LN10, 1.0)
    return law.jacobian(params_1P, points.x)[0] * chain_P * np.sqrt(points.weight)[:, None]


def _directions(jac_NP: Array) -> tuple[Array, Array]:
    """Singular values (relative to the largest) and directions of the Jacobian with columns of unit length."""
    unit_NP = jac_NP / (np.linalg.norm(jac_NP, axis=0) + 1e-300)
    _, singular_P, directions_PP = np.linalg.svd(unit_NP, full_matrices=False)
    return singular_P / singular_P[0], directions_PP


def is_determined(fit: Fit, kept_N: Array) -> bool:
    """Whether the points under a mask alone could determine the law, judged where the fit to all of them stands."""
    if (fit.points.weight[kept_N] > 0).sum() <= len(fit.law.parameters):
        return False
    singular_P, _ = _directions(scaled_jacobian(fit.law, fit.points, fit.search_P)[kept_N])
    return bool(singular_P[-1] > RANK_TOLERANCE)


def fit_status(law: Law, points: Points, search_P: Array, converged: bool) -> tuple[Status, tuple[str, ...]]:
    warnings: list[str] = []
    low_P, high_P = law.search_bounds()
    for parameter, value, low, high in zip(law.parameters, search_P, low_P, high_P, strict=True):
        if np.isclose(value, low) or np.isclose(value, high):
            edge, side = (parameter.low, "lower") if np.isclose(value, low) else (parameter.high, "upper")
            warnings.append(
                f"{parameter.name} ended at its {side} bound {edge:g}: the data do not determine it "
                f"({parameter.meaning})."
            )
    at_bound = bool(warnings)
    singular_P, directions_PP = _directions(scaled_jacobian(law, points, search_P))
    if singular_P[-1] < RANK_TOLERANCE:
        loose = [name for name, share in zip(law.names, np.abs(directions_PP[-1]), strict=True) if share > 0.2]
        warnings.append(
            f"{' and '.join(loose)} cannot be told apart on these points: only a combination is determined."
        )
        return "unidentified", tuple(warnings)
    if not converged:
        warnings.append("the search stopped before it settled: treat the parameters as rough.")
        return "not-converged", tuple(warnings)
    return ("at-bound" if at_bound else "converged"), tuple(warnings)
