"""Grids multiply out, rules change what they describe and nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.sweeps.sweep import applied, check_rule, combinations, flattened


def made(tables: dict[str, Any], chosen: dict[str, Any], *rules: dict[str, Any], **overrides: Any) -> dict[str, Any]:
    return applied(tables, chosen, rules, overrides)


def test_combinations_in_the_order_of_the_file() -> None:
    grid = {"model": {"size": ["a", "b"]}, "router": {"experts": [2, 4]}, "train": {"steps": 7}}
    found = [tuple(chosen.values()) for chosen in combinations(grid, "here")]
    assert found == [("a", 2, 7), ("a", 4, 7), ("b", 2, 7), ("b", 4, 7)]
    assert list(next(combinations(grid, "here"))) == ["model.size", "router.experts", "train.steps"]


def test_no_fields_are_one_combination() -> None:
    assert list(combinations({}, "here")) == [{}]


def test_a_list_that_is_a_value_stands_in_a_list() -> None:
    found = list(combinations({"router": {"options": {"layers": [[1, 2], [3]]}}}, "here"))
    assert found == [{"router.options.layers": [1, 2]}, {"router.options.layers": [3]}]


def test_tables_are_alternatives_too() -> None:
    grid = {"router": {"options": [{}, {"permuted": True}]}}
    tables = [made({"router": {"name": "hash"}}, chosen) for chosen in combinations(grid, "here")]
    assert [table["router"]["options"] for table in tables] == [{}, {"permuted": True}]


def test_dotted_and_nested_names_are_the_same() -> None:
    assert flattened({"router.k": 1, "train": {"seed": [0]}}) == flattened({"router": {"k": 1}, "train.seed": [0]})


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.lists(st.integers(0, 3), min_size=1, max_size=3)),
)
def test_as_many_as_the_product(grid: dict[str, list[int]]) -> None:
    found = [tuple(chosen.values()) for chosen in combinations(grid, "here")]
    assert found == list(itertools.product(*grid.values()))


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(InputError, match=r"here: router.experts has no values; leave it out or give some\."):
        list(combinations({"router": {"experts": []}}, "here"))


def test_execution_does_not_vary() -> None:
    with pytest.raises(InputError, match=r"execution.device is no part of what a run means"):
        list(combinations({"execution": {"device": ["cpu", "cuda"]}}, "here"))
    assert len(list(combinations({"execution": {"device": ["cpu"]}}, "here"))) == 1


SMALL = {"model": {"size": "15M"}, "set": {"model": {"size": "0.2M"}, "train": {"learning_rate": 4e-3}}}


@pytest.mark.parametrize(
    ("wanted", "size", "agrees"),
    [
        ("15M", "15M", True),
        ("15M", "25M", False),
        (["15M", "25M"], "25M", True),
        (["15M", "25M"], "55M", False),
        ("15M", "15m", True),
    ],
)
def test_what_a_rule_describes(wanted: Any, size: str, agrees: bool) -> None:
    rule = {"model": {"size": wanted}, "set": {"train": {"seed": 9}}}
    assert made({"train": {"seed": 1}}, {"model.size": size}, rule)["train"] == {"seed": 9 if agrees else 1}


@pytest.mark.parametrize("name", ["s-base", "S-Base", "s_base"])
def test_a_rule_knows_a_technique_in_any_spelling(name: str) -> None:
    rule = {"router": {"name": "s-base"}, "set": {"router": {"k": 2}}}
    assert made({}, {"router.name": name}, rule)["router"]["k"] == 2


def test_all_conditions_of_a_rule_must_hold() -> None:
    rule = {"model": {"size": "15M"}, "router": {"k": [1, 2]}, "set": {"train": {"seed": 9}}}
    assert "train" not in made({}, {"model.size": "15M"}, rule)
    assert "train" not in made({}, {"model.size": "15M", "router.k": 4}, rule)
    assert made({"router": {"name": "hash", "k": 2}}, {"model.size": "15M"}, rule)["train"] == {"seed": 9}


def test_rules_look_at_what_was_written_not_at_each_other() -> None:
    """64 → 24 and 24 → 8 do not make 8 of 64, in whichever order they stand."""
    rules = [{"router": {"experts": a}, "set": {"router": {"experts": b}}} for a, b in ((64, 24), (24, 8))]
    for order in (rules, rules[::-1]):
        assert made({}, {"router.name": "hash", "router.experts": 64}, *order)["router"]["experts"] == 24


def test_the_later_of_two_rules_wins() -> None:
    rules = [{"model": {"size": "15M"}, "set": {"train": {"seed": seed}}} for seed in (1, 2)]
    assert made({}, {"model.size": "15M"}, *rules)["train"]["seed"] == 2


def test_a_size_takes_the_place_of_the_four_numbers() -> None:
    numbers = {"model": {"d_model": 16, "blocks": 2, "heads": 2, "kv_size": 8, "positions": "rope"}}
    assert made(numbers, {"model.size": "0.2M"})["model"] == {"size": "0.2M", "positions": "rope"}


def test_combinations_do_not_leak_into_each_other() -> None:
    """A rule that writes into a table of the grid, or of the common ones, must not be seen by the next combination."""
    rule = {"router": {"experts": 8}, "set": {"router": {"options": {"weight": 1}}, "train": {"seed": 5}}}
    grid = {"router": {"name": "rl-r", "experts": [8, 2], "options": [{"variant": "G"}]}}
    common = {"train": {"steps": 1}}
    first, second = [made(common, chosen, rule) for chosen in combinations(grid, "here")]
    assert first["router"]["options"] == {"variant": "G", "weight": 1}
    assert second["router"]["options"] == {"variant": "G"}
    assert second["train"] == common["train"] == {"steps": 1}


def test_dense_has_nothing_of_a_router() -> None:
    chosen = {"router.name": "Dense", "router.experts": 8, "router.options.variant": "G"}
    assert made({"router": {"capacity_factor": 1.0}}, chosen)["router"] == {"name": "dense"}
    assert made({"router": {"experts": 8}}, {})["router"] == {"name": "dense"}


def test_overrides_win_over_rules() -> None:
    assert applied({}, {"model.size": "15M"}, [SMALL], {"model.size": "25M"})["model"] == {"size": "25M"}


def test_overrides_leave_dense_dense() -> None:
    """One that is about routers is none of its business; one that makes a run dense does it wholly."""
    assert applied({}, {"router.name": "dense"}, [], {"router.k": 2})["router"] == {"name": "dense"}
    chosen = {"router.name": "hash", "router.experts": 4}
    assert applied({}, chosen, [], {"router.k": 2})["router"] == {"name": "hash", "experts": 4, "k": 2}
    assert applied({}, chosen, [], {"router.name": "dense"})["router"] == {"name": "dense"}


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (3, r"here: a rule has conditions and `set = \{ … \}`, not 3\."),
        ({"model": {"size": "15M"}}, "a rule has conditions and `set"),
        ({"model": {"size": "15M"}, "set": 3}, "a rule has conditions and `set"),
        ({"set": {"train": {"seed": 1}}}, r"a rule without a condition holds for all runs: write it as \[train\]"),
        ({"model": {"size": []}, "set": {"train": {"seed": 1}}}, r"model.size = \[\] describes no run"),
        ({"model": {"sizes": "15M"}, "set": {}}, r"here model: unknown key 'sizes' \(did you mean 'size'\?\)"),
        ({"models": {"size": "15M"}, "set": {}}, r"unknown key 'models' \(did you mean 'model'\?\)"),
        (
            {"model": {"size": "15M"}, "set": {"train": {"step": 1}}},
            r"train: unknown key 'step' \(did you mean 'steps'",
        ),
        ({"model": {"size": "15M"}, "set": {"corpus": "x"}}, "unknown key 'corpus'"),
    ],
)
def test_a_rule_that_cannot_be_meant(rule: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check_rule(rule, "here")


def test_a_rule_may_be_about_anything_a_run_has() -> None:
    check_rule({"model.d_model": 64, "router.options.variant": "G", "set": {"execution.micro_batches": 2}}, "here")
