"""How often does a nominal 90 % interval hold the truth? Measured on data simulated from a fitted law.

    python -m benchmarks.coverage [--repeats 1000] [--shared-repeats 300] [--bootstrap-repeats 200] [--processes 2]

The truth is a law fitted to S-BASE, at the design points of the real runs; the noise is one of

    independent   every run on its own, sd = the residual sd of the fit
    shifts        each model size moved as a whole, plus independent noise
    tilts         each size moved and tilted in log E, plus independent noise: what the real residuals look like
    all shared    each size moved as a whole and nothing else

with shift, tilt and rest estimated from the real residuals. For each method and quantity: the share of intervals in %
that hold the truth, and their median width on the quantity's own scale (log10 for sizes, experts and losses).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.fit import find_points
from benchmarks.script import run, use_one_thread
from routelaw.bench.results import Row, row
from routelaw.fitting import Fit, Points, fit_law
from routelaw.fitting.fit import solve
from routelaw.fitting.intervals import (
    Interval,
    Quantity,
    bootstrap,
    effective_params,
    loss_at,
    n_cut,
    parameter_quantities,
    small_sample_stretch,
)
from routelaw.fitting.profile import profile_intervals
from routelaw.laws.law import Array

LEVEL = 0.9
NOISES = ("independent", "shifts", "tilts", "all shared")
LAWS = ("saturated", "irreducible")
SIZE_DRAWS, CASE_DRAWS = 400, 200


@dataclass(frozen=True)
class Options:
    data: Path | None = None
    """A run table; by default the released one, beside the repository or cached."""
    repeats: int = 1000
    """Repeats under independent noise."""
    shared_repeats: int = 300
    """Repeats under the other noises."""
    bootstrap_repeats: int = 200
    """Repeats of those with bootstraps."""
    laws: tuple[str, ...] = LAWS
    noises: tuple[str, ...] = NOISES
    processes: int = 2


@dataclass(frozen=True, eq=False)
class Truth:
    """A fitted law as the truth, the design matrices of shifts and tilts, and the sd of each kind of noise."""

    fit: Fit
    quantities: list[Quantity]
    shift_NG: Array
    tilt_NG: Array
    sds: dict[str, tuple[float, float, float]]
    """For each noise: sd of shift, of tilt (per decade of E), and of the rest."""

    def simulate(self, noise: str, rng: np.random.Generator) -> Points:
        shift, tilt, rest = self.sds[noise]
        sizes = self.shift_NG.shape[1]
        moved_N = shift * self.shift_NG @ rng.standard_normal(sizes) + tilt * self.tilt_NG @ rng.standard_normal(sizes)
        points = self.fit.points
        log_loss_N = points.log_loss + self.fit.residual_N + moved_N + rest * rng.standard_normal(len(points))
        return replace(points, loss=10.0**log_loss_N)


@cache
def truth_of(law: str, data: Path | None) -> Truth:
    points, _ = find_points(data)
    fit = fit_law(law, points)
    member_NG = np.stack([points.size == name for name in points.sizes], axis=1).astype(float)
    log_experts_N = np.log10(points.x["experts"])
    centred_N = log_experts_N - member_NG @ (log_experts_N @ member_NG / member_NG.sum(0))
    tilt_NG = member_NG * centred_N[:, None]
    quantities = parameter_quantities(fit.law)
    quantities += [n_cut(fit.law)] if law == "saturated" else []  # the irreducible law has none
    quantities += [effective_params(fit.law, 370e6, 64)]
    quantities += [replace(loss_at(fit.law, active_params=size, experts=64), name=f"loss({n}, 64)") for n, size in
                   (("370M", 370e6), ("7B", 7e9))]  # fmt: skip
    return Truth(fit, quantities, member_NG, tilt_NG, noise_sds(fit, member_NG, tilt_NG))


def noise_sds(fit: Fit, member_NG: Array, tilt_NG: Array) -> dict[str, tuple[float, float, float]]:
    """Variance components of the residuals by moments; a law absorbs about two shifts and two tilts of the six."""
    points_N, sizes = fit.residual_N, member_NG.shape[1]
    count_G, lever_G = member_NG.sum(0), (tilt_NG**2).sum(0)
    shift_G, tilt_G = points_N @ member_NG / count_G, points_N @ tilt_NG / lever_G
    steady_N = points_N - member_NG @ shift_G
    rest_N = steady_N - tilt_NG @ tilt_G
    free = len(points_N) - len(fit.params)
    within = float(steady_N @ steady_N / (free - sizes + 2))
    rest = float(rest_N @ rest_N / (free - 2 * sizes + 4))
    shift = max(float(shift_G @ shift_G / (sizes - 2)) - within / count_G.mean(), 0.0)
    tilt = max(float(tilt_G @ tilt_G / (sizes - 2)) - rest / lever_G.mean(), 0.0)
    total = float(points_N @ points_N / free)
    variances = {
        "independent": (0.0, 0.0, total),
        "shifts": (shift, 0.0, within),
        "tilts": (shift, tilt, rest),
        "all shared": (total, 0.0, 0.0),
    }
    return {noise: (float(np.sqrt(s)), float(np.sqrt(t)), float(np.sqrt(r))) for noise, (s, t, r) in variances.items()}


# The methods: each gives the ends of every quantity's interval on its own scale, (Q, 2).


def offsets_of(quantities: list[Quantity], intervals: list[Interval]) -> Array:
    def scaled(quantity: Quantity, value: float, is_open: bool, side: float) -> float:
        if is_open:
            return side * np.inf
        return float(np.log10(value)) if quantity.log else value

    return np.array(
        [
            [scaled(q, i.low, i.open_low, -1.0), scaled(q, i.high, i.open_high, 1.0)]
            for q, i in zip(quantities, intervals, strict=True)
        ]
    )


def jackknife(fit: Fit, quantities: list[Quantity]) -> Array:
    """Student's t around the estimate, with the spread of the fits that leave one size out."""
    points = fit.points
    weights_GN = np.stack([np.where(points.size != name, points.weight, 0.0) for name in points.sizes])
    search_GP, _, _ = solve(fit.law, points, weights_GN, warm_P=fit.search_P, searches=4)
    estimate_Q = np.array([q.of(fit.params_BP)[0] for q in quantities])
    out_QG = np.stack([q.of(fit.law.from_search(search_GP)) for q in quantities])
    sizes = len(weights_GN)
    with np.errstate(invalid="ignore"):
        spread_Q = np.sqrt((sizes - 1) / sizes * ((out_QG - estimate_Q[:, None]) ** 2).sum(1))
    reach_Q = stats.t.ppf((1 + LEVEL) / 2, sizes - 1) * np.where(np.isfinite(spread_Q), spread_Q, np.inf)
    return np.stack([estimate_Q - reach_Q, estimate_Q + reach_Q], axis=1)


def bootstraps(fit: Fit, quantities: list[Quantity], profile_Q2: Array, seed: int) -> dict[str, Array]:
    size_draws = bootstrap(fit, "size-bootstrap", SIZE_DRAWS, seed)
    case_draws = bootstrap(fit, "case-bootstrap", CASE_DRAWS, seed)
    stretched_Q2 = offsets_of(quantities, [size_draws.interval(q, LEVEL) for q in quantities])
    estimate_Q1 = np.array([q.of(fit.params_BP) for q in quantities])
    plain_Q2 = estimate_Q1 + (stretched_Q2 - estimate_Q1) / small_sample_stretch(size_draws.clusters, LEVEL)
    return {
        "case bootstrap": offsets_of(quantities, [case_draws.interval(q, LEVEL) for q in quantities]),
        "size bootstrap, plain": plain_Q2,
        "size bootstrap, stretched": stretched_Q2,
        "hull of profile and stretched": np.stack(
            [np.minimum(profile_Q2, stretched_Q2)[:, 0], np.maximum(profile_Q2, stretched_Q2)[:, 1]], axis=1
        ),
    }


def one_repeat(law: str, noise: str, data: Path | None, boots: int, repeat: int) -> dict[str, Array]:
    truth = truth_of(law, data)
    points = truth.simulate(noise, np.random.default_rng([LAWS.index(law), NOISES.index(noise), repeat]))
    fit = fit_law(law, points)
    profile_Q2 = offsets_of(truth.quantities, profile_intervals(fit, truth.quantities, LEVEL))
    found = {"profile": profile_Q2, "size jackknife, t": jackknife(fit, truth.quantities)}
    return found | (bootstraps(fit, truth.quantities, profile_Q2, repeat) if repeat < boots else {})


def coverage(name: str, truth: Truth, repeats: list[dict[str, Array]]) -> Iterator[Row]:
    """For each method a row with coverage in % and median width of every quantity."""
    true_Q = np.array([q.of(truth.fit.params_BP)[0] for q in truth.quantities])
    names = [q.name.split("(N=")[0] for q in truth.quantities]
    for method in repeats[0]:
        ends_RQ2 = np.stack([r[method] for r in repeats if method in r])
        cover_Q = 100 * ((ends_RQ2[..., 0] <= true_Q) & (true_Q <= ends_RQ2[..., 1])).mean(0)
        with np.errstate(invalid="ignore"):
            width_Q = np.median(ends_RQ2[..., 1] - ends_RQ2[..., 0], axis=0)
        figures = dict(zip(names, cover_Q, strict=True)) | {"repeats": len(ends_RQ2)}
        yield row(f"{name}, {method}", figures | {f"{n} width": w for n, w in zip(names, width_Q, strict=True)})


def rows(options: Options) -> Iterator[Row]:
    with ProcessPoolExecutor(options.processes) as pool:
        for law in options.laws:
            for noise in options.noises:
                truth = truth_of(law, options.data)
                count = options.repeats if noise == "independent" else options.shared_repeats
                repeat = partial(one_repeat, law, noise, options.data, options.bootstrap_repeats)
                sds = dict(zip(("sd of shift", "sd of tilt", "sd of rest"), truth.sds[noise], strict=True))
                yield row(f"{law}, {noise}", sds)
                yield from coverage(f"{law}, {noise}", truth, list(pool.map(repeat, range(count), chunksize=4)))


if __name__ == "__main__":
    use_one_thread()
    run("coverage", __doc__, Options, rows, lambda options: find_points(options.data)[1])
