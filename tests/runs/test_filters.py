"""Conditions on rows against pandas' own, and the best run of a cell against a plain search."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.runs.filters import best_of, where
from routelaw.runs.table import RunTable


def some_runs(count: int = 24) -> RunTable:
    n = np.arange(count)
    frame = pd.DataFrame(
        {
            "run_id": [f"r{i}" for i in n],
            "router": np.where(n % 4 == 0, "dense", np.where(n % 4 == 1, "hash", "s-base")),
            "experts": np.where(n % 4 == 0, 1, 2 ** (1 + n % 5)),
            "active_params": 1e7 * (1 + n % 3),
            "tokens": 1_000_000_000 * (1 + n % 7),
            "learning_rate": np.where(n % 6 == 5, np.nan, 1e-3 * (1 + n % 3)),
            "note": np.where(n % 2 == 0, "good", "bad"),
            "loss_validation": 3.0 + 0.01 * n,
        }
    )
    return RunTable.from_frame(frame, "runs")


CONDITIONS = [
    "tokens>=3e9 and experts>1",
    "tokens >= 3e9 or router == 'hash'",
    "not (experts > 4)",
    "1e9 < tokens <= 4e9",
    "router in ('hash', 's-base') and note != 'bad'",
    "tokens / active_params > 150",
    "2 * experts - 1 >= 7",
    "loss_validation<3.1",
    "-experts < -2",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_mean_what_they_mean_in_pandas(condition: str) -> None:
    table = some_runs()
    expected = table.frame.query(condition, engine="python")
    assert where(table, condition).frame["run_id"].tolist() == expected["run_id"].tolist()


def test_an_empty_cell_is_neither_below_nor_above() -> None:
    table = some_runs()
    empty = table.frame["learning_rate"].isna()
    for condition in ("learning_rate < 1", "not learning_rate > 1", "learning_rate != 5"):
        assert len(where(table, condition).frame) == (~empty).sum()
    either = where(table, "learning_rate < 1 or experts >= 1")
    assert len(either.frame) == len(table.frame)


def test_how_many_rows_remain_is_said() -> None:
    assert where(some_runs(), "experts>1").notes[-1] == "18 of 24 rows have experts>1."


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("", "cannot be read"),
        ("tokens >", "cannot be read"),
        ("tokens", "where a comparison must stand"),
        ("1", "where a comparison must stand"),
        ("tokns > 1", "did you mean 'tokens'"),
        ("router == hash", "texts stand in quotes"),
        ("router > 'a'", "have no order"),
        ("router == 1", "compares text with a number"),
        ("experts in 4", "needs values in brackets"),
        ("experts > 1e9", "no row has"),
        ("__import__('os').system('true') == 0", "it may hold columns, numbers"),
        ("experts.real > 1", "it may hold columns, numbers"),
        ("(lambda: 1)() > 0", "it may hold columns, numbers"),
        ("experts is 1", "a condition compares by"),
        ("experts ** 9 > 1", "it may hold columns, numbers"),
        ("note + 1 > 2", "is text"),
        ("experts > 1" + " and experts > 1" * 200, "at most 2000 characters"),
        ("(" * 900 + "experts > 1" + ")" * 900, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused(condition: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        where(some_runs(), condition)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="experts><=!()andornot '\"\\0123456789.,[]{}:;*/+-_\n", max_size=40))
def test_no_text_does_anything_but_select_or_refuse(text: str) -> None:
    table = some_runs()
    try:
        kept = where(table, text).frame
    except InputError:
        return
    assert set(kept["run_id"]) <= set(table.frame["run_id"])


def searched(rates: list[float], losses: list[float], batches: list[float] | None = None) -> RunTable:
    frame = pd.DataFrame(
        {"run_id": [f"r{i}" for i in range(len(rates))], "learning_rate": rates, "loss_validation": losses}
    )
    frame = frame.assign(router="hash", experts=8, active_params=1e7, tokens=10**9, batch_tokens=batches or 65536)
    return RunTable.from_frame(frame, "grid")


def test_the_best_of_each_cell_is_kept_and_the_edge_is_said() -> None:
    inside = best_of(searched([1e-3, 2e-3, 4e-3], [3.1, 3.0, 3.2]), ["learning_rate"], "loss_validation")
    assert inside.frame["learning_rate"].tolist() == [2e-3]
    assert inside.notes[-1] == "1 cell, each the best of 3 runs over learning_rate; 1 of them tried several values."
    edge = best_of(searched([1e-3, 2e-3, 4e-3], [3.1, 3.0, 2.9]), ["learning_rate"], "loss_validation")
    assert "edge of what was tried in 1 of 1 cells (1 at the largest)" in edge.notes[-1]


def test_what_is_not_searched_over_stays_apart() -> None:
    table = searched([1e-3, 2e-3, 1e-3, 2e-3], [3.1, 3.0, 2.8, 2.9], [65536, 65536, 131072, 131072])
    by_rate = best_of(table, ["learning_rate"], "loss_validation")
    assert by_rate.frame["loss_validation"].tolist() == [3.0, 2.8]
    both = best_of(table, ["learning_rate", "batch_tokens"], "loss_validation")
    assert both.frame["loss_validation"].tolist() == [2.8]


def test_lengths_are_never_taken_for_a_search() -> None:
    table = searched([1e-3, 2e-3], [3.1, 2.0])
    longer = RunTable.from_frame(table.frame.assign(tokens=[10**9, 10**10]), "grid")
    assert len(best_of(longer, ["learning_rate"], "loss_validation").frame) == 2


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([], "give the columns"),
        (["learning_rat"], "did you mean 'learning_rate'"),
        (["loss_validation"], "no setting that was tried"),
        (["run_id"], "no setting that was tried"),
    ],
)
def test_what_there_is_not_is_refused(columns: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        best_of(searched([1e-3], [3.0]), columns, "loss_validation")
