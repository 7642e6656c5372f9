"""How well a fit knows what it says: bootstrap over cases, bootstrap over whole model sizes, and profiles.

Residuals of a scaling law are correlated within a model size (a size that trains a little better does so at every E),
so resampling single runs is optimistic. The default resamples whole sizes, and widens the result for their small
number; how each method covers on simulated data is measured by benchmarks/coverage.py and recorded in docs/log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from routelaw.errors import InputError
from routelaw.fitting.fit import RESAMPLE_SEARCHES, Fit, is_determined, solve
from routelaw.fitting.quantities import Quantity
from routelaw.laws.law import Array

Method = Literal["size-bootstrap", "case-bootstrap", "profile"]
METHODS: tuple[Method, ...] = ("size-bootstrap", "case-bootstrap", "profile")
DEFAULT_DRAWS, DEFAULT_LEVEL = 1000, 0.9
MAX_REDRAWS = 200


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    open_low: bool = False
    """True where the data set no lower end: the interval reaches the limit of the quantity, or beyond any number."""
    open_high: bool = False


@dataclass(frozen=True, eq=False)
class Draws:
    """Refits to resampled points: each a plausible fit."""

    fit: Fit
    params_RP: Array
    method: Method
    clusters: int

    def interval(self, quantity: Quantity, level: float = DEFAULT_LEVEL) -> Interval:
        values_R = quantity.of(self.params_RP)
        estimate = float(quantity.of(self.fit.params_BP)[0])
        low, high = np.quantile(values_R, [(1 - level) / 2, (1 + level) / 2], method="nearest")
        if self.method == "size-bootstrap":
            stretch = small_sample_stretch(self.clusters, level)
            low, high = (_stretched(estimate, float(end), stretch) for end in (low, high))
        return closed_interval(quantity, float(low), float(high))


def small_sample_stretch(clusters: int, level: float) -> float:
    """How much wider a percentile interval of a few resampled clusters must be.

    Resampling G clusters underestimates variance by (G−1)/G, and a normal quantile stands where Student's with G−1
    degrees of freedom belongs.
    """
    tail = (1 + level) / 2
    return float(np.sqrt(clusters / (clusters - 1)) * special.stdtrit(clusters - 1, tail) / special.ndtri(tail))


def small_sample_probability(share: float, clusters: int, draws: int) -> float:
    """A share of bootstrap draws as a probability that allows for few clusters, as the stretched intervals do.

    The share is read as a normal quantile and judged by Student's t; all of the draws count as all but half a draw.
    """
    share = float(np.clip(share, 0.5 / draws, 1 - 0.5 / draws))
    return float(special.stdtr(clusters - 1, special.ndtri(share) / np.sqrt(clusters / (clusters - 1))))


def closed_interval(quantity: Quantity, low: float, high: float) -> Interval:
    open_low = not np.isfinite(low) or low <= quantity.low
    open_high = not np.isfinite(high) or high >= quantity.high
    low, high = max(low, quantity.low), min(high, quantity.high)
    return Interval(quantity.value(low), quantity.value(high), open_low, open_high)


def _stretched(estimate: float, end: float, stretch: float) -> float:
    return estimate + stretch * (end - estimate) if np.isfinite(end) and np.isfinite(estimate) else end


def bootstrap(fit: Fit, method: Method = "size-bootstrap", draws: int = DEFAULT_DRAWS, seed: int = 0) -> Draws:
    """Refit to resampled points. A resample that could not determine the law is drawn again."""
    points = fit.points
    rng = np.random.default_rng(seed)
    labels_N = points.size if method == "size-bootstrap" else np.arange(len(points))
    names, cluster_N = np.unique(labels_N.astype(str), return_inverse=True)
    informative = len(names) if method == "case-bootstrap" else informative_sizes(fit)
    if informative < 3:
        what = "points" if method == "case-bootstrap" else "sizes with more than one E" if len(names) > 2 else "sizes"
        raise InputError(f"{method} needs at least 3 {what}, not {informative}.")
    counts_RC = resample_counts(fit, cluster_N, len(names), draws, rng)
    weights_RN = counts_RC[:, cluster_N] * points.weight
    # Equal resamples have equal fits: six sizes allow 462 of them.
    unique_UN, back_R = np.unique(weights_RN, axis=0, return_inverse=True)
    search_UP, _, _ = solve(
        fit.law, points, unique_UN, warm_P=fit.search_P, searches=RESAMPLE_SEARCHES, error=fit.error
    )
    return Draws(fit, fit.law.from_search(search_UP)[back_R.ravel()], method, informative)


def informative_sizes(fit: Fit) -> int:
    """Sizes that say something about every axis of the law: for a law that knows E, those with more than one.

    Dense runs of further sizes do not make a resample of routed ones any richer.
    """
    points = fit.points
    if not {"experts", "total_params"} & set(fit.law.inputs):
        return len(points.sizes)
    return sum(len(np.unique(points.x["experts"][points.size == size])) > 1 for size in points.sizes)


def resample_counts(fit: Fit, cluster_N: Array, clusters: int, draws: int, rng: np.random.Generator) -> Array:
    """How often each cluster is drawn, (R, clusters), keeping only draws whose points determine the law."""
    verdicts: dict[bytes, bool] = {}

    def determined(counts_C: Array) -> bool:
        key = (counts_C > 0).tobytes()
        if key not in verdicts:
            verdicts[key] = is_determined(fit, (counts_C > 0)[cluster_N])
        return verdicts[key]

    kept: list[Array] = []
    for _ in range(MAX_REDRAWS):
        batch_RC = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws)
        kept += [row for row in batch_RC if determined(row)]
        if len(kept) >= draws:
            counts_RC = np.stack(kept[:draws])
            if (counts_RC == counts_RC[0]).all():  # then every refit is the fit itself, as if nothing were uncertain
                break
            return counts_RC
    raise InputError(f"law {fit.law.name} is not determined by resamples of these {clusters} clusters.")
