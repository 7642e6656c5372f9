from pathlib import Path

import pandas as pd
import pytest

from routelaw.errors import InputError
from routelaw.runs.clark2022 import COLUMNS, import_release, is_release
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable


@pytest.fixture(scope="module")
def raw(released_path: Path) -> pd.DataFrame:
    return pd.read_csv(released_path)


def test_every_run_and_row_arrives(released: RunTable, raw: pd.DataFrame) -> None:
    frame = released.frame
    assert len(frame) == 5799
    assert frame["run_id"].nunique() == 223
    assert released.routers == ["dense", "s-base", "hash", "rl-r"]
    assert released.losses == [
        "loss_validation", "loss_c4", "loss_curation_corpus", "loss_lambada", "loss_pile", "loss_wikitext103",
    ]  # fmt: skip
    for loss in released.losses:
        pd.testing.assert_series_equal(frame[loss], raw[loss], check_exact=True)
    assert (frame["hyper_id"] == raw["hyper_id"]).all()
    assert (frame["size"] == raw["model_size_label"]).all()


def test_counts_are_those_of_the_file_except_for_the_six(released: RunTable, raw: pd.DataFrame) -> None:
    others = released.frame["variant"] != "shared_decisions"
    frame, raw = released.frame[others], raw[others]
    assert (frame["active_params"] == raw["dense_parameter_count"]).all()
    assert (frame["total_params"] == raw["total_parameter_count"]).all()
    assert (frame["flops_per_token"] * 256 * 2048 == raw["flops_per_step"]).all()


def test_tokens(released: RunTable) -> None:
    last = released.frame.groupby("run_id").tail(1)
    assert last["tokens"].max() == 250_000 * 256 * 2048
    assert (released.frame["tokens_planned"] == 131_072_000_000).all()


def test_six_runs_are_shared_decisions(released: RunTable) -> None:
    shared = released.frame[released.frame["variant"] == "shared_decisions"].drop_duplicates("run_id")
    reading = shared.set_index("hyper_id")[["routing_frequency_labelled", "routing_frequency"]].T.to_dict("list")
    assert reading == {
        54: [0.125, 0.5],
        55: [0.125, 0.5],
        56: [0.25, 0.25],
        57: [0.25, 0.25],
        66: [0.125, 1.0],
        67: [1.0, 1.0],
    }
    for run in shared.itertuples():
        ffws = round(8 * run.routing_frequency) * (run.experts - 1) * 8 * 512**2
        assert run.total_params == 27_279_360 + ffws + run.experts * 512
    assert any("54, 55, 56, 57, 66, 67" in note for note in released.notes)


def test_dense_seeds_and_wider_dense_models(released: RunTable) -> None:
    dense = released.frame[released.frame["router"] == "dense"].drop_duplicates("run_id")
    assert sorted(dense.loc[dense["size"] == "130M", "seed"]) == [1, 2, 3]
    assert dense["variant"].value_counts().to_dict() == {"": 8, "flop_increase=4": 3, "flop_increase=2": 2}
    assert (dense["k"] == 1).all()


def test_the_main_sweep_is_all_that_is_left_without_variants(released: RunTable) -> None:
    frame = released.frame
    main = frame[(frame["variant"] == "") & (frame["k"] == 1) & (frame["routing_frequency"] == 0.5)]
    assert main["run_id"].nunique() == 164 + 2  # two further seeds of the dense 130M model


@pytest.mark.parametrize("column", COLUMNS)
def test_a_lost_column_is_named(raw: pd.DataFrame, tmp_path: Path, column: str) -> None:
    path = tmp_path / "lost.csv"
    raw.head(30).drop(columns=column).to_csv(path, index=False)
    with pytest.raises(InputError, match=f"released table, but without its column {column}"):
        read_runs(path)


@pytest.mark.parametrize("column", ["dense_parameter_count", "total_parameter_count", "flops_per_step"])
def test_an_altered_count_is_found_in_any_row(raw: pd.DataFrame, column: str) -> None:
    altered = raw[raw["hyper_id"] == 28].copy()
    stated = int(altered[column].iloc[0])
    altered[column] += 1
    with pytest.raises(InputError, match=f"run 28 states {column} {stated + 1:,}, but .* gives {stated:,}"):
        import_release(altered, "altered.csv")
    one_row = raw.copy()
    one_row.loc[4000, column] += 1
    with pytest.raises(InputError, match=r"states|two different models"):
        import_release(one_row, "altered.csv")


def test_some_rows_are_enough_and_parquet_will_do(raw: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    raw[raw["hyper_id"] < 3].to_parquet(path)
    table = read_runs(path)
    assert table.frame["run_id"].nunique() == 3
    assert not any("shared_decisions" in note for note in table.notes)


def test_other_errors(raw: pd.DataFrame) -> None:
    with pytest.raises(InputError, match="the table is empty"):
        import_release(raw.head(0), "none.csv")
    with pytest.raises(InputError, match="column seed is empty in data row 2"):
        import_release(raw.head(5).assign(seed=[42, None, 42, 42, 42]), "hole.csv")
    with pytest.raises(InputError, match="two different models"):
        import_release(raw.head(5).assign(seed=[42, 43, 42, 42, 42]), "mixed.csv")


def test_an_ordinary_table_is_not_the_release() -> None:
    assert not is_release(["run_id", "router", "experts", "active_params", "loss_validation"])
    assert not is_release(["run_id", *COLUMNS])
