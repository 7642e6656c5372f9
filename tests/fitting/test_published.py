"""The paper's own procedure: the same kind of result as `fit_law`, and never a better one."""

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting import Points, fit_law
from routelaw.fitting.published import fit_lbfgsb, start_range
from routelaw.laws import all_laws, get_law

TRUE = {"a": -0.083, "b": -0.12, "c": 0.0101, "d": 1.117, "e_start": 2.2, "e_max": 230.0}


@pytest.fixture(scope="module")
def points() -> Points:
    """Six sizes × ten expert counts of the paper's law, with noise as large as its residuals."""
    active_N, experts_N = (m.ravel() for m in np.meshgrid(10 ** np.linspace(7.2, 9.1, 6), 2.0 ** np.arange(10)))
    x = {"active_params": active_N, "experts": experts_N}
    law = get_law("saturated")
    log_loss_N = law.log_loss(law.row(TRUE), x)[0] + 3e-3 * np.random.default_rng(3).standard_normal(60)
    size = np.array([f"{n / 1e6:.0f}M" for n in active_N], dtype=object)
    return Points("simulated", "loss_validation", x, 10**log_loss_N, np.ones(60), size, experts_N == 1)


@pytest.fixture(scope="module")
def rough_fits(points):
    return [fit_lbfgsb("saturated", points, starts=6, seed=seed) for seed in range(4)]


def test_it_never_beats_the_optimum(points, rough_fits):
    best = fit_law("saturated", points)
    assert all(rough.rmsle >= best.rmsle * (1 - 1e-12) for rough in rough_fits)


def test_its_e_max_wanders_with_the_seed(points, rough_fits):
    e_max = [rough.params["e_max"] for rough in rough_fits]
    assert max(e_max) / min(e_max) > 1.2
    assert {rough.status for rough in rough_fits} == {"not-converged"}


def test_a_law_without_a_flat_valley_is_found_by_both(points):
    rough, best = fit_lbfgsb("bilinear", points, starts=6), fit_law("bilinear", points)
    assert rough.rmsle == pytest.approx(best.rmsle, rel=1e-5)
    assert rough.params["a"] == pytest.approx(best.params["a"], rel=1e-3)


def test_the_result_is_a_fit_like_any_other(rough_fits):
    fit = rough_fits[0]
    assert fit.rmsle == pytest.approx(float(np.sqrt(np.mean(fit.residual_N**2))))
    assert fit.predict(active_params=1e8, experts=8)[0] > 0
    assert np.allclose(fit.law.from_search(fit.search_P[None])[0], list(fit.params.values()))


def test_a_seed_gives_the_same_fit_again(points, rough_fits):
    assert fit_lbfgsb("saturated", points, starts=6, seed=2).params == rough_fits[2].params


def test_weights_count(points):
    halved = points.where(np.arange(60) % 2 == 0)
    weighted = Points(**{**vars(points), "weight": (np.arange(60) % 2 == 0).astype(float)})
    fits = [fit_lbfgsb("bilinear", p, starts=2) for p in (halved, weighted)]
    assert fits[0].rmsle == pytest.approx(fits[1].rmsle, rel=1e-4)


def test_too_few_points_are_an_input_error(points):
    with pytest.raises(InputError, match="6 parameters"):
        fit_lbfgsb("saturated", points.where(np.arange(60) % 13 == 0), starts=1)


@pytest.mark.parametrize("law", all_laws().values(), ids=lambda law: law.name)
def test_random_starts_lie_within_bounds(law):
    low_P, high_P = law.search_bounds()
    for parameter, low, high in zip(law.parameters, low_P, high_P, strict=True):
        least, most = start_range(parameter)
        assert np.isfinite([least, most]).all()
        assert max(low, -1e9) <= least <= most <= min(high, 1e9)


def test_on_the_released_losses(released):
    from routelaw.fitting import select_points

    points = select_points(released, "s-base")
    rough, best = fit_lbfgsb("saturated", points, starts=10), fit_law("saturated", points)
    assert best.rmsle < rough.rmsle < 1.2 * best.rmsle
