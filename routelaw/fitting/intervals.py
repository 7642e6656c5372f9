"""How well a fit knows what it says: what one wants intervals for, and bootstraps over cases and whole model sizes.

A quantity is a law's parameter or what follows from the law. It maps parameter vectors to values on a scale where
errors are even (log10 for sizes and expert counts), so bootstrap draws and profiles treat all quantities alike.

Residuals of a scaling law are correlated within a model size (a size that trains a little better does so at every E),
so resampling single runs is optimistic. The default resamples whole sizes, and widens the result for their small
number; how each method covers on simulated data is measured by benchmarks/coverage.py and recorded in docs/log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from routelaw.errors import InputError
from routelaw.fitting.fit import RESAMPLE_SEARCHES, Fit, is_determined, solve
from routelaw.fitting.noise import DEFAULT_LEVEL
from routelaw.fitting.points import in_size_and_experts
from routelaw.laws import equivalence
from routelaw.laws.law import Array, Law

Method = Literal["size-bootstrap", "case-bootstrap", "profile"]
METHODS: tuple[Method, ...] = ("size-bootstrap", "case-bootstrap", "profile")
DEFAULT_DRAWS = 1000
MAX_REDRAWS = 200


@dataclass(frozen=True)
class Quantity:
    name: str
    of: Callable[[Array], Array]
    """params_BP -> value on the quantity's scale, (B,)."""
    log: bool = False
    """The scale is log10 of the value; reported values are undone."""
    low: float = -np.inf
    high: float = np.inf
    """Limits on the scale: an interval that reaches one is open there."""

    def at(self, params_1P: Array) -> float:
        """Its value under one parameter vector."""
        return self.value(float(self.of(params_1P)[0]))

    def value(self, scaled: float) -> float:
        with np.errstate(over="ignore"):
            return float(np.power(10.0, scaled)) if self.log else float(scaled)


def parameter_quantities(law: Law) -> list[Quantity]:
    low_P, high_P = law.search_bounds()
    return [
        Quantity(
            p.name,
            lambda params_BP, i=i: law.to_search(params_BP)[:, i],
            log=p.log,
            low=float(low_P[i]),
            high=float(high_P[i]),
        )
        for i, p in enumerate(law.parameters)
    ]


def constant_quantities(law: Law) -> list[Quantity]:
    """What follows from the parameters alone, such as Kaplan's N_c."""
    return [Quantity(c.name, c.of, log=c.log) for c in law.constants]


def _log10(values_B: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log10(values_B)


def n_cut(law: Law) -> Quantity:
    return Quantity("n_cut", lambda p: _log10(equivalence.cutoff(law, p)), log=True)


def effective_params(law: Law, active_params: float, experts: float) -> Quantity:
    return Quantity("epc", lambda p: _log10(equivalence.effective_params(law, p, active_params, experts)), log=True)


def max_effective_params(law: Law, active_params: float) -> Quantity:
    return Quantity("epc_max", lambda p: _log10(equivalence.max_effective_params(law, p, active_params)), log=True)


def size_slope(law: Law, active_params: float, experts: float) -> Quantity:
    return Quantity("a_of_e", lambda p: equivalence.slopes_at(law, p, active_params, experts)[0])


def expert_slope(law: Law, active_params: float, experts: float) -> Quantity:
    return Quantity("b_of_n", lambda p: equivalence.slopes_at(law, p, active_params, experts)[1])


def loss_at(law: Law, **inputs: float) -> Quantity:
    """Loss at a point given in the law's own inputs."""
    x = {k: np.array([v], dtype=float) for k, v in inputs.items()}
    return Quantity("loss", lambda p: np.broadcast_to(law.log_loss(p, x), (len(p), 1))[:, 0], log=True)


def derived_quantities(law: Law, active_params: float, experts: float) -> list[Quantity]:
    """The constants of a law, and of one in (N, E) the paper's applications at a reference size and expert count."""
    constants = constant_quantities(law)
    if not in_size_and_experts(law):
        return constants
    return [
        *constants,
        n_cut(law),
        effective_params(law, active_params, experts),
        max_effective_params(law, active_params),
        size_slope(law, active_params, experts),
        expert_slope(law, active_params, experts),
        loss_at(law, active_params=active_params, experts=experts),
    ]


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    open_low: bool = False
    """True where the data set no lower end: the interval reaches the limit of the quantity, or beyond any number."""
    open_high: bool = False

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """None for an end that the data do not set."""
        return None if self.open_low else self.low, None if self.open_high else self.high


@dataclass(frozen=True, eq=False)
class Draws:
    """Refits to resampled points: each a plausible fit."""

    fit: Fit
    params_RP: Array
    method: Method
    clusters: int

    def interval(self, quantity: Quantity, level: float = DEFAULT_LEVEL) -> Interval:
        return Resamples(self.fit.params_BP, self.params_RP, self.method, self.clusters).interval(quantity, level)


@dataclass(frozen=True, eq=False)
class Resamples:
    """Parameters, and what refits to resampled points made of them, wherever the points are."""

    params_BP: Array
    """One row: the parameters themselves."""
    params_RP: Array
    method: Method
    clusters: int

    def interval(self, quantity: Quantity, level: float = DEFAULT_LEVEL) -> Interval:
        values_R = quantity.of(self.params_RP)
        estimate = float(quantity.of(self.params_BP)[0])
        low, high = np.quantile(values_R, [(1 - level) / 2, (1 + level) / 2], method="nearest")
        if self.method == "size-bootstrap":
            stretch = small_sample_stretch(self.clusters, level)
            low, high = (_stretched(estimate, float(end), stretch) for end in (low, high))
        return closed_interval(quantity, float(low), float(high))


def stretched_ends(estimate: Array | float, values_R: Array, clusters: int, level: float) -> Array:
    """Both ends of the percentile interval of resampled values (draws along the first axis), widened for few clusters.

    Draws without a value do not count.
    """
    ends = np.nanquantile(values_R, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return estimate + small_sample_stretch(clusters, level) * (ends - estimate)


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


def probability_larger(first_R: Array, second_R: Array, clusters: int) -> float:
    """Probability that the first is larger, from the share of resamples; a tie, as between equal laws, counts half."""
    share = float(np.mean(first_R > second_R) + np.mean(first_R == second_R) / 2)
    return small_sample_probability(share, clusters, len(first_R))


def closed_interval(quantity: Quantity, low: float, high: float) -> Interval:
    open_low = not np.isfinite(low) or low <= quantity.low
    open_high = not np.isfinite(high) or high >= quantity.high
    low, high = (quantity.value(end) for end in (max(low, quantity.low), min(high, quantity.high)))
    # An exponent may be finite and its power not: 10^(d/α) where α is hardly above 0.
    return Interval(low, high, bool(open_low or (quantity.log and low == 0)), bool(open_high or np.isinf(high)))


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
    counts_RC = resample_counts(len(names), draws, lambda drawn_C: is_determined(fit, drawn_C[cluster_N]), rng)
    # Where all draws are equal every refit is the fit itself, as if nothing were uncertain.
    if counts_RC is None or (counts_RC == counts_RC[0]).all():
        raise InputError(f"law {fit.law.name} is not determined by resamples of these {len(names)} clusters.")
    return Draws(fit, refit(fit, counts_RC[:, cluster_N]), method, informative)


def refit(fit: Fit, counts_RN: Array) -> Array:
    """Parameters (R, P) where each point counts as often as it was drawn."""
    # Equal resamples have equal fits: six sizes allow 462 of them.
    unique_UN, back_R = np.unique(counts_RN * fit.points.weight, axis=0, return_inverse=True)
    search_UP, _, _ = solve(
        fit.law, fit.points, unique_UN, warm_P=fit.search_P, searches=RESAMPLE_SEARCHES, error=fit.error
    )
    return fit.law.from_search(search_UP)[back_R.ravel()]


def informative_sizes(fit: Fit) -> int:
    """Sizes that say something about every axis of the law: for a law that knows E, those with more than one.

    Dense runs of further sizes do not make a resample of routed ones any richer.
    """
    points = fit.points
    if not {"experts", "total_params"} & set(fit.law.inputs):
        return len(points.sizes)
    return sum(len(np.unique(points.x["experts"][points.size == size])) > 1 for size in points.sizes)


def resample_counts(
    clusters: int, draws: int, determined: Callable[[Array], bool], rng: np.random.Generator
) -> Array | None:
    """How often each cluster is drawn, (R, clusters), keeping only draws for which `determined` says of the mask of
    clusters drawn that they will do; None where these are too rare."""
    verdicts: dict[bytes, bool] = {}

    def keeps(counts_C: Array) -> bool:
        key = (counts_C > 0).tobytes()
        if key not in verdicts:
            verdicts[key] = determined(counts_C > 0)
        return verdicts[key]

    kept: list[Array] = []
    for _ in range(MAX_REDRAWS):
        kept += filter(keeps, rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws))
        if len(kept) >= draws:
            return np.stack(kept[:draws])
    return None
