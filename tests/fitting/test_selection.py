"""Rankings where the truth is known: laws on data made from one of them, routers that differ by nothing or by a lot."""

from dataclasses import replace

import numpy as np
import pytest

from routelaw.errors import InputError
from routelaw.fitting import fit_law
from routelaw.fitting.comparison import compare_routers
from routelaw.fitting.selection import comparable_laws, rank_laws
from routelaw.laws import get_law

AT = {"active_params": 370e6, "experts": 64.0}


def test_equal_laws_differ_by_nothing(simulate) -> None:
    first, second = rank_laws(simulate("bilinear"), [get_law("bilinear"), get_law("bilinear")])[0]
    assert (first.behind, second.behind) == (0, 0)
    assert first.interval == second.interval
    assert first.worse_probability is None
    assert second.worse_probability == 0.5
    assert not second.clearly_worse


@pytest.mark.parametrize("true", ["saturated", "irreducible"])
def test_the_true_law_wins(simulate, true) -> None:
    names = ["separable", "bilinear", "irreducible-power", "irreducible", "saturated"]
    ranked, skipped = rank_laws(simulate(true, noise=5e-4), [get_law(n) for n in names])
    assert skipped == []
    assert ranked[0].fit.law.name == true
    errors = [r.validation.leave_size_out for r in ranked]
    assert errors == sorted(errors)
    last = ranked[-1]
    assert last.fit.law.name == "separable"
    assert last.clearly_worse
    assert last.behind == pytest.approx(errors[-1] - errors[0])
    assert last.interval[0] <= errors[-1] <= last.interval[1]


def test_a_difference_within_noise_is_called_so(simulate) -> None:
    """A parameter too many costs a little on unseen sizes, and less than the noise of six of them."""
    ranked, _ = rank_laws(simulate("bilinear"), [get_law("bilinear"), get_law("quadratic")])
    assert not any(r.clearly_worse for r in ranked)


def test_laws_that_cannot_be_fitted_are_named(simulate) -> None:
    few = replace(simulate("bilinear", sizes=3, experts=2), source="mine.csv")
    ranked, skipped = rank_laws(few, [get_law(n) for n in ("separable", "saturated", "compute")])
    assert [r.fit.law.name for r in ranked] == ["separable"]
    assert {s.law: s.reason.split(":")[0] for s in skipped} == {
        "saturated": "law saturated has 6 parameters and simulated has 6 points",
        "compute": "law compute reads 'flops_per_token'; a law may read active_params, experts.",
    }


def test_without_a_size_to_spare_there_is_no_ranking(simulate) -> None:
    ranked, _ = rank_laws(simulate("bilinear", sizes=2), [get_law("bilinear"), get_law("separable")])
    assert {(r.interval, r.behind, r.worse_probability, r.clearly_worse) for r in ranked} == {(None, None, None, False)}


def test_laws_of_one_axis_or_of_training_are_not_compared() -> None:
    names = {law.name for law in comparable_laws()}
    assert {"bilinear", "saturated", "compute", "irreducible"} <= names
    assert not {"dense", "experts", "kaplan2020"} & names


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
