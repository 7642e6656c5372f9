"""Routers under one law where the truth is known: they differ by nothing, by noise alone, or by a lot."""

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting import fit_law
from routelaw.fitting.comparison import compare_routers

AT = {"active_params": 370e6, "experts": 64.0}


def routers(simulate, **shifts: float):
    made = {name: simulate("bilinear", seed=i, shift=shift) for i, (name, shift) in enumerate(shifts.items())}
    return {name: fit_law("bilinear", points) for name, points in made.items()}


def test_a_router_better_by_far(simulate) -> None:
    found = compare_routers(routers(simulate, poor=0.02, good=0.0), AT)
    assert found.routers == ["good", "poor"]
    # Certainty is what a few sizes cannot give: Student's t allows for their number.
    assert 0.97 < found.better_probability["good", "poor"] < 1
    assert found.better_probability["poor", "good"] == pytest.approx(1 - found.better_probability["good", "poor"])
    for name in found.routers:
        low, high = found.interval[name]
        assert low < found.loss[name] < high


def test_the_same_router_twice(simulate) -> None:
    fit = fit_law("bilinear", simulate("bilinear"))
    found = compare_routers({"one": fit, "two": fit}, AT)
    assert found.better_probability == {("one", "two"): 0.5, ("two", "one"): 0.5}


def test_routers_that_differ_by_noise_alone(simulate) -> None:
    """Over several pairs the verdict goes both ways, and it is seldom sure."""
    verdicts = []
    for seed in range(0, 24, 2):
        pair = {name: fit_law("bilinear", simulate("bilinear", seed=100 + seed + i)) for i, name in enumerate("ab")}
        verdicts.append(compare_routers(pair, AT, draws=300).better_probability["a", "b"])
    assert 0.25 < np.mean(verdicts) < 0.75
    assert min(verdicts) < 0.4
    assert max(verdicts) > 0.6
    assert np.mean([0.02 < v < 0.98 for v in verdicts]) >= 0.6


def test_two_sizes_are_too_few_to_compare(simulate) -> None:
    fit = fit_law("bilinear", simulate("bilinear", sizes=2))
    with pytest.raises(InputError, match="at least 3 sizes"):
        compare_routers({"one": fit, "two": fit}, AT)
