"""What is usual in a table, and variants relative to it."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest

from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of, relative_to_usual, usual_in, variant_of


def table(*rows: tuple[str, str, int, float], sizes: int = 2) -> RunTable:
    """Rows of (router, variant, K, R), each at every size."""
    made = [
        {"run_id": f"{i}-{s}", "router": router, "variant": variant, "experts": 1 if router == "dense" else 8, "k": k,
         "routing_frequency": r, "size": f"{s}M", "active_params": 1e6 * s, "loss_validation": 3.0}
        for (i, (router, variant, k, r)), s in product(enumerate(rows), range(1, sizes + 1))
    ]  # fmt: skip
    return RunTable.from_frame(pd.DataFrame(made), "rows")


@pytest.mark.parametrize("variant", ["", "shared_decisions", "capacity_factor=1,shared_slots=4"])
def test_a_variant_is_its_settings(variant):
    assert variant_of(parts_of(variant)) == variant


def test_plain_runs_are_usual_beside_as_many_of_a_variant():
    assert usual_in(table(("hash", "", 1, 0.5), ("hash", "permuted", 1, 0.5))).variants["hash"] == ""


def test_what_all_runs_of_a_router_have_is_usual():
    rows = table(
        ("dense", "positions=rope", 1, 0.5),
        ("dense", "", 1, 0.5),
        ("s-base", "positions=rope", 1, 0.5),
        ("s-base", "positions=rope,shared_decisions", 1, 0.5),
        ("hash", "positions=rope", 1, 0.5),
    )
    usual = usual_in(rows)
    assert dict(usual.variants) == dict.fromkeys(("s-base", "hash", "dense"), "positions=rope")
    told = relative_to_usual(rows)
    assert sorted(told.frame["variant"][told.frame["router"] == "s-base"].unique()) == ["", "shared_decisions"]
    assert sorted(told.frame["variant"][told.frame["router"] == "dense"].unique()) == ["", "positions=default"]
    assert told.notes[-1].startswith("Taken: each router's most frequent variant (s-base: positions=rope;")


def test_the_most_frequent_variant_is_usual():
    rows = table(("rl-r", "a=1", 1, 0.5), ("rl-r", "a=2,b=3", 1, 0.5), ("rl-r", "a=2,b=3", 2, 0.5))
    assert usual_in(rows).variants["rl-r"] == "a=2,b=3"
    told = relative_to_usual(rows)
    assert set(told.frame["variant"]) == {"", "a=1,b=default"}


def test_seeds_of_a_model_count_once():
    rows = table(("hash", "x=1", 1, 0.5), ("hash", "x=1", 1, 0.5), ("hash", "", 1, 0.5), ("hash", "", 2, 0.5))
    assert usual_in(rows).variants["hash"] == ""


def test_k_and_r_are_those_of_the_paper_where_a_model_has_them():
    usual = usual_in(table(("hash", "", 2, 1.0), ("hash", "", 1, 1.0), ("hash", "", 1, 0.5)))
    assert (usual.k, usual.routing_frequency) == (1, 0.5)
    usual = usual_in(table(("hash", "", 2, 1.0), ("hash", "", 2, 1.0), ("hash", "", 1, 1.0), sizes=1))
    assert usual.routing_frequency == 1.0
    assert any("R = 1" in note for note in usual.notes)


def test_dense_runs_alone():
    usual = usual_in(table(("dense", "", 1, 0.5)))
    assert dict(usual.variants) == {"dense": ""}
    assert usual.notes == []
