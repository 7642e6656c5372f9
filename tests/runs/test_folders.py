"""Folders of runs as a run table, without the training half."""

import json
import shutil
from pathlib import Path

import pytest

from routelaw.errors import InputError
from routelaw.runs.files import read_runs


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for run_id, experts in (("a", 1), ("b", 8)):
        folder = tmp_path / "store" / f"run-{run_id}"
        folder.mkdir(parents=True)
        row = {
            "run_id": run_id,
            "router": "switch",
            "experts": experts,
            "active_params": 1000,
            "load": {"c": {"2": [1]}},
        }
        rows = [
            {**row, "step": 5, "status": "running", "loss_validation": 4.0},
            {**row, "step": 9, "status": "diverged", "loss_validation": None, "loss_c": 3.0},
        ]
        (folder / "evaluations.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path / "store"


def test_every_row_of_every_run(store: Path) -> None:
    table = read_runs(store)
    assert table.frame["run_id"].tolist() == ["a", "a", "b", "b"]
    assert table.losses == ["loss_validation", "loss_c"]
    assert "load" not in table.frame
    assert table.frame["loss_validation"].isna().tolist() == [False, True] * 2
    assert read_runs(store / "run-b").frame["experts"].tolist() == [8, 8]


def test_a_line_being_written_is_no_row_and_a_damaged_one_is_named(store: Path) -> None:
    file = store / "run-a" / "evaluations.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"run_id": "a", "st')
    assert len(read_runs(store).frame) == 4
    file.write_bytes(b"{" + whole)
    with pytest.raises(InputError, match=r"run-a/evaluations\.jsonl: line 1 is damaged"):
        read_runs(store)
    file.write_bytes(b"")
    with pytest.raises(InputError, match="no run has been evaluated yet"):
        read_runs(file.parent)


def test_the_same_run_twice(store: Path) -> None:
    shutil.copytree(store / "run-a", store / "copy")
    with pytest.raises(InputError, match=r"copy and .*run-a hold the same run a"):
        read_runs(store)
