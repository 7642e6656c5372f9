"""Predictions made before the largest size is there: they cover it, and a table that holds it is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn_runs import World, drawn_studies, true_frame, with_noise

from experiments.miniature import blind, laws
from experiments.miniature.study import Study, plain
from routelaw.errors import InputError
from routelaw.runs.files import read_runs, write_runs
from routelaw.runs.table import RunTable

LARGEST = "20M"
SIZES = ("0.2M", "0.8M", "2M", "5M", "8M")
MAIN = World(studies=False)
LAWS = {"saturated", "irreducible", "compute", "bilinear"}
"""Those that are quick to resample; the others go the same way."""


@pytest.fixture(scope="module")
def largest() -> pd.DataFrame:
    return true_frame(MAIN, (LARGEST,))


@pytest.fixture(scope="module")
def planned(largest: pd.DataFrame) -> pd.DataFrame:
    """The rows that a dry run gives, of one size."""
    return largest[largest["size"] == LARGEST].drop_duplicates("run_id")


def test_intervals_cover_nine_in_ten(largest: pd.DataFrame, planned: pd.DataFrame, monkeypatch) -> None:
    """Under the law that the runs were drawn from, over ten tables: coverage is near the level, and never far below."""
    monkeypatch.setattr(blind, "fits_of", lambda study, router: _saturated(study, router))
    inside = []
    for seed, study in enumerate(drawn_studies(MAIN, range(10), SIZES)):
        said = blind.predict(study, planned)
        fresh = with_noise(largest, MAIN.noise, 1000 + seed)
        both = pd.concat([study.table.frame, fresh[fresh["size"] == LARGEST]])
        scored = blind.score(Study(plain(RunTable.from_frame(both, "both"))), said)
        inside += [run["inside"] for run in scored["runs"]]
        assert {row["law"] for row in scored["by_law"]} == {"saturated"}
    assert 0.8 <= np.mean(inside) <= 0.99, np.mean(inside)


def _saturated(study: Study, router: str) -> list:
    from routelaw.fitting import fit_law, select_points

    return [fit_law("saturated", select_points(study.table, router, mixed=False))]


def test_from_files(largest: pd.DataFrame, planned: pd.DataFrame, tmp_path: Path, monkeypatch, capsys) -> None:
    table, plan, file = tmp_path / "runs.csv.gz", tmp_path / "planned.json", tmp_path / "predictions.json"
    truth = true_frame(MAIN, SIZES[1:])
    write_runs(RunTable.from_frame(with_noise(truth, MAIN.noise, 0), "some"), table)
    plan.write_text(json.dumps({"runs": json.loads(planned.to_json(orient="records"))}))
    chosen = [law for law in laws.competing_laws() if law.name in LAWS]
    monkeypatch.setattr(laws, "competing_laws", lambda: chosen)
    monkeypatch.setattr(blind, "DRAWS", 40)

    def call(*words: object) -> None:
        monkeypatch.setattr(sys, "argv", ["blind", *map(str, words), "--file", str(file)])
        blind.main()

    call("predict", table, plan)
    said = json.loads(file.read_text())
    assert said["size"] == LARGEST
    assert len(said["sha256"]) == 64
    assert {row["law"] for row in said["predictions"]} == LAWS
    assert {row["experts"] for row in said["predictions"]} == {1, 2, 4, 8, 16, 32, 64, 128}
    assert all(row["low"] < row["loss"] < row["high"] for row in said["predictions"])
    with pytest.raises(InputError, match="no run of 20M"):
        call("score", table)

    both = pd.concat([truth, largest[largest["size"] == LARGEST]])
    write_runs(RunTable.from_frame(both, "all"), table, force=True)
    with pytest.raises(InputError, match="predictions are made once"):
        call("predict", table, plan)
    with pytest.raises(InputError, match="holds runs of 20M"):
        blind.predict(Study(plain(read_runs(table))), blind.planned_runs(plan))
    capsys.readouterr()
    call("score", table)
    assert "saturated" in capsys.readouterr().out


def test_one_size_at_a_time(planned: pd.DataFrame) -> None:
    two = pd.concat([planned, planned.assign(size="30M")])
    with pytest.raises(InputError, match="one size"):
        blind.predict(drawn_studies(MAIN)[0], two)
