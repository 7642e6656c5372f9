"""Intervals: against closed forms where there are any, reproducible, and open where the data set no limit."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from routelaw.errors import InputError
from routelaw.fitting import Points, fit_law, profile
from routelaw.fitting.fit import is_determined
from routelaw.fitting.fit_report import judge
from routelaw.fitting.intervals import (
    Draws,
    Interval,
    Quantity,
    bootstrap,
    closed_interval,
    effective_params,
    loss_at,
    n_cut,
    parameter_quantities,
    resample_counts,
    small_sample_probability,
    small_sample_stretch,
)
from routelaw.fitting.profile import profile_intervals
from routelaw.laws import get_law

TRUE = {"a": -0.083, "b": -0.12, "c": 0.0101, "d": 1.117, "e_start": 2.2, "e_max": 230.0}


def simulated(noise: float = 3e-3, seed: int = 1, shared: float = 0.0, experts: int = 10, **changes: float) -> Points:
    """Six sizes × `experts` expert counts from the paper's law; `shared` moves each size as a whole."""
    active_N, experts_N = (m.ravel() for m in np.meshgrid(10 ** np.linspace(7.2, 9.1, 6), 2.0 ** np.arange(experts)))
    x = {"active_params": active_N, "experts": experts_N}
    law, rng = get_law("saturated"), np.random.default_rng(seed)
    log_loss_N = law.log_loss(law.row(TRUE | changes), x)[0] + noise * rng.standard_normal(active_N.size)
    log_loss_N = log_loss_N + np.tile(shared * rng.standard_normal(6), experts)
    size = np.array([f"{n / 1e6:.0f}M" for n in active_N], dtype=object)
    return Points("simulated", "loss_validation", x, 10**log_loss_N, np.ones(active_N.size), size, experts_N == 1)


@pytest.fixture(scope="module")
def saturated():
    return fit_law("saturated", simulated())


@pytest.fixture(scope="module")
def bilinear():
    return fit_law("bilinear", simulated())


def ordinary_t_interval(basis_NC, log_loss_N, direction_C, level, weight_N=None) -> tuple[float, float]:
    """Student's interval of a linear combination of ordinary least-squares coefficients, by the textbook."""
    root_N = np.ones(len(log_loss_N)) if weight_N is None else np.sqrt(weight_N)
    basis_NC, log_loss_N = basis_NC * root_N[:, None], log_loss_N * root_N
    beta_C, *_ = np.linalg.lstsq(basis_NC, log_loss_N)
    free = len(log_loss_N) - basis_NC.shape[1]
    variance = np.sum((log_loss_N - basis_NC @ beta_C) ** 2) / free
    spread = np.sqrt(variance * direction_C @ np.linalg.inv(basis_NC.T @ basis_NC) @ direction_C)
    reach = stats.t.ppf((1 + level) / 2, free) * spread
    return direction_C @ beta_C - reach, direction_C @ beta_C + reach


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_profile_of_a_linear_law_is_students_interval(level, weighted):
    points = simulated()
    if weighted:
        points = replace(points, weight=np.random.default_rng(0).uniform(0.5, 2.0, len(points)))
    fit = fit_law("bilinear", points)
    u_N, v_N = np.log10(points.x["active_params"]), np.log10(points.x["experts"])
    basis_NC = np.stack([u_N, v_N, u_N * v_N, np.ones_like(u_N)], axis=1)
    at = {"active_params": 3e8, "experts": 64.0}
    log_n, log_e = np.log10(3e8), np.log10(64)
    directions = [*np.eye(4), np.array([log_n, log_e, log_n * log_e, 1.0])]
    intervals = profile_intervals(fit, [*parameter_quantities(fit.law), loss_at(fit.law, **at)], level)
    for interval, direction_C in zip(intervals, directions, strict=True):
        low, high = ordinary_t_interval(basis_NC, points.log_loss, direction_C, level, points.weight)
        found = np.log10([interval.low, interval.high]) if interval is intervals[-1] else [interval.low, interval.high]
        assert found == pytest.approx([low, high], abs=1e-3 * (high - low))
        assert not interval.open_low
        assert not interval.open_high


def test_the_error_at_the_ends_of_a_profile_is_at_the_threshold(saturated):
    """Checked without the profile's own machinery: hold e_max at each end, fit the rest by brute force."""
    from scipy.optimize import minimize_scalar

    points, law = saturated.points, saturated.law
    (interval,) = profile_intervals(saturated, [q for q in parameter_quantities(law) if q.name == "e_max"])
    u_N = np.log10(points.x["active_params"])

    def error(log_start: float, ceiling: float) -> float:
        v_N = law.saturation.log_effective(points.x["experts"], np.array([10**log_start]), np.array([ceiling]))[0]
        basis_NC = np.stack([u_N, v_N, u_N * v_N, np.ones_like(u_N)], axis=1)
        beta_C, *_ = np.linalg.lstsq(basis_NC, points.log_loss)
        return float(np.sum((basis_NC @ beta_C - points.log_loss) ** 2))

    best = float(np.sum(saturated.residual_N**2))
    allowed = best * (1 + stats.f.ppf(0.9, 1, len(points) - 6) / (len(points) - 6))
    for end in (interval.low, interval.high):
        held = minimize_scalar(error, bounds=(-0.9, 1.2), args=(end,), method="bounded", options={"xatol": 1e-8})
        assert held.fun - best == pytest.approx(allowed - best, rel=0.01)


def test_profile_ends_are_open_where_the_data_set_no_limit():
    """Up to 16 experts of a law that saturates at thousands: no ceiling can be excluded."""
    fit = fit_law("saturated", simulated(experts=5, e_max=5e3))
    intervals = dict(zip(fit.law.names, profile_intervals(fit, parameter_quantities(fit.law)), strict=True))
    assert intervals["e_max"].open_high
    assert intervals["e_max"].high == pytest.approx(1e6), "an open end stands at the limit of the parameter"
    assert not intervals["a"].open_low
    assert not intervals["a"].open_high


def test_a_quantity_that_does_not_exist_has_an_open_interval():
    fit = fit_law("irreducible", simulated())
    (interval,) = profile_intervals(fit, [n_cut(fit.law)])
    assert interval.open_low
    assert interval.open_high


def test_intervals_widen_with_the_level(saturated):
    quantities = [*parameter_quantities(saturated.law), n_cut(saturated.law), effective_params(saturated.law, 3e8, 64)]
    narrow, wide = (profile_intervals(saturated, quantities, level) for level in (0.5, 0.9))
    draws = bootstrap(saturated, draws=100)
    narrow += [draws.interval(q, 0.5) for q in quantities]
    wide += [draws.interval(q, 0.9) for q in quantities]
    assert all(w.low <= n.low <= n.high <= w.high for n, w in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("method", ["size-bootstrap", "case-bootstrap"])
def test_a_seed_gives_the_same_draws_again(saturated, method):
    first, again, other = (bootstrap(saturated, method, draws=50, seed=seed).params_RP for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def determining(fit, cluster_N):
    """Whether the points of some clusters determine the law of a fit."""
    return lambda drawn_C: is_determined(fit, drawn_C[cluster_N])


def test_equal_resamples_are_fitted_once_and_counted_as_often_as_drawn(bilinear):
    draws = bootstrap(bilinear, "size-bootstrap", draws=400, seed=3)
    assert draws.params_RP.shape == (400, 4)
    rng = np.random.default_rng(3)
    names, cluster_N = np.unique(bilinear.points.size.astype(str), return_inverse=True)
    counts_RC = resample_counts(len(names), 400, determining(bilinear, cluster_N), rng)
    distinct = len(np.unique(counts_RC, axis=0))
    assert len(np.unique(draws.params_RP, axis=0)) <= distinct < 400


def test_each_draw_is_the_fit_to_its_resample(bilinear):
    """Two runs of one size drawn twice count twice: the same as a fit with weights."""
    draws = bootstrap(bilinear, "size-bootstrap", draws=5, seed=11)
    names, cluster_N = np.unique(bilinear.points.size.astype(str), return_inverse=True)
    counts_RC = resample_counts(len(names), 5, determining(bilinear, cluster_N), np.random.default_rng(11))
    for counts_C, params_P in zip(counts_RC, draws.params_RP, strict=True):
        weighted = replace(bilinear.points, weight=counts_C[cluster_N].astype(float))
        assert list(fit_law("bilinear", weighted).params.values()) == pytest.approx(params_P, rel=1e-7)


def test_resamples_determine_the_law(saturated):
    _, cluster_N = np.unique(saturated.points.size.astype(str), return_inverse=True)
    counts_RC = resample_counts(6, 500, determining(saturated, cluster_N), np.random.default_rng(0))
    assert (counts_RC.sum(1) == 6).all()
    assert ((counts_RC > 0).sum(1) >= 2).all(), "one size alone cannot tell a slope in N"


def test_the_stretch_is_students_quantile_over_the_normal_one():
    assert small_sample_stretch(6, 0.9) == pytest.approx(np.sqrt(6 / 5) * 2.015048 / 1.644854, rel=1e-6)
    assert small_sample_stretch(10_000, 0.9) == pytest.approx(1.0, abs=1e-3)
    assert small_sample_stretch(6, 0.95) > small_sample_stretch(6, 0.9) > small_sample_stretch(12, 0.9)


def test_the_size_bootstrap_alone_is_stretched_about_the_estimate(bilinear):
    quantity = parameter_quantities(bilinear.law)[0]
    estimate = bilinear.params["a"]
    params_RP = np.repeat(bilinear.params_BP, 101, axis=0)
    params_RP[:, 0] = estimate + np.linspace(-0.01, 0.03, 101)
    by_case = Draws(bilinear, params_RP, "case-bootstrap", 60).interval(quantity, 0.9)
    by_size = Draws(bilinear, params_RP, "size-bootstrap", 6).interval(quantity, 0.9)
    assert (by_case.low - estimate, by_case.high - estimate) == pytest.approx((-0.008, 0.028))
    stretch = small_sample_stretch(6, 0.9)
    assert (by_size.low - estimate, by_size.high - estimate) == pytest.approx((-0.008 * stretch, 0.028 * stretch))


def test_noise_shared_within_sizes_widens_the_size_bootstrap_only():
    fit = fit_law("bilinear", simulated(noise=5e-4, shared=4e-3))
    loss = loss_at(fit.law, active_params=3e8, experts=64.0)
    by_size, by_case = (
        bootstrap(fit, method, draws=200).interval(loss) for method in ("size-bootstrap", "case-bootstrap")
    )
    assert by_size.high - by_size.low > 1.5 * (by_case.high - by_case.low)


def test_ends_beyond_a_limit_are_cut_there_and_open():
    share = Quantity("share", lambda p: p[:, 0], low=0.0, high=1.0)
    assert closed_interval(share, -0.2, 0.5) == Interval(0.0, 0.5, open_low=True)
    assert closed_interval(share, 0.1, np.inf) == Interval(0.1, 1.0, open_high=True)
    size = Quantity("size", lambda p: p[:, 0], log=True)
    assert closed_interval(size, 2.0, np.inf) == Interval(100.0, np.inf, open_high=True)


def test_an_open_end_of_a_bootstrap_is_reported(bilinear):
    """Where a few draws put the cut-off out of sight the interval has no upper end, and says so."""
    params_RP = np.repeat(bilinear.params_BP, 100, axis=0)
    params_RP[:20, 2] = -1e-3
    interval = Draws(bilinear, params_RP, "size-bootstrap", 6).interval(n_cut(bilinear.law))
    assert interval.open_high
    assert interval.high == np.inf
    assert not interval.open_low


def test_two_sizes_cannot_be_resampled():
    points = simulated()
    fit = fit_law("bilinear", points.where(np.isin(points.size, points.sizes[:2])))
    with pytest.raises(InputError, match="at least 3 sizes"):
        bootstrap(fit, "size-bootstrap")


def test_a_law_that_only_all_sizes_together_determine_has_no_bootstrap(simulate):
    """Every resample would be the data themselves, and every interval of no width."""
    fit = fit_law("quadratic", simulate("bilinear", sizes=3, experts=6))
    with pytest.raises(InputError, match="not determined by resamples"):
        bootstrap(fit, draws=50)
    judged = judge(fit, draws=50)
    assert judged.method == "profile"
    known = {name: i for name, i in judged.intervals.items() if np.isfinite(judged.derived.get(name, 0.0))}
    assert set(judged.intervals) - set(known) == {"epc_max"}, "infinite without saturation in E"
    assert all(interval.high > interval.low for interval in known.values())


def test_probability_allows_for_few_sizes():
    assert small_sample_probability(0.5, 6, 1000) == pytest.approx(0.5)
    # All of 1,000 draws of six sizes: Student's t with 5 degrees of freedom at 3.29/√1.2, from tables.
    assert small_sample_probability(1.0, 6, 1000) == pytest.approx(0.985, abs=1e-3)
    assert small_sample_probability(0.1, 6, 1000) == pytest.approx(1 - small_sample_probability(0.9, 6, 1000))
    assert small_sample_probability(0.95, 10_000, 1000) == pytest.approx(0.95, abs=1e-3)


def test_sizes_without_routed_runs_do_not_count_as_clusters():
    """Two sizes with experts and four dense ones: every resample that determines the law holds both."""
    points = simulated()
    routed = np.isin(points.size, points.sizes[1:3])
    fit = fit_law("bilinear", points.where(routed | points.dense))
    with pytest.raises(InputError, match="3 sizes with more than one E, not 2"):
        bootstrap(fit, "size-bootstrap")
    judged = judge(fit)
    assert judged.method == "profile"
    assert any("Profile intervals instead" in w for w in judged.warnings)


def test_a_parameter_at_its_bound_is_not_called_known():
    """A pure power law in E: e_max ends at its bound, and what is known is a lower end among the E seen."""
    points = simulated(noise=1e-3, experts=8, e_max=9e5)
    judged = judge(fit_law("saturated", points), draws=100)
    e_max = judged.intervals["e_max"]
    assert e_max.open_high
    assert e_max.low < 1e5
    assert judged.as_dict()["intervals"]["e_max"][1] is None


def test_a_profile_of_huber_error_is_refused(bilinear):
    fit = fit_law("bilinear", bilinear.points, error="huber")
    with pytest.raises(InputError, match="use a bootstrap"):
        judge(fit, method="profile")
    assert judge(fit, draws=60).method == "size-bootstrap"


@pytest.mark.slow
def test_profile_intervals_of_a_nonlinear_law_cover_as_they_claim():
    """A small version of benchmarks/coverage.py: 80 repeats of a nominal 90 % interval, ±3 standard errors."""
    law, held, repeats = get_law("saturated"), 0, 80
    e_max = next(q for q in parameter_quantities(law) if q.name == "e_max")
    for seed in range(repeats):
        (interval,) = profile_intervals(fit_law(law, simulated(seed=seed)), [e_max])
        held += interval.low <= TRUE["e_max"] <= interval.high
    assert abs(held / repeats - 0.9) < 0.1


def test_a_profile_is_not_caught_in_a_worse_basin():
    """A ridge with a trap at e_max = 2; by brute force over a grid the upper end of `a` is −0.0780."""
    fit = fit_law("saturated", simulated(experts=6, e_max=5e3, seed=2))
    a = parameter_quantities(fit.law)[0]
    (interval,) = profile_intervals(fit, [a])
    assert interval.high == pytest.approx(-0.0780, abs=2e-4)


def test_profile_ends_stay_in_order_with_a_parameter_at_its_bound():
    fit = fit_law("saturated", simulated(experts=4, e_max=5e3, seed=3))
    assert fit.status == "at-bound"
    for quantity, interval in zip(
        parameter_quantities(fit.law), profile_intervals(fit, parameter_quantities(fit.law)), strict=True
    ):
        assert interval.low <= quantity.value(float(quantity.of(fit.params_BP)[0])) <= interval.high


def test_parameters_that_cannot_be_told_apart_do_not_take_long(monkeypatch) -> None:
    """One loss of 0.2 among losses of 3: the profile wandered along a valley for half a minute."""
    grid = [(n, e) for n in (15e6, 60e6, 250e6, 1e9) for e in (1.0, 2.0, 8.0, 32.0)]
    active_N, experts_N = (np.array(column) for column in zip(*grid, strict=True))
    u_N, v_N = np.log10(active_N), np.log10(experts_N)
    noise_N = 0.002 * np.random.default_rng(0).standard_normal(16)
    loss_N = 10 ** (1.1 - 0.08 * u_N - 0.12 * v_N + 0.01 * u_N * v_N + noise_N)
    loss_N[3] = 0.2
    x = {"active_params": active_N, "experts": experts_N}
    sizes_N = np.array([f"{n:g}" for n in active_N], dtype=object)
    fit = fit_law("saturated", Points("s-base", "loss", x, loss_N, np.ones(16), sizes_N, experts_N == 1))
    assert fit.status == "unidentified"
    rounds = []
    advance = profile._Ends.advance
    monkeypatch.setattr(profile._Ends, "advance", lambda ends: (rounds.append(1), advance(ends)))
    found = profile_intervals(fit, parameter_quantities(fit.law))
    assert len(rounds) <= profile.ROUNDS_UNIDENTIFIED
    assert all(interval.open_low and interval.open_high for interval in found[:4])
