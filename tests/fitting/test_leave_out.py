"""Refits by expansion against searches, and what they cost as points become more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from routelaw.fitting import Points, fit_law, validation
from routelaw.fitting.fit import is_determined, solve
from routelaw.fitting.validation import determined_without, held_out_residuals, refits_without
from routelaw.laws.power_sum_at_points import PowerSumAtPoints


@pytest.mark.parametrize("law", ["bilinear", "saturated", "irreducible", "irreducible-bilinear"])
@pytest.mark.parametrize("weighted", [False, True])
def test_against_a_search_for_each_point(simulate: Callable[..., Points], law: str, weighted: bool) -> None:
    points = simulate("saturated" if law != "irreducible" else law, sizes=20, experts=18)
    if weighted:
        points = replace(points, weight=np.random.default_rng(0).uniform(0.3, 2.0, len(points)))
    fit = fit_law(law, points)
    search_GP, known_G = refits_without(fit, np.arange(len(points)), len(points))
    assert known_G.mean() > 0.8
    chosen = np.flatnonzero(known_G)[::9]
    weights_RN = np.where(np.arange(len(points)) != chosen[:, None], points.weight, 0.0)
    searched_RP, _, _ = solve(fit.law, points, weights_RN, warm_P=fit.search_P)
    left = np.arange(chosen.size), chosen
    by_search, by_expansion = (
        fit.law.log_loss(fit.law.from_search(z_RP), points.x)[left] for z_RP in (searched_RP, search_GP[chosen])
    )
    moved = np.abs(by_search - fit.law.log_loss(fit.params_BP, points.x)[0][chosen]).max()
    assert moved > 1e-3 * fit.rmsle
    assert by_expansion == pytest.approx(by_search, abs=1e-5 * fit.rmsle)


def test_whole_sizes(simulate: Callable[..., Points], monkeypatch: pytest.MonkeyPatch) -> None:
    points = simulate("saturated", sizes=60, experts=10)
    points = replace(points, size=np.array([f"size {n:.6g}" for n in points.x["active_params"]], dtype=object))
    fit = fit_law("saturated", points)
    expanded_N = held_out_residuals(fit, points.size)
    monkeypatch.setattr(validation, "SEARCHED", 10**9)
    assert expanded_N == pytest.approx(held_out_residuals(fit, points.size), abs=3e-5 * fit.rmsle)


def test_a_parameter_at_its_bound(simulate: Callable[..., Points], monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses that do not saturate put e_max at its bound; a refit may leave it, and then it is searched for."""
    points = simulate("bilinear", sizes=15, experts=16)
    fit = fit_law("saturated", points)
    assert fit.status == "at-bound"
    expanded_N = held_out_residuals(fit, np.arange(len(points)))
    monkeypatch.setattr(validation, "SEARCHED", 10**9)
    assert expanded_N == pytest.approx(held_out_residuals(fit, np.arange(len(points))), abs=1e-4 * fit.rmsle)


@pytest.mark.parametrize("law", ["bilinear", "saturated", "ludziejewski2025"])
@pytest.mark.parametrize("sizes", [2, 3, 6])
def test_verdicts_are_those_of_one_group_at_a_time(simulate: Callable[..., Points], law: str, sizes: int) -> None:
    points = simulate("saturated", sizes=sizes, experts=7)
    fit = fit_law(law, points)
    for labels_N in (points.size, np.arange(len(points)).astype(str)):
        names, group_N = np.unique(labels_N.astype(str), return_inverse=True)
        expected = [is_determined(fit, group_N != group) for group in range(len(names))]
        assert determined_without(fit, group_N, len(names)).tolist() == expected


def test_work_grows_with_the_points(simulate: Callable[..., Points], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in predictions of single points, whoever asks for them."""
    work = [0]
    plain = PowerSumAtPoints.evaluate

    def counted(self: PowerSumAtPoints, search_BP: np.ndarray):
        work[0] += len(search_BP) * self.u_N.size
        return plain(self, search_BP)

    monkeypatch.setattr(PowerSumAtPoints, "evaluate", counted)
    cost = {}
    for sizes in (20, 80, 320):
        points = simulate("saturated", sizes=sizes, experts=16)
        fit = fit_law("saturated", points)
        work[0] = 0
        held_out_residuals(fit, np.arange(len(points)))
        cost[sizes] = work[0]
    assert cost[80] < 5 * cost[20]
    assert cost[320] < 5 * cost[80]


def test_what_allows_no_expansion_is_searched_for(simulate: Callable[..., Points]) -> None:
    points = simulate("saturated", sizes=12, experts=12)
    fit = fit_law("saturated", points, error="huber")
    assert not refits_without(fit, np.arange(len(points)), len(points))[1].any()
    assert validation.MOST_PARAMETERS >= 9
