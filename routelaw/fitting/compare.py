"""Which law describes a router best, and which router is better: with the noise of the answer.

Laws are ranked by their error on model sizes they have not seen. Two laws are judged on the same held-out points, so
what counts is the spread of their difference over sizes, not of each alone. Routers are compared under one law by
refitting all of them to the same resampled sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.fit import RESAMPLE_SEARCHES, Fit, fit_law, is_determined, solve
from routelaw.fitting.intervals import DEFAULT_LEVEL, MAX_REDRAWS, small_sample_probability, small_sample_stretch
from routelaw.fitting.points import Points
from routelaw.fitting.validation import Validation, validate
from routelaw.laws import all_laws
from routelaw.laws.law import Array, Law

RESAMPLES = 4000


@dataclass(frozen=True, eq=False)
class Ranked:
    """One law on one router, as `compare` ranks it."""

    fit: Fit
    validation: Validation
    interval: tuple[float, float] | None
    """Interval of the leave-size-out error, over resampled sizes."""
    behind: float | None
    """How much larger its leave-size-out error is than the best law's."""
    worse_probability: float | None
    """Probability that it does worse than the best law, from resampled sets of sizes."""
    clearly_worse: bool
    """Whether the difference is larger than its noise: its interval excludes zero."""


@dataclass(frozen=True)
class Skipped:
    law: str
    reason: str


def comparable_laws() -> list[Law]:
    """Laws of size and experts (or compute) at the end of training."""
    return [law for law in all_laws().values() if not law.along_training and len(law.inputs) > 1]


def rank_laws(
    points: Points, laws: Sequence[Law], level: float = DEFAULT_LEVEL, seed: int = 0
) -> tuple[list[Ranked], list[Skipped]]:
    """Fit every law to the same points; best leave-size-out error first, and the laws these points cannot fit.

    >>> ranked, skipped = rl.rank_laws(rl.select_points(table, "s-base"), [rl.get_law("bilinear")])
    >>> ranked[0].fit.law.name, skipped
    ('bilinear', [])
    """
    judged: list[tuple[Fit, Validation]] = []
    skipped: list[Skipped] = []
    for law in laws:
        try:
            fit = fit_law(law, points)
        except InputError as error:
            skipped.append(Skipped(law.name, str(error).removeprefix(f"{points.source}: ")))
            continue
        judged.append((fit, validate(fit)))
    judged.sort(key=lambda pair: (pair[1].leave_size_out is None, pair[1].leave_size_out or 0.0))
    if not judged:
        return [], skipped
    counts_RS = _resampled_sizes(len(points.sizes), seed)
    best = judged[0][1]
    return [_ranked(fit, validation, best, points, counts_RS, level) for fit, validation in judged], skipped


def _resampled_sizes(sizes: int, seed: int) -> Array:
    return np.random.default_rng(seed).multinomial(sizes, np.full(sizes, 1 / sizes), size=RESAMPLES)


def _ranked(
    fit: Fit, validation: Validation, best: Validation, points: Points, counts_RS: Array, level: float
) -> Ranked:
    if validation.leave_size_out is None or best.leave_size_out is None:
        return Ranked(fit, validation, None, None, None, False)
    own_R = _resampled_error(validation, points, counts_RS)
    best_R = _resampled_error(best, points, counts_RS)
    behind = validation.leave_size_out - best.leave_size_out
    tails = [(1 - level) / 2, (1 + level) / 2]
    stretch = small_sample_stretch(len(points.sizes), level)
    low, high = validation.leave_size_out + stretch * (np.quantile(own_R, tails) - validation.leave_size_out)
    gap_low = behind + stretch * (float(np.quantile(own_R - best_R, tails[0])) - behind)
    worse = _exceeds(own_R, best_R, len(points.sizes))
    is_best = validation is best
    return Ranked(
        fit,
        validation,
        (max(float(low), 0.0), float(high)),
        behind,
        None if is_best else worse,
        clearly_worse=not is_best and gap_low > 0,
    )


def _exceeds(first_R: Array, second_R: Array, sizes: int) -> float:
    """Probability that the first is larger, from the share of resamples; a tie, as between equal laws, counts half."""
    share = float(np.mean(first_R > second_R) + np.mean(first_R == second_R) / 2)
    return small_sample_probability(share, sizes, len(first_R))


def _resampled_error(validation: Validation, points: Points, counts_RS: Array) -> Array:
    """Leave-size-out RMSLE over each resampled set of sizes, (R,)."""
    weights_SN = np.stack([np.where(points.size == s, points.weight, 0.0) for s in points.sizes])
    squares_S, weights_S = weights_SN @ validation.size_out_N**2, weights_SN.sum(1)
    return np.sqrt((counts_RS @ squares_S) / (counts_RS @ weights_S))


@dataclass(frozen=True, eq=False)
class RouterComparison:
    """Routers under one law at one point, best first."""

    law: Law
    at: dict[str, float]
    routers: list[str]
    loss: dict[str, float]
    interval: dict[str, tuple[float, float]]
    better_probability: dict[tuple[str, str], float]
    """(first, second) -> probability that the first has the lower loss."""


def compare_routers(
    fits: Mapping[str, Fit],
    at: Mapping[str, float],
    *,
    level: float = DEFAULT_LEVEL,
    draws: int = 1000,
    seed: int = 0,
) -> RouterComparison:
    """Predicted losses at a point, refitted jointly to the same resampled sizes, so that what sizes share cancels.

    >>> fits = {name: rl.fit_law("bilinear", rl.select_points(table, name)) for name in ("s-base", "hash")}
    >>> rl.compare_routers(fits, {"active_params": 60e6, "experts": 32}, draws=100).routers
    ['s-base', 'hash']
    """
    law = next(iter(fits.values())).law
    x = {name: np.array([at[name]], dtype=float) for name in law.inputs}
    sizes = sorted({s for fit in fits.values() for s in fit.points.sizes})
    counts_RS = _common_resamples(fits, sizes, draws, seed)
    stretch = small_sample_stretch(len(sizes), level)
    loss, interval, drawn = {}, {}, {}
    for router, fit in fits.items():
        log_R = _resampled_log_loss(fit, sizes, counts_RS, x)
        estimate = float(law.log_loss(fit.params_BP, x)[0, 0])
        ends = np.quantile(log_R, [(1 - level) / 2, (1 + level) / 2])
        low, high = estimate + stretch * (ends - estimate)
        loss[router], interval[router], drawn[router] = 10.0**estimate, (10.0**low, 10.0**high), log_R
    order = sorted(loss, key=loss.__getitem__)
    better = {(p, q): _exceeds(drawn[q], drawn[p], len(sizes)) for p in order for q in order if p != q}
    return RouterComparison(law, dict(at), order, loss, interval, better)


def _common_resamples(fits: Mapping[str, Fit], sizes: list[str], draws: int, seed: int) -> Array:
    """Draws of sizes that determine the law for every router, (R, sizes)."""
    rng = np.random.default_rng(seed)
    if len(sizes) < 3:
        raise InputError(f"comparing routers needs at least 3 sizes to resample, not {len(sizes)}.")
    kept: list[Array] = []
    verdicts: dict[bytes, bool] = {}
    for _ in range(MAX_REDRAWS):
        for row in rng.multinomial(len(sizes), np.full(len(sizes), 1 / len(sizes)), size=draws):
            key = (row > 0).tobytes()
            if key not in verdicts:
                drawn = {s for s, n in zip(sizes, row, strict=True) if n}
                verdicts[key] = all(is_determined(f, np.isin(f.points.size, list(drawn))) for f in fits.values())
            if verdicts[key]:
                kept.append(row)
        if len(kept) >= draws:
            return np.stack(kept[:draws])
    raise InputError("no resample of these sizes determines the law for every router.")


def _resampled_log_loss(fit: Fit, sizes: list[str], counts_RS: Array, x: Mapping[str, Array]) -> Array:
    unique_US, back_R = np.unique(counts_RS, axis=0, return_inverse=True)
    column_N = np.array([sizes.index(s) for s in fit.points.size])
    search_UP, _, _ = solve(
        fit.law,
        fit.points,
        unique_US[:, column_N] * fit.points.weight,
        warm_P=fit.search_P,
        searches=RESAMPLE_SEARCHES,
        error=fit.error,
    )
    return fit.law.log_loss(fit.law.from_search(search_UP), x)[:, 0][back_R.ravel()]
