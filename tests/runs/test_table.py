import math
import re

import pandas as pd
import pytest

from routelaw.errors import InputError
from routelaw.runs.table import DESCRIPTION, RunTable


def rows(**changes: object) -> pd.DataFrame:
    columns: dict[str, object] = {
        "run_id": ["a", "a", "b", "c"],
        "step": [10, 20, 20, 20],
        "router": ["Dense", "Dense", "S-Base", "RL_R"],
        "experts": [1, 1, 8, 64],
        "active_params": [368123904, 368123904, 368123904, 2.05e8],
        "loss_validation": [3.0, 2.5, 2.25, 2.125],
    }
    columns |= changes
    return pd.DataFrame({name: cells for name, cells in columns.items() if cells is not None})


def table(**changes: object) -> RunTable:
    return RunTable.from_frame(rows(**changes), "mine.csv")


def test_fills_in_what_may_be_missing_and_says_so() -> None:
    runs = table()
    frame = runs.frame
    assert list(frame.columns) == [*DESCRIPTION, "loss_validation"]
    assert (frame["k"] == 1).all()
    assert (frame["routing_frequency"] == 0.5).all()
    assert list(frame["size"]) == ["370M", "370M", "370M", "205M"]
    assert (frame["seed"] == 0).all()
    assert (frame["variant"] == "").all()
    assert (frame["status"] == "finished").all()
    assert frame[["tokens", "tokens_planned", "total_params", "flops_per_token"]].isna().all(axis=None)
    assert [note.split()[0] for note in runs.notes] == ["k", "routing_frequency"]


def test_given_values_stand() -> None:
    given = {"k": [1] * 4, "routing_frequency": [0.25] * 4, "size": ["big"] * 4, "seed": [7] * 4, "variant": ["x"] * 4}
    runs = table(**given)
    assert runs.notes == ()
    for name, cells in given.items():
        assert list(runs.frame[name]) == cells


def test_blank_k_is_filled_and_counted() -> None:
    runs = table(k=[1, 1, 2, None], routing_frequency=[0.5] * 4)
    assert list(runs.frame["k"]) == [1, 1, 2, 1]
    assert runs.notes == ("k is not given in 1 of 4 rows: taken as 1.",)


def test_routers_have_one_spelling() -> None:
    assert table().routers == ["dense", "s-base", "rl-r"]
    assert table(router=["DENSE", "dense", "s base", " S_BASE "]).routers == ["dense", "s-base"]


def test_losses_start_with_validation_and_extras_stay() -> None:
    runs = table(loss_c4=[3.0, 2.0, 2.0, 2.0], colour=["r", "g", "b", "y"])
    assert runs.losses == ["loss_validation", "loss_c4"]
    assert list(runs.frame["colour"]) == ["r", "g", "b", "y"]
    assert list(runs.frame.columns)[-1] == "colour"
    assert table(loss_validation=None, loss_pile=[1.0] * 4).losses == ["loss_pile"]


def test_text_cells_are_parsed() -> None:
    frame = rows(k=["1"] * 4, routing_frequency=["0.5"] * 4).astype(str)
    pd.testing.assert_frame_equal(RunTable.from_frame(frame, "t").frame, table(k=[1] * 4).frame)


def test_step_may_be_missing_where_runs_have_one_row() -> None:
    one_each = rows(step=None).drop_duplicates("run_id")
    assert RunTable.from_frame(one_each, "t").frame["step"].isna().all()
    with pytest.raises(InputError, match=r"data row 2 .* run_id must be unique where there is no column step"):
        table(step=None)


def test_a_loss_may_be_missing_at_some_step() -> None:
    runs = table(loss_validation=[3.0, math.nan, 2.25, 2.125])
    assert runs.notes[-1].startswith("1 loss values are missing")


@pytest.mark.parametrize("status", ["diverged", "failed", "running"])
def test_a_run_that_did_not_finish_may_lack_its_loss(status: str) -> None:
    runs = table(loss_validation=[3.0, 2.5, math.nan, 2.125], status=["", "finished", status, "finished"])
    assert math.isnan(runs.frame["loss_validation"].iloc[2])
    assert list(runs.frame["status"]) == ["finished", "finished", status, "finished"]


@pytest.mark.parametrize("blank", [math.nan, "", "NaN", None])
def test_a_finished_run_without_loss_is_told_what_to_do(blank: object) -> None:
    with pytest.raises(InputError, match=r"mine.csv: column loss_validation, data row 3 \(run b\) is NaN .* diverged"):
        table(loss_validation=[3.0, 2.5, blank, 2.125])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"router": None}, "column router missing; the table has run_id"),
        ({"run_id": None, "loss_validation": None}, r"columns run_id, loss_validation \(or any other loss_…\) missing"),
        (
            {"loss_validation": [3, 2, "oops", 2]},
            r"loss_validation, data row 3 \(run b\) holds 'oops', .* not a number",
        ),
        ({"loss_validation": [3, -2, 2, 2]}, r"data row 2 \(run a\) holds -2.0: .* positive, finite"),
        ({"loss_validation": [3, 2, 2, 0]}, r"data row 4 \(run c\) holds 0.0: .* positive, finite"),
        ({"loss_validation": [3, 2, math.inf, 2]}, r"data row 3 \(run b\) holds inf: .* positive, finite"),
        ({"experts": [1, 1, 0, 64]}, r"column experts, data row 3 \(run b\) holds 0: experts must be at least 1"),
        ({"experts": [1, 1, 8, 2.5]}, r"column experts, data row 4 \(run c\) holds '2.5', which is not a whole number"),
        ({"experts": [1, 1, "many", 8]}, r"data row 3 \(run b\) holds 'many'"),
        ({"experts": [1, 1, None, 8]}, r"data row 3 .* experts must be given"),
        ({"active_params": [1e6, 1e6, 0, 1e6]}, r"active_params, data row 3 \(run b\) holds 0.0: .* from 1 to 1e\+18"),
        ({"active_params": [1e6, 1e6, 1e300, 1e6]}, "column active_params, data row 3"),
        ({"loss_validation": [3, 2, 1e308, 2]}, r"data row 3 .* must lie between 1e-06 and 10000 nats"),
        ({"loss_validation": [3, 2, 1e-320, 2]}, r"data row 3 .* must lie between 1e-06 and 10000 nats"),
        ({"loss_validation": [3, 2, "1_0.5", 2]}, r"data row 3 \(run b\) holds '1_0.5', which is not a number"),
        ({"loss_validation": [3, 2, "250%", 2]}, r"data row 3 \(run b\) holds '250%', which is not a number"),
        ({"loss_validation": [3, 2, "٢.٥", 2]}, r"data row 3 .* which is not a number"),
        ({"loss_validation": [True] * 4}, r"data row 1 .* which is not a number"),
        ({"experts": [1, 1, "9" * 5000, 8]}, r"data row 3 \(run b\) holds '9{60}…', which is not a whole number"),
        ({"experts": [1, 1, "1_0", 8]}, r"data row 3 .* which is not a whole number"),
        ({"experts": pd.Series([1, 1, 2**64 - 1, 8], dtype="uint64")}, r"data row 3 .* which is not a whole number"),
        ({"experts": [8, 8, 8, 64]}, r"column experts, data row 1 \(run a\) holds 8: experts is 1 for router dense"),
        (
            {"experts": [1, 1, 10**9, 64]},
            r"column experts, data row 3 .* above active_params \(are the two columns swapped",
        ),
        ({"k": [1, 1, 9, 1]}, r"column k, data row 3 \(run b\) holds 9: k must not be above experts"),
        ({"total_params": [4e8, 4e8, 1e6, 4e8]}, r"total_params, data row 3 .* must not be below active_params"),
        ({"seed": [0, 0, -1, 0]}, r"column seed, data row 3 \(run b\) holds -1: seed must be at least 0"),
        ({"active_params": [1e6, 1e6, None, 1e6]}, "column active_params, data row 3"),
        ({"total_params": [1e6, 1e6, -1, 1e6]}, "column total_params, data row 3"),
        ({"k": [1, 1, 0, 1]}, r"column k, data row 3 \(run b\) holds 0: k must be at least 1"),
        ({"routing_frequency": [0.5, 0.5, 0, 1]}, "column routing_frequency, data row 3 .* above 0 and at most 1"),
        ({"routing_frequency": [0.5, 0.5, 1, 1.5]}, "column routing_frequency, data row 4 .* above 0 and at most 1"),
        ({"step": [10, 10, 20, 20]}, r"column step, data row 2 \(run a\) holds 10: step appears twice"),
        ({"step": [10, 20, None, 20]}, "column step, data row 3 .* in every row or in none"),
        ({"step": [10, -20, 20, 20]}, "column step, data row 2 .* at least 0"),
        ({"run_id": ["a", "a", " ", "c"]}, "column run_id, data row 3 .* must not be empty"),
        ({"router": ["dense", "dense", None, "hash"]}, "column router, data row 3 .* must not be empty"),
        ({"run_id": ["a", "a", "a", "c"], "step": [1, 2, 3, 4]}, "column router, data row 3 .* different run_ids"),
    ],
)
def test_wrong_tables(changes: dict, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        table(**changes)
    assert str(caught.value).startswith("mine.csv: ")
    assert "\n" not in str(caught.value)


def test_empty_table_and_repeated_column() -> None:
    with pytest.raises(InputError, match="the table is empty"):
        RunTable.from_frame(rows().iloc[:0], "mine.csv")
    twice = pd.concat([rows(), rows()[["experts"]]], axis=1)
    with pytest.raises(InputError, match="column experts appears twice"):
        RunTable.from_frame(twice, "mine.csv")


def test_sizes_without_labels_are_told_apart_by_gaps():
    """Active parameters that count the router vary a little with E: still one size each."""
    frame = pd.DataFrame(
        {
            "run_id": [f"r{i}" for i in range(6)],
            "router": "mine",
            "experts": [2, 8, 64, 2, 8, 64],
            "active_params": [1.0e7, 1.001e7, 1.006e7, 1.0e8, 1.001e8, 1.006e8],
            "loss_validation": 3.0,
        }
    )
    table = RunTable.from_frame(frame, "test")
    assert table.frame["size"].tolist() == ["10M"] * 3 + ["100M"] * 3
    assert any("are 2 sizes" in note for note in table.notes)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"loss_validation": [3, 2, 83.0, 2]}, r"loss_validation is 83.0 in data row 3 \(run b\): .* a percentage"),
        ({"loss_validation": [30, 20, 8, 20]}, r"data row 1 \(run a\) \(and in 2 other rows\): .* a perplexity"),
        ({"loss_validation": [3, 2, 0.02, 2]}, r"loss_validation is 0.02 in data row 3"),
        ({"active_params": [370, 370, 370, 205]}, r"active_params is 370.0 in data row 1 .*: are these millions"),
        ({"flops_per_token": [7e8, 7e8, 0.7e3, 4e8]}, r"flops_per_token is 700.0 in data row 3 \(run b\): .* 2 FLOPs"),
    ],
)
def test_what_is_hard_to_believe_is_a_warning_that_names_the_row(changes: dict, warning: str) -> None:
    [said] = table(**changes).warnings
    assert re.search(warning, said), said
    assert table().warnings == ()


def test_a_diverged_run_may_have_any_loss() -> None:
    diverged = table(loss_validation=[3, 2, 1e30, 2], status=["finished", "finished", "diverged", "finished"])
    assert diverged.warnings == ()
    assert diverged.frame["loss_validation"].max() == 1e30


def test_sizes_that_shade_into_each_other_are_not_one() -> None:
    """Each within 9 % of the next, the last ten times the first."""
    counts = [1e6 * 1.09**i for i in range(28)]
    frame = pd.DataFrame({"run_id": range(28), "router": "dense", "experts": 1, "active_params": counts})
    sizes = RunTable.from_frame(frame.assign(loss_validation=3.0), "mine.csv").frame["size"]
    assert sizes.nunique() == 14


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"step": [0, 0, 0, 0], "run_id": list("abcd")}, "step is 0 in data row 1 (run a) (and in 3 other rows)"),
        ({"tokens": [0, 0, 5, 5]}, "tokens is 0 in data row 2 (run a): a finished run has been trained"),
        ({"tokens": [9, 99, 99, 99], "tokens_planned": 10}, "far more than tokens_planned"),
        ({"tokens": [99, 9, 99, 99]}, "tokens is 9 in data row 2 (run a): that is less than at an earlier step"),
        ({"total_params": [4e8, 4e8, 368123904, 4e8]}, "data row 3 (run b): with several experts"),
        ({"total_params": [8e8, 8e8, 8e8, 8e8]}, "data row 1 (run a) (and in one other row): a dense model uses all"),
        ({"routing_frequency": [0.5, 0.5, 1e-5, 0.5]}, "routing_frequency is 1e-05 in data row 3 (run b)"),
        ({"size": "1B", "active_params": [1e9, 1e9, 4e9, 1e9]}, "differ more than twofold in active_params"),
    ],
)
def test_hard_to_believe_is_a_warning(changes: dict, said: str) -> None:
    assert any(said in warning for warning in table(**changes).warnings)
    assert table().warnings == ()


@pytest.mark.parametrize(
    ("column", "cells"), [("total_params", [4e8, 5e8, 5e8, 5e8]), ("seed", [1, 2, 2, 2]), ("size", list("abbb"))]
)
def test_a_run_is_one_model_throughout(column: str, cells: list) -> None:
    with pytest.raises(InputError, match=f"{column} differs from the run's first row"):
        table(**{column: cells})


def test_columns_without_names() -> None:
    with pytest.raises(InputError, match="several columns have no name"):
        RunTable.from_frame(pd.DataFrame([["a", "", ""]], columns=pd.Index(["run_id", "", ""])), "mine.csv")
