"""A table with runs of a recipe and without: nothing passes for what it is not."""

from __future__ import annotations

import pandas as pd
import pytest

from routelaw.runs.table import RunTable


def table(*rows: dict) -> RunTable:
    common = {"router": "s-base", "experts": 8, "active_params": 1e6, "loss_validation": 3.0}
    frame = pd.DataFrame([{**common, "variant": "", "recipe": "", "run_id": str(n), **r} for n, r in enumerate(rows)])
    return RunTable.from_frame(frame, "by hand")


def test_variants_of_one_recipe_stay_as_they_are() -> None:
    found = table({"recipe": "clark2022"}, {"recipe": "clark2022,clip=0.5"}, {"router": "hash"})
    assert list(found.frame["variant"]) == ["", "", ""]
    assert list(found.frame["recipe"]) == ["clark2022", "clark2022,clip=0.5", ""]


@pytest.mark.parametrize(
    ("variant", "spelled"),
    [
        ("", "shuffle_groups=4"),
        ("balance_weight=0.1", "balance_weight=0.1,shuffle_groups=4"),
        ("shared_decisions", "shared_decisions,shuffle_groups=4"),
        ("shuffle_groups=1", ""),
        ("shuffle_groups=2", "shuffle_groups=2"),
        ("capacity_factor=1", "capacity_factor=1,shuffle_groups=4"),
    ],
)
def test_with_and_without_a_recipe_settings_are_spelled_out(variant: str, spelled: str) -> None:
    found = table({}, {"recipe": "clark2022,clip=0.5", "variant": variant}, {"router": "hash"})
    assert list(found.frame["variant"]) == ["", spelled, ""]
    assert list(found.frame["recipe"]) == ["", "clip=0.5", ""]
    assert "Some runs of s-base have the recipe clark2022 and others none" in " ".join(found.notes)
    again = RunTable.from_frame(found.frame, "again")
    assert again.frame.equals(found.frame)


def test_a_recipe_of_ones_own_words_is_left_alone() -> None:
    found = table({"recipe": "ours"}, {"recipe": None}, {"recipe": "clip=0.5"})
    assert set(found.frame["variant"]) == {""}
