"""Held-out errors against the plainest loop there is."""

from dataclasses import replace

import numpy as np
import pytest

from routelaw.fitting import Points, fit_law
from routelaw.fitting.validation import held_out_residuals, validate
from routelaw.laws.law import Array


def naive(points: Points, groups_N: Array) -> Array:
    """Leave each group out in turn, fit the bilinear law with `lstsq`, predict the group."""
    u_N, v_N = np.log10(points.x["active_params"]), np.log10(points.x["experts"])
    basis_NC = np.stack([u_N, v_N, u_N * v_N, np.ones_like(u_N)], axis=1)
    root_N = np.sqrt(points.weight)
    residual_N = np.zeros(len(points))
    for group in set(groups_N.tolist()):
        kept, out = groups_N != group, groups_N == group
        beta_C, *_ = np.linalg.lstsq(basis_NC[kept] * root_N[kept, None], points.log_loss[kept] * root_N[kept])
        residual_N[out] = basis_NC[out] @ beta_C - points.log_loss[out]
    return residual_N


def rms(residual_N: Array, weight_N: Array) -> float:
    return float(np.sqrt((weight_N * residual_N**2).sum() / weight_N.sum()))


@pytest.mark.parametrize("weighted", [False, True])
def test_against_a_loop(simulate, weighted) -> None:
    points = simulate("bilinear", experts=7)
    if weighted:
        points = replace(points, weight=np.random.default_rng(0).uniform(0.2, 3, len(points)))
    one_N, size_N = naive(points, np.arange(len(points))), naive(points, points.size)
    v = validate(fit_law("bilinear", points))
    assert v.one_out_N == pytest.approx(one_N, abs=1e-9)
    assert v.size_out_N == pytest.approx(size_N, abs=1e-9)
    largest_N = points.size == points.sizes[-1]
    errors = (rms(one_N, points.weight), rms(size_N, points.weight), rms(size_N[largest_N], points.weight[largest_N]))
    assert (v.leave_one_out, v.leave_size_out, v.largest_size_out) == pytest.approx(errors, rel=1e-6)
    assert v.in_sample == pytest.approx(fit_law("bilinear", points).rmsle)
    assert v.warnings == ()


def test_a_point_held_out_has_no_say(simulate) -> None:
    """Spoil one loss: its own held-out residual moves by just as much, for a law that is searched for too."""
    points = simulate("saturated", experts=8)
    spoiled = replace(points, loss=points.loss * np.where(np.arange(48) == 20, 1.02, 1.0))
    groups_N = (np.arange(48) == 20).astype(int)
    before, after = (held_out_residuals(fit_law("saturated", p), groups_N)[20] for p in (points, spoiled))
    assert before - after == pytest.approx(np.log10(1.02), abs=1e-6)


def test_larger_errors_on_what_was_not_seen(simulate) -> None:
    v = validate(fit_law("saturated", simulate("saturated")))
    assert v.leave_one_out is not None
    assert v.leave_size_out is not None
    assert v.in_sample < v.leave_one_out < v.leave_size_out


def test_two_sizes_leave_one(simulate) -> None:
    """One size cannot determine a slope in N: no leave-size-out error, and a sentence that says so."""
    v = validate(fit_law("bilinear", simulate("bilinear", sizes=2)))
    assert (v.leave_size_out, v.largest_size_out) == (None, None)
    assert v.leave_one_out is not None
    assert np.isnan(v.size_out_N).all()
    assert "without one of the 2 sizes law bilinear is not determined" in v.warnings[0]


def test_as_few_points_as_can_be(simulate) -> None:
    """Five points, four parameters: without one of them nothing is left to judge by."""
    points = simulate("bilinear", sizes=3, experts=3)
    v = validate(fit_law("bilinear", points.where(np.isin(np.arange(9), (0, 2, 4, 6, 8)))))
    assert (v.leave_one_out, v.leave_size_out) == (None, None)
    assert v.in_sample > 0


def test_points_of_no_weight_are_not_counted(simulate) -> None:
    points = simulate("bilinear", experts=7)
    largest_N = points.size == points.sizes[-1]
    v = validate(fit_law("bilinear", replace(points, weight=np.where(largest_N, 0.0, 1.0))))
    fewer = validate(fit_law("bilinear", points.where(~largest_N)))
    assert v.leave_size_out == pytest.approx(fewer.leave_size_out, rel=1e-6)
    assert v.largest_size_out is None
