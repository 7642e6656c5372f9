"""Predictions made before the largest size is there: they cover it, and a table that holds it is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn_runs import World, drawn_studies, true_frame, with_noise

from experiments.miniature.analysis import blind, laws
from experiments.miniature.analysis.page_sections import blocks_on_blind
from experiments.miniature.analysis.study import Study, plain
from experiments.miniature.studies import specs_of
from routelaw.errors import InputError
from routelaw.fitting.noise import NoiseFloor
from routelaw.runs.files import read_runs, write_runs
from routelaw.runs.table import RunTable
from routelaw.specs.files import to_mapping

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


@pytest.mark.long
def test_intervals_cover_nine_in_ten(largest: pd.DataFrame, planned: pd.DataFrame, monkeypatch) -> None:
    """Under the law that the runs were drawn from, over ten tables: coverage is near the level, and never far below."""
    only(monkeypatch, {"saturated"})
    inside = []
    for seed, study in enumerate(drawn_studies(MAIN, range(10), SIZES)):
        said = blind.predict(study, planned)
        fresh = with_noise(largest, MAIN.noise, 1000 + seed)
        both = pd.concat([study.table.frame, fresh[fresh["size"] == LARGEST]])
        scored = blind.score(Study(plain(RunTable.from_frame(both, "both"))), said)
        inside += [run["inside"] for run in scored["runs"]]
        assert {row["law"] for row in scored["by_law"]} == {"saturated"}
    assert 0.8 <= np.mean(inside) <= 0.99, np.mean(inside)


def only(monkeypatch: pytest.MonkeyPatch, names: set[str]) -> None:
    chosen = [law for law in laws.competing_laws() if law.name in names]
    monkeypatch.setattr(laws, "competing_laws", lambda: chosen)


def test_from_files(largest: pd.DataFrame, planned: pd.DataFrame, tmp_path: Path, monkeypatch, capsys) -> None:
    table, plan, file = tmp_path / "runs.csv.gz", tmp_path / "planned.json", tmp_path / "predictions.json"
    truth = true_frame(MAIN, SIZES[1:])
    write_runs(RunTable.from_frame(with_noise(truth, MAIN.noise, 0), "some"), table)
    plan.write_text(json.dumps({"runs": json.loads(planned.to_json(orient="records"))}))
    only(monkeypatch, LAWS)
    monkeypatch.setattr(blind, "DRAWS", 40)

    def call(*words: object) -> None:
        monkeypatch.setattr(sys, "argv", ["blind", *map(str, words), "--file", str(file)])
        blind.main()

    with pytest.raises(InputError, match=r"lacks runs of main and seeds: which cannot be told without specs\.jsonl"):
        call("predict", table, plan)
    assert not file.exists()
    call("predict", table, plan, "--incomplete")
    said = json.loads(file.read_text())
    assert said["size"] == LARGEST
    assert len(said["sha256"]) == 64
    assert {row["law"] for row in said["predictions"]} == LAWS
    assert said["incomplete"]
    assert "cannot be told" in said["missing"]
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


def test_runs_that_are_missing_are_counted_by_router(planned: pd.DataFrame, tmp_path: Path) -> None:
    specs = {spec.run_id: spec for study in ("main", "seeds") for spec in specs_of(study, "c", 8192)}
    lines = [json.dumps({"run_id": run_id, "spec": to_mapping(spec)}) for run_id, spec in specs.items()]
    (tmp_path / "specs.jsonl").write_text("\n".join(lines[:1]))
    drawn = with_noise(true_frame(MAIN, ("2M",)), MAIN.noise, 0).drop_duplicates("run_id").iloc[:1]

    def lacking(runs: list[str]) -> str:
        frame = pd.concat([drawn.assign(run_id=run_id) for run_id in runs])
        return blind.missing_runs(Study(RunTable.from_frame(frame, "some")), planned, tmp_path)

    assert lacking(list(specs)) == ""
    left_out = {"rl-r": 2, "dense": 1}
    gone = [i for name, n in left_out.items() for i in [i for i, s in specs.items() if s.router.name == name][:n]]
    assert lacking([run_id for run_id in specs if run_id not in gone]) == "1 of dense, 2 of rl-r"
    to_come = pd.concat([planned, planned[:1].assign(run_id=gone[0])])
    frame = pd.concat([drawn.assign(run_id=run_id) for run_id in specs if run_id != gone[0]])
    assert blind.missing_runs(Study(RunTable.from_frame(frame, "some")), to_come, tmp_path) == "", "of the largest size"


def test_what_is_not_predicted_is_listed_and_what_was_resampled_is_said(
    largest: pd.DataFrame, planned: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-BASE at four sizes, HASH at two of two E, RL-R at one; Switch not at all."""
    only(monkeypatch, {"saturated", "bilinear"})
    monkeypatch.setattr(blind, "DRAWS", 40)
    frame = with_noise(true_frame(MAIN, SIZES[1:]), MAIN.noise, 0)
    there = frame["router"].isin(["dense", "s-base"])
    there |= (frame["router"] == "hash") & frame["size"].isin(["2M", "8M"]) & (frame["experts"] <= 4)
    there |= (frame["router"] == "rl-r") & (frame["size"] == "8M")
    few = frame[there]
    said = blind.predict(Study(plain(RunTable.from_frame(few, "few"))), planned)
    skipped = {(row["law"], row["router"]): row["why"] for row in said["skipped"]}
    predicted = {(row["law"], row["router"]) for row in said["predictions"]}
    routers = {"s-base", "hash", "rl-r", "switch"}
    assert predicted | skipped.keys() == {(law, r) for law in ("saturated", "bilinear") for r in routers}
    assert not predicted & skipped.keys()
    assert {skipped[law, r] for law in ("saturated", "bilinear") for r in ("rl-r", "switch")} == {
        "it has not two E at two sizes."
    }

    both = pd.concat([few, largest[(largest["size"] == LARGEST)]])
    scored = blind.score(Study(plain(RunTable.from_frame(both, "both"))), said)
    found = {(row["law"], row["router"]): row["intervals"] for row in scored["by_law_and_router"]}
    assert found["bilinear", "s-base"] == ["size-bootstrap"]
    assert found["bilinear", "hash"] == ["case-bootstrap"], "two sizes cannot be resampled"
    of_laws = {row["law"]: row["intervals"] for row in scored["by_law"]}
    assert of_laws["bilinear"] == ["case-bootstrap", "size-bootstrap"]


def test_a_mean_error_is_beyond_the_noise_of_distinct_runs() -> None:
    """By hand: of eight rows of two routers two are the one dense model, so the mean has an error of
    sd·√(6 + 2²)/8 = 0.395 sd; Student's 90 % with 18 degrees of freedom is 1.734 of that, 0.686 sd."""
    noise = NoiseFloor(sd=1e-3, freedom=18, low=0.0, high=0.0, models=9, widest=0.0, loss=3.5)
    rows = pd.DataFrame({"router": ["s-base"] * 4 + ["hash"] * 4, "experts": [1, 2, 4, 8] * 2})
    found = {shift: blind._beyond_noise(rows.assign(error=shift * 1e-3), noise) for shift in (-0.70, -0.67, 0.67, 0.70)}
    assert found == {-0.70: True, -0.67: False, 0.67: False, 0.70: True}
    assert not blind._beyond_noise(rows.assign(error=1.0), None), "without seeds nothing can be told"


def test_the_page_names_the_best_law_and_the_papers() -> None:
    common = {"points": 8, "intervals": ["size-bootstrap"]}
    good = {"rmse": 1e-3, "mean_error": 2e-4, "beyond_noise": False, "coverage": 1.0, "width": 0.05, **common}
    bad = {"rmse": 5e-3, "mean_error": -4e-3, "beyond_noise": True, "coverage": 0.5, "width": 1e20, **common}
    bad |= {"intervals": ["case-bootstrap"]}
    scored = {
        "size": "20M",
        "level": 0.9,
        "noise": 2e-3,
        "seeds_of": "8M",
        "by_law": [{"law": "irreducible", **good}, {"law": "saturated", **bad}],
        "by_law_and_router": [
            {"law": "irreducible", "router": "hash", **good},
            {"law": "saturated", "router": "hash", **bad},
            {"law": "saturated", "router": "s-base", **bad},
        ],
        "runs": [{"router": "s-base"}, {"router": "hash"}],
        "preregistration": {"words": "Told before.", "shown": True},
    }
    rates = pd.DataFrame({
        "router": ["dense"] * 3 + ["s-base"] * 2, "size": ["20M"] * 3 + ["8M"] * 2, "experts": [1] * 3 + [8] * 2,
        "loss_validation": [3.46, 3.41, 3.45, 3.3, 3.4], "chosen": [False, True, False, True, False],
    })  # fmt: skip
    short, told, grid, meaning = blocks_on_blind(scored, rates)
    assert "irreducible, wrong by 0.23 % of the loss, where seeds of 8M differ by 0.46 %" in short.text
    assert "saturated: 1.15 %, on average 0.92 % too low." in short.text
    assert told.text == "Told before."
    assert "Intervals of saturated are from resampled runs" in meaning.text
    assert meaning.text.endswith("best of the other rates that were tried there: +0.040 (Dense).")
    assert "other rates" not in blocks_on_blind(scored, rates.iloc[3:])[-1].text
    assert grid.head == ["law", "all routers", "S-BASE", "HASH"]
    by_law = {row[0].text: row[1:] for row in grid.rows}
    assert [cell.text for cell in by_law["irreducible"]] == ["10.0", "–", "10.0"]
    assert [cell.tone for cell in by_law["saturated"]] == ["bad", "mine", "bad"], "the only one of S-BASE is its best"
    assert by_law["saturated"][0].under == "50% inside, over 1000 %"
    assert len(blocks_on_blind(None, rates)) == 1
