"""Studies of the paper in a report: found by what the store was made for, asked for by name, judged on any table."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from report_pages import Page
from synthetic_store import grid, make_spec, write_store

from routelaw.fitting.claims import OPEN
from routelaw.laws import get_law
from routelaw.runs.store import Store
from routelaw.specs.names import STUDIES
from routelaw.studies.paper import STUDIES as JUDGED


@pytest.fixture(autouse=True)
def two_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [get_law("separable"), get_law("bilinear")]
    monkeypatch.setattr("routelaw.report.runs.analysis.comparable_laws", lambda: known)
    monkeypatch.setattr("routelaw.report.runs.report.draw_static_figures", lambda source, folder: [])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path / "store", grid(), evaluations=3, logged=5)


def reported(command, source: Path, out: Path, *options: object) -> list[dict]:
    code, said, err = command("report", source, "--out", out, *options, "--json")
    assert (code, err) == (0, "")
    return json.loads(said)["sources"]["own"].get("studies", [])


def test_every_name_has_a_study() -> None:
    assert [study.name for study in JUDGED] == list(STUDIES)


def test_asked_for_by_name(command, store: Path, tmp_path: Path) -> None:
    (found,) = reported(command, store, tmp_path / "out", "--study", "main")
    assert found["question"] == "How does the loss depend on N and E, for each technique?"
    by_name = {claim["name"]: claim for claim in found["claims"]}
    assert by_name["s-base >= hash"]["verdict"] == "holds"
    low, high = (by_name["s-base >= hash"]["ours"][end] for end in ("low", "high"))
    assert 0 < low < by_name["s-base >= hash"]["ours"]["value"] < high
    assert by_name["s-base >= rl-r"]["verdict"] == OPEN, "RL-R was not trained"
    assert found["noise"] == {}
    assert found["figures"] | found["not_drawn"]
    for files in found["figures"].values():
        assert all((tmp_path / "out" / file).is_file() for file in files)


def test_heads_the_page(command, store: Path, tmp_path: Path) -> None:
    code, out, err = command("report", store, "--out", tmp_path / "out", "--study", "main")
    assert (code, err) == (0, "")
    assert "study main: How does the loss depend on N and E, for each technique?" in out
    assert "S-BASE has the lower loss than HASH: holds." in out
    page = Page(tmp_path / "out", (tmp_path / "out" / "index.html").read_text(), {}).html
    assert page.index("Study: main") < page.index("Loss against experts")
    assert "No model was trained with several seeds" in page


def test_found_by_what_the_store_was_made_for(command, store: Path, tmp_path: Path) -> None:
    assert reported(command, store, tmp_path / "none") == []
    Store(store).record_study("k", "k.toml")
    Store(store).record_study("main", "main.toml")
    assert [found["study"] for found in reported(command, store, tmp_path / "both")] == ["main", "k"]
    assert [found["study"] for found in reported(command, store, tmp_path / "one", "--study", "r")] == ["r"]


def test_on_a_table(command, store: Path, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    Store(store).table().frame.to_csv(table, index=False)
    (found,) = reported(command, table, tmp_path / "out", "--study", "main", "--study", "main")
    verdicts = {claim["name"]: claim["verdict"] for claim in found["claims"]}
    assert verdicts["s-base >= hash"] == "holds"


def test_another_loss_is_judged_where_it_is_asked_for(command, store: Path, tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    frame = Store(store).table().frame.rename(columns={"loss_validation": "loss_c4"})
    frame.to_csv(table, index=False)
    (found,) = reported(command, table, tmp_path / "out", "--study", "main", "--target", "loss_c4")
    assert "Judged on loss_c4." in found["notes"]
    assert {claim["name"]: claim["verdict"] for claim in found["claims"]}["s-base >= hash"] == "holds"


def test_without_dense_runs(command, tmp_path: Path) -> None:
    routed = [spec for spec in grid() if spec.router.name != "dense"]
    store = write_store(tmp_path / "store", routed, evaluations=3, logged=5)
    (found,) = reported(command, store, tmp_path / "out", "--study", "main")
    verdicts = {claim["name"]: claim["verdict"] for claim in found["claims"]}
    assert (verdicts["routing helps"], verdicts["gain falls"]) == (OPEN, OPEN)
    assert "No dense run has finished: what compares with dense models cannot be told." in found["notes"]


def test_lengths_of_one_model_are_all_judged(command, tmp_path: Path) -> None:
    """Elsewhere in the report a model trained for several lengths counts with one of them."""
    specs = [make_spec("0.2M", r, e, steps=steps) for r, e in (("dense", 1), ("hash", 4), ("hash", 8))
             for steps in (500, 1000, 2000)]  # fmt: skip
    store = write_store(tmp_path / "store", specs, evaluations=3, logged=5)
    (found,) = reported(command, store, tmp_path / "out", "--study", "lengths")
    longer = next(claim for claim in found["claims"] if claim["name"] == "not converged")
    assert longer["ours"] is not None
    assert found["excluded"] == []


@pytest.mark.parametrize(("name", "said"), [("robustnesss", "did you mean 'robustness'"), ("", "there are main, k, r")])
def test_a_wrong_name_is_one_sentence_and_leaves_nothing(
    command, store: Path, tmp_path: Path, name: str, said: str
) -> None:
    code, out, err = command("report", store, "--out", tmp_path / "out", "--study", name)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_names_of_a_table_are_text_on_the_page(command, tmp_path: Path, store: Path) -> None:
    frame = Store(store).table().frame
    frame["size"] = frame["size"].map(lambda size: f"<b>{size}</b>")
    table = tmp_path / "runs.csv"
    pd.DataFrame(frame).to_csv(table, index=False)
    reported(command, table, tmp_path / "out", "--study", "main", "--study", "limit")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<b>0." not in page.partition("<script")[0]
