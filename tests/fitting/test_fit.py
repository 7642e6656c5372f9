"""Fits: the optimum against SciPy's from many starts, robust and weighted errors, and what is said where data fail."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares

from routelaw.errors import InputError
from routelaw.fitting import Points, fit_law
from routelaw.fitting.fit import HUBER_DELTA, solve
from routelaw.laws import all_laws, get_law
from routelaw.laws.law import Array, Law


def scipy_error(law: Law, points: Points, weight_N: Array, start_P: Array) -> float:
    """Σ w·r² at the optimum that SciPy's trust region finds from a start, in search coordinates."""
    low_P, high_P = law.search_bounds()
    start_P = np.clip(start_P, low_P + 1e-6, high_P - 1e-6)

    def residuals(search_P: Array) -> Array:
        with np.errstate(all="ignore"):
            r_N = (law.log_loss(law.from_search(search_P[None]), points.x)[0] - points.log_loss) * np.sqrt(weight_N)
        return np.where(np.isfinite(r_N), r_N, 1e2)

    found = least_squares(residuals, start_P, bounds=(low_P, high_P), x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-14)
    return 2 * found.cost


@pytest.mark.parametrize("name", ["saturated", "irreducible"])
def test_never_worse_than_many_random_starts(simulate: Callable[..., Points], name: str) -> None:
    """On resampled sizes, against SciPy from random places around the truth and from the fit itself."""
    points, law, rng = simulate(name), get_law(name), np.random.default_rng(5)
    whole = fit_law(law, points)
    sizes = np.array(points.sizes, dtype=object)
    for _ in range(3):
        drawn = rng.choice(sizes, 6)
        weight_N = np.array([(drawn == s).sum() for s in points.size], float)
        (search_P,), (error,), (converged,) = solve(law, points, weight_N[None], warm_P=whole.search_P, searches=2)
        assert converged
        starts = [search_P, *(search_P + rng.normal(0, 0.1, (6, search_P.size)) * np.maximum(np.abs(search_P), 0.2))]
        assert error <= min(scipy_error(law, points, weight_N, s) for s in starts) * (1 + 1e-6)


@pytest.mark.parametrize("name", ["bilinear", "saturated", "irreducible"])
def test_the_truth_is_found_without_noise(simulate, truth, name) -> None:
    fit = fit_law(name, simulate(name, noise=0.0))
    assert fit.status == "converged"
    assert fit.rmsle < 1e-8
    assert fit.params == pytest.approx(truth[name], rel=1e-4)


def test_bilinear_is_ordinary_least_squares(simulate) -> None:
    points = simulate("bilinear")
    fit = fit_law("bilinear", points)
    beta_C, *_ = np.linalg.lstsq(basis(points), points.log_loss)
    assert list(fit.params.values()) == pytest.approx(beta_C, rel=1e-9)
    assert fit.status == "converged"
    assert fit.residual_N == pytest.approx(basis(points) @ beta_C - points.log_loss, abs=1e-12)


def basis(points: Points) -> Array:
    u_N, v_N = np.log10(points.x["active_params"]), np.log10(points.x["experts"])
    return np.stack([u_N, v_N, u_N * v_N, np.ones_like(u_N)], axis=1)


@pytest.mark.parametrize("weighted", [False, True])
def test_huber_against_scipy(simulate, weighted) -> None:
    """SciPy's `f_scale` is the residual from which the error grows linearly; weights multiply each point's error."""
    points = simulate("bilinear", noise=2e-3)
    log_loss_N = points.log_loss + np.where(np.arange(60) % 17 == 3, 0.05, 0.0)
    weight_N = np.random.default_rng(2).uniform(0.5, 2, 60) if weighted else np.ones(60)
    points = replace(points, loss=10**log_loss_N, weight=weight_N)
    fit = fit_law("bilinear", points, error="huber")
    assert (fit.status, fit.error) == ("converged", "huber")

    def huber(residual_N: Array) -> float:
        size_N = np.abs(residual_N)
        small = size_N <= HUBER_DELTA
        return float(weight_N @ np.where(small, residual_N**2, HUBER_DELTA * (2 * size_N - HUBER_DELTA)))

    if not weighted:
        found = least_squares(
            lambda beta_C: basis(points) @ beta_C - log_loss_N, list(fit_law("bilinear", points).params.values()),
            loss="huber", f_scale=HUBER_DELTA, x_scale="jac", xtol=1e-15, ftol=1e-15, gtol=1e-15,
        )  # fmt: skip
        assert list(fit.params.values()) == pytest.approx(found.x, rel=1e-4)
        assert huber(fit.residual_N) <= huber(basis(points) @ found.x - log_loss_N) * (1 + 1e-9)
    rng = np.random.default_rng(3)
    here_C = np.array(list(fit.params.values()))
    nearby = here_C + rng.normal(0, 1, (300, 4)) * np.abs(here_C) * 10 ** rng.uniform(-6, -2, (300, 1))
    assert huber(fit.residual_N) <= min(huber(basis(points) @ beta_C - log_loss_N) for beta_C in nearby)


@pytest.mark.parametrize("error", ["squared", "huber"])
def test_a_weight_of_two_is_the_point_twice(simulate, error) -> None:
    points = simulate("saturated", experts=8)
    twice = np.arange(len(points)) % 3 == 0
    weighted = replace(points, weight=np.where(twice, 2.0, 1.0))
    index = np.concatenate([np.arange(len(points)), np.flatnonzero(twice)])
    first, second = fit_law("saturated", weighted, error=error), fit_law("saturated", points.where(index), error=error)
    assert first.rmsle == pytest.approx(second.rmsle, rel=1e-7)
    assert first.params == pytest.approx(second.params, rel=1e-4)


def test_a_pure_power_law_has_no_ceiling(simulate) -> None:
    fit = fit_law("saturated", simulate("bilinear", noise=1e-5, experts=8))
    assert fit.status == "at-bound"
    assert any(w.startswith("e_max ended at its upper bound 1e+06") for w in fit.warnings)


def test_two_expert_counts_do_not_show_saturation(simulate) -> None:
    fit = fit_law("saturated", simulate("saturated", experts=2))
    assert fit.status == "unidentified"
    assert any("cannot be told apart" in w for w in fit.warnings)
    assert fit.rmsle == pytest.approx(fit_law("bilinear", simulate("saturated", experts=2)).rmsle, rel=1e-6)


def test_what_cannot_be_fitted_is_said(simulate) -> None:
    points = simulate("saturated")
    one_size, one_e = points.where(points.size == points.sizes[2]), points.where(points.dense)
    for law, some, memory_error in (
        ("saturated", one_size, "one model size only"),
        ("saturated", points.where(np.arange(60) % 11 == 0), "it needs at least 7"),
        ("separable", one_e, "all points of simulated have E = 1"),
        ("experts", points, "choose one with --size"),
        ("compute", points, "law compute reads 'flops_per_token'; a law may read active_params, experts"),
        ("saturatd", points, "did you mean 'saturated'"),
    ):
        with pytest.raises(InputError, match=memory_error):
            fit_law(law, some)


def test_a_law_may_be_an_object(simulate) -> None:
    points = simulate("bilinear")
    assert fit_law(all_laws()["bilinear"], points).params == fit_law("bilinear", points).params
