"""Which law describes a router best, with the noise of the answer; and which law to select for several routers.

Laws are ranked by their error on model sizes they have not seen. Two laws are judged on the same held-out points, so
what counts is the spread of their difference over sizes, not of each alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.intervals import DEFAULT_LEVEL, probability_larger, stretched_ends
from routelaw.fitting.lengths import reads_length
from routelaw.fitting.points import Points, in_size_and_experts, knows_routing
from routelaw.fitting.validation import Validation, validate
from routelaw.laws import all_laws
from routelaw.laws.law import Array, Law
from routelaw.laws.power_sum import PowerSum

RESAMPLES = 4000
HOLD_OUT_SEARCHES = 16
"""Starts followed for each size left out, beside the optimum of all. 100 find the same in five times the time."""


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


def comparable_laws(in_tokens: bool = False) -> list[Law]:
    """Laws of routed models at the end of training: of one length, or `in_tokens`."""
    ended = [law for law in all_laws().values() if not law.along_training and len(law.inputs) > 1]
    return [law for law in ended if knows_routing(law) and reads_length(law) == in_tokens]


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


def hold_out_sizes(fit: Fit) -> Validation:
    """The errors of sizes left out, by a search of few starts; no point is left out by itself."""
    if isinstance(fit.law, PowerSum):
        fit = replace(fit, law=replace(fit.law, searches=min(fit.law.searches, HOLD_OUT_SEARCHES)))
    return validate(fit, each_point=False)


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
    sizes, is_best = len(points.sizes), validation is best
    low, high = stretched_ends(validation.leave_size_out, own_R, sizes, level)
    gap_low, _ = stretched_ends(behind, own_R - best_R, sizes, level)
    return Ranked(
        fit,
        validation,
        (max(float(low), 0.0), float(high)),
        behind,
        None if is_best else probability_larger(own_R, best_R, sizes),
        clearly_worse=not is_best and bool(gap_low > 0),
    )


def _resampled_error(validation: Validation, points: Points, counts_RS: Array) -> Array:
    """Leave-size-out RMSLE over each resampled set of sizes, (R,)."""
    weights_SN = np.stack([np.where(points.size == s, points.weight, 0.0) for s in points.sizes])
    squares_S, weights_S = weights_SN @ validation.size_out_N**2, weights_SN.sum(1)
    return np.sqrt((counts_RS @ squares_S) / (counts_RS @ weights_S))


def check_selectable(law: Law) -> None:
    """Refuse a law that cannot be selected for routed runs."""
    if law.along_training or not knows_routing(law) or not in_size_and_experts(law):
        raise InputError(f"law {law.name} is not a law of the final loss in (N, E), which a report needs.")


def mean_error(ranked: Mapping[str, Sequence[Ranked]], law: str) -> float:
    """Leave-size-out error of a law averaged over the techniques; infinite where one lacks it."""
    rows = [[r for r in laws if r.fit.law.name == law] for laws in ranked.values() if laws]
    errors = [r[0].validation.leave_size_out if r else None for r in rows]
    known = [e for e in errors if e is not None]
    return sum(known) / len(known) if known and len(known) == len(errors) else float("inf")


def choose_law(ranked: Mapping[str, Sequence[Ranked]], asked: Law | None) -> tuple[Law | None, str]:
    """The selected law: the simplest in (N, E) that no technique's best law beats by more than noise.

    With few sizes errors on unseen sizes are noisy, and a law of many parameters that leads by chance would be drawn
    where it means nothing.
    """
    ranked = {key: laws for key, laws in ranked.items() if any(r.validation.leave_size_out for r in laws)} or ranked
    rows = {key: {r.fit.law.name: r for r in laws} for key, laws in ranked.items() if laws}
    if asked:
        fitted = any(asked.name in own for own in rows.values())
        return (asked if fitted else None), "it was asked for" if fitted else ""
    names = {n: r.fit.law for own in rows.values() for n, r in own.items() if in_size_and_experts(r.fit.law)}
    everywhere = {n: law for n, law in names.items() if all(n in own for own in rows.values())} or names
    judged = {n: law for n, law in everywhere.items() if mean_error(ranked, n) < float("inf")}
    if not judged:
        simplest = min(everywhere.values(), key=lambda law: len(law.parameters), default=None)
        return simplest, "it has the fewest parameters, and the sizes are too few to tell laws apart"
    settled = {n: law for n, law in judged.items() if all(own[n].fit.status == "converged" for own in rows.values())}
    candidates = settled or judged
    best = min(candidates, key=lambda n: mean_error(ranked, n))
    even = [n for n in candidates if not any(own[n].clearly_worse for own in rows.values())]
    selected = min(even or [best], key=lambda n: (len(judged[n].parameters), mean_error(ranked, n)))
    if selected == best:
        of_which = " of the laws whose fits converged" if len(candidates) < len(judged) else ""
        return judged[selected], f"it predicts unseen sizes best{of_which}"
    return judged[selected], f"it is the simplest law that none beats by more than noise ({best} has the lowest error)"
