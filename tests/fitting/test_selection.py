"""Laws ranked where the truth is known: on data made from one of them."""

from dataclasses import replace

import pytest

from routelaw.fitting.selection import comparable_laws, rank_laws
from routelaw.laws import get_law


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
