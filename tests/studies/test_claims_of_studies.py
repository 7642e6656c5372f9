"""Claims of single studies on runs whose effects are known: each holds, does not hold when turned round, and cannot be
told where noise hides it or runs are missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from drawn import Run, runs_of

from routelaw.figures import all_figures
from routelaw.fitting.claims import FAILS, HOLDS, OPEN
from routelaw.fitting.matched_runs import PERCENT
from routelaw.studies.claims_on_architecture import k_excess
from routelaw.studies.paper import STUDIES, get_study

SIZES, EXPERTS = ("1M", "3M", "10M", "30M"), (8, 64)
EFFECT = 0.02
"""log10 L: 4.6 %, 0.1 nats."""
Make = Callable[[float], list[Run]]


def cells() -> list[tuple[str, int]]:
    return [(size, e) for size in SIZES for e in EXPERTS]


def pairs(one: dict, other: dict, keep: dict | None = None) -> Make:
    """Two kinds of runs at every size and E, the first with the effect."""

    def made(effect: float) -> list[Run]:
        dense = [Run("dense", size, 1) for size in SIZES]
        both = [run for s, e in cells() for run in (Run(size=s, experts=e, over=effect, **one),
                                                    Run(size=s, experts=e, **other))]  # fmt: skip
        usual = [Run(size=s, experts=e, **keep) for s, e in cells()] if keep else []
        return [*dense, *both, *usual]

    return made


def k_runs(effect: float) -> list[Run]:
    return [Run("s-base", s, e, -effect * i, k=k) for s, e in cells() for i, k in enumerate((1, 2, 4))]


def lengths(effect: float) -> list[Run]:
    """With seeds: every length gains `effect`, and every decade of E an eighth of it more."""
    made = []
    for size in SIZES[:1]:
        for i, tokens in enumerate((1e9, 3e9, 9e9)):
            made += [Run("dense", size, 1, -effect * i, tokens_planned=tokens, seed=seed) for seed in (0, 1, 2)]
            made += [Run("hash", size, e, -effect * i * (1 + 0.01 * e), tokens_planned=tokens) for e in EXPERTS]
    return made


def stacked(effect: float) -> list[Run]:
    """Stacked over interleaved: the effect for S-BASE, half of it for HASH."""
    three = "ffws_per_expert=3,placement=interior"
    made = []
    for size, e in cells():
        for router, share in (("s-base", 1.0), ("hash", 0.5)):
            made += [Run(router, size, e, effect * share, variant=three, routing_frequency=0.125),
                     Run(router, size, e, variant="placement=interior", routing_frequency=0.375),
                     Run(router, size, e)]  # fmt: skip
    return made


CASES: dict[tuple[str, str], Make] = {
    ("k", "more per token"): k_runs,
    ("r", "r 1"): pairs({"router": "s-base"}, {"router": "s-base", "routing_frequency": 1.0}),
    ("r", "r 1 hash"): pairs({"router": "hash", "routing_frequency": 1.0}, {"router": "hash"}),
    ("r", "r low"): pairs({"router": "hash", "routing_frequency": 0.25}, {"router": "hash"}),
    ("r", "hash one layer"): pairs({"router": "s-base", "routing_frequency": 0.25},
                                   {"router": "hash", "routing_frequency": 0.25}),
    ("shared-decisions", "shared decisions"): pairs({"router": "s-base", "variant": "shared_decisions"},
                                                    {"router": "s-base"}),
    ("stacked", "interleaved"): stacked,
    ("stacked", "interleaved more"): stacked,
    ("rl-variants", "nucleus"): pairs({"router": "rl-r", "variant": "variant=G"},
                                      {"router": "rl-r", "variant": "variant=S"}, {"router": "rl-r"}),
    ("rl-variants", "whole policy"): pairs({"router": "rl-r", "variant": "nucleus=1,variant=S"},
                                           {"router": "rl-r", "variant": "variant=S"}, {"router": "rl-r"}),
    ("rl-variants", "rl variants"): pairs({"router": "rl-r", "variant": "variant=G"}, {"router": "rl-r"},
                                          {"router": "rl-r"}),
    ("lengths", "not converged"): lengths,
    ("lengths", "longer experts"): lengths,
}  # fmt: skip
ALIKE: dict[tuple[str, str], Make] = {
    ("single-layer", "one block alike"): pairs({"router": "s-base", "routing_frequency": 0.25},
                                               {"router": "hash", "routing_frequency": 0.25}),
    ("single-layer", "place"): pairs({"router": "hash", "routing_frequency": 0.25, "variant": "placement=interior"},
                                     {"router": "hash", "routing_frequency": 0.25}),
    ("shared-decisions", "shared hash"): pairs({"router": "s-base", "variant": "shared_decisions"}, {"router": "hash"},
                                               {"router": "s-base"}),
    ("permuted-hash", "permuted hash"): pairs({"router": "hash", "variant": "permuted"}, {"router": "hash"}),
    ("stacked", "stacked alike"): stacked,
    ("robustness", "no balance"): pairs({"router": "s-base", "variant": "balance_weight=0"},
                                        {"router": "s-base", "variant": "balance_weight=0.01"}),
}  # fmt: skip


def verdict(study: str, name: str, runs: list[Run], noise: float = 1e-5):
    claim = next(claim for claim in get_study(study).claims if claim.name == name)
    return claim(runs_of(runs, noise))


@pytest.mark.parametrize(("place", "make"), CASES.items(), ids=map(" ".join, CASES))
def test_holds_fails_and_cannot_be_told(place: tuple[str, str], make: Make) -> None:
    assert verdict(*place, make(EFFECT)).verdict == HOLDS
    assert verdict(*place, make(-EFFECT)).verdict == FAILS
    hidden = verdict(*place, make(EFFECT / 100), noise=0.05)
    assert hidden.verdict == OPEN
    assert hidden.ours is not None


@pytest.mark.parametrize(("place", "make"), ALIKE.items(), ids=map(" ".join, ALIKE))
def test_alike_or_not(place: tuple[str, str], make: Make) -> None:
    """Within 0.02 nats, with an interval: what noise hides is not alike."""
    assert verdict(*place, make(0.0)).verdict == HOLDS
    assert verdict(*place, make(3 * EFFECT)).verdict == FAILS
    assert verdict(*place, make(0.0), noise=0.05).verdict == OPEN


def test_the_size_of_an_effect_is_that_which_was_drawn() -> None:
    found = verdict("rl-variants", "nucleus", CASES["rl-variants", "nucleus"](EFFECT)).ours
    assert found.value == pytest.approx(PERCENT * EFFECT, rel=0.01)
    assert found.low < found.value < found.high


def test_the_largest_size_is_judged_by_seeds_of_smaller_ones() -> None:
    def made(effect: float, seeds: int) -> list[Run]:
        small = [Run("dense", "1M", 1, seed=seed) for seed in range(seeds)]
        long = {"tokens_planned": 2e9}
        big = [Run("dense", "30M", 1, **long), Run("rl-r", "30M", 64, effect, variant="balance_weight=0.1", **long)]
        return [*small, *big]

    gain = 0.03 * 1.80618  # what 64 experts are worth in these runs
    assert verdict("limit", "limit", made(0.0, 3)).verdict == HOLDS
    assert verdict("limit", "limit", made(2 * gain, 3)).verdict == FAILS
    alone = verdict("limit", "limit", made(0.0, 1))
    assert alone.verdict == OPEN
    assert alone.ours.value == pytest.approx(PERCENT * gain, rel=0.01)
    assert "No seeds" in alone.why


def test_the_largest_size_is_judged_on_usual_models() -> None:
    usual = [Run(r, s, e, seed=i) for s in SIZES for r, e in (("dense", 1), ("hash", 8)) for i in (0, 1)]
    other = [
        Run("dense", "30M", 1, EFFECT, variant="flop_increase=1"),
        Run("hash", "30M", 8, 10 * EFFECT, variant="permuted"),
        Run("hash", "30M", 8, 10 * EFFECT, k=2),
    ]
    alone, beside = verdict("limit", "limit", usual).ours, verdict("limit", "limit", [*usual, *other]).ours
    assert beside.value == pytest.approx(alone.value)


def test_k_is_compared_with_k_1_only_where_its_line_reaches() -> None:
    line = [Run("s-base", size, 8) for size in ("3M", "10M", "30M")]
    larger = [Run("s-base", size, 8, k=2) for size in ("1M", "3M", "30M")]
    assert list(k_excess(runs_of([*line, *larger]))["size"]) == ["3M"]


def test_names_of_routers_stand_in_words_as_they_are() -> None:
    made = [Run(r, s, e, seed=i) for s in SIZES for r, e in (("dense", 1), ("my$router", 8)) for i in (0, 1)]
    assert "my$router with E = 8" in verdict("limit", "limit", made).why


def test_variants_of_rl_r_where_weights_are_usual() -> None:
    """G and S lack the entropy term that B usually has: they are compared all the same."""
    usual = {"router": "rl-r", "variant": "balance_weight=0.1,entropy_weight=0.05"}
    greedy, sampled = ({"router": "rl-r", "variant": f"balance_weight=0.1,variant={v}"} for v in "GS")
    made = pairs(greedy, sampled, usual)(EFFECT)
    more = [Run("rl-r", s, 2, variant=usual["variant"]) for s in SIZES]
    found = verdict("rl-variants", "nucleus", [*made, *more])
    assert (found.verdict, found.ours.value) == (HOLDS, pytest.approx(PERCENT * EFFECT, rel=0.01))


def test_one_block_has_nothing_to_share() -> None:
    """Its losses are equal to the last digit, and would pull the mean to zero."""
    made = pairs({"router": "s-base", "variant": "shared_decisions"}, {"router": "s-base"}, {"router": "hash"})(EFFECT)
    one = {"routing_frequency": 0.25}
    alone = [Run(r, s, e, variant=v, **one) for s, e in cells()
             for r, v in (("s-base", "shared_decisions"), ("s-base", ""), ("hash", ""))]  # fmt: skip
    for name, value in (("shared decisions", PERCENT * EFFECT), ("shared hash", None)):
        found = verdict("shared-decisions", name, [*made, *alone], noise=0.0)
        assert "8 pairs" in found.why
        assert value is None or found.ours.value == pytest.approx(value)


def test_lengths_are_not_mixed() -> None:
    """A longer run of one kind beside shorter ones of the other is no pair."""
    made = pairs({"router": "hash", "variant": "permuted"}, {"router": "hash"})(0.0)
    long = [Run("hash", s, e, -0.1, variant="permuted", tokens_planned=5e9) for s, e in cells()]
    found = verdict("permuted-hash", "permuted hash", [*made, *long])
    assert found.verdict == HOLDS
    assert "8 pairs" in found.why


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_without_its_runs_nothing_can_be_told(study) -> None:
    """Neither without dense runs nor with nothing else."""
    for runs in ([Run("switch", "1M", 8)], [Run("dense", "1M", 1)], [Run("s-base", s, e) for s, e in cells()]):
        judged = study.judge(runs_of(runs))
        assert {claim.verdict for claim in judged.claims} == {OPEN}
        assert all(claim.why for claim in judged.claims)
    assert any("No dense run" in note for note in judged.notes)


def test_every_study_has_figures_that_there_are() -> None:
    known = {figure.name for figure in all_figures()}
    assert all(study.figures and set(study.figures) <= known for study in STUDIES)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_claim_says_who_where_and_by_which_rule(study) -> None:
    assert study.claims
    assert study.question.endswith("?")
    for claim in study.claims:
        assert all((claim.paper, claim.place, claim.quantity))
        assert "olds if" in claim.rule
