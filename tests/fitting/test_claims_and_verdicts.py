"""The rules that turn a number or an effect with its interval into a verdict."""

from __future__ import annotations

from functools import partial

import pytest

from routelaw.fitting.claims import (
    FAILS,
    HOLDS,
    NOT_SUPPORTED,
    OPEN,
    PARTLY,
    Claim,
    Effect,
    Outcome,
    graded,
    is_printed_as,
    weakest,
)


def test_an_interval_decides() -> None:
    assert [Effect(1.0, low, 3.0).verdict(0.5) for low in (0.6, 0.4)] == [HOLDS, OPEN]
    assert Effect(1.0, 0.5, 3.0).verdict(4.0) == FAILS
    assert [Effect(1.0, 0.5, 3.0).verdict_below(limit) for limit in (4.0, 2.0, 0.4)] == [HOLDS, OPEN, FAILS]
    assert Effect(1.0, 0.5).verdict() == Effect(1.0).verdict_below(9.0) == OPEN, "without an end nothing is decided"
    assert Effect.around(1.0, 0.5).scaled(-2) == Effect(-2.0, -3.0, -1.0)


def test_the_weakest_of_several() -> None:
    """Each has a wider interval where there are several: one that is below for itself alone decides nothing then."""

    def made(value: float, half: float, level: float) -> Effect:
        return Effect.around(value, half * (1 if level < 0.91 else 2.5))

    sure, below = partial(made, 1.0, 0.5), partial(made, -1.0, 0.5)
    assert weakest({"a": sure})[1].verdict() == HOLDS
    name, effect = weakest({"a": sure, "b": below})
    assert (name, effect) == ("b", Effect(-1.0, -1.5, 0.25))
    assert effect.verdict() == OPEN
    assert weakest({"b": below})[1].verdict() == FAILS


def test_a_number_without_an_interval_has_to_reach_what_the_claim_says() -> None:
    assert [graded(v, holds=1.0, partly=0.75) for v in (1.0, 0.75, 0.7)] == [HOLDS, PARTLY, NOT_SUPPORTED]
    assert [graded(v, holds=0.95) for v in (0.95, 0.9)] == [HOLDS, NOT_SUPPORTED]


def larger(what: str, runs: dict[str, float]) -> Outcome:
    """Holds if it is
    positive."""
    return (Effect.around(runs[what], 0.1, "By hand."), HOLDS, "It is.") if what in runs else f"{what} is missing"


def test_a_claim_carries_its_rule_and_says_what_is_missing() -> None:
    claim = Claim("gap", "The gap is positive", partial(larger, "gap"), "“it is”", "section 1", "gap, nats")
    assert claim.rule == "Holds if it is positive."
    judged = claim({"gap": 0.3})
    assert (judged.verdict, judged.why) == (HOLDS, "It is. By hand.")
    ours = {"value": 0.3, "low": pytest.approx(0.2), "high": pytest.approx(0.4), "basis": "By hand."}
    assert judged.as_dict() == {
        "name": "gap", "statement": "The gap is positive", "paper": "“it is”", "place": "section 1",
        "quantity": "gap, nats", "verdict": HOLDS, "ours": ours, "why": "It is. By hand.",
    }  # fmt: skip
    assert (claim({}).verdict, claim({}).ours, claim({}).why) == (OPEN, None, "gap is missing")


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("0.078", 0.0786),  # cut off
        ("0.078", 0.0776),  # rounded up
        ("-0.082", -0.0825),
        ("-0.082", -0.0829),  # cut off towards zero
        ("0.010", 0.0095),
        ("1308819456", 1308819456),
    ],
)
def test_rounding_and_cutting_off_both_match(printed, value):
    assert is_printed_as(printed, value)


@pytest.mark.parametrize(
    ("printed", "value"),
    [
        ("0.078", 0.0791),
        ("0.078", 0.0774),
        ("-0.082", -0.0831),
        ("-0.082", -0.0814),
        ("-0.082", 0.082),
        ("1308819456", 1308819457),
        ("223", 222),
    ],
)
def test_other_digits_do_not(printed, value):
    assert not is_printed_as(printed, value)
