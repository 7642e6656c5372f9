"""`routelaw report`: what it prints, what it refuses, plugins, and imported tables beside own runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from report_pages import Page
from synthetic_store import grid, write_store

from routelaw.laws import get_law
from routelaw.runs.table import RunTable

LAW = """
from routelaw import PowerSum, coefficient
LAW = PowerSum(name="mine", formula="log L = a·log N + b·log E + d", source="me", inputs=("active_params", "experts"),
               second=lambda x: x["experts"],
               terms=((coefficient("a", "slope", (1, 0)), coefficient("b", "slope", (0, 1)),
                       coefficient("d", "level", (0, 0))),))
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    known = [get_law("separable"), get_law("bilinear")]
    monkeypatch.setattr("routelaw.report.runs.analysis.comparable_laws", lambda: known)
    monkeypatch.setattr("routelaw.report.runs.report.draw_static_figures", lambda source, folder: [])
    return write_store(tmp_path / "store", grid(), evaluations=3, logged=5)


@pytest.fixture
def page_of(tmp_path: Path) -> Callable[[dict], Page]:
    return lambda summary: Page(tmp_path / "out", (tmp_path / "out" / "index.html").read_text(), summary)


def test_a_few_lines_for_people_and_where_the_page_is(command, store: Path, tmp_path: Path) -> None:
    code, out, err = command("report", store, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert "21 runs: 21 finished.\n" in out
    assert "S-BASE is clearly better than HASH." in out
    assert out.rstrip().endswith(f"Page: {tmp_path / 'out' / 'index.html'}")


def test_json_is_one_object(command, store: Path, tmp_path: Path) -> None:
    code, out, err = command("report", store, "--out", tmp_path / "out", "--law", "bilinear", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    own = told["sources"]["own"]
    assert Path(told["page"]).is_file()
    assert (own["law"], own["law_because"]) == ("bilinear", "it was asked for")
    assert set(own["fits"]) == {"s-base", "hash"}
    assert own["fits"]["hash"]["params"].keys() == {"a", "b", "c", "d"}
    assert own["statuses"] == {"finished": 21}
    for file in own["tables"]:
        assert (tmp_path / "out" / file).is_file()


def test_a_plugin_law_takes_part(command, store: Path, tmp_path: Path, page_of) -> None:
    (tmp_path / "mine.py").write_text(LAW)
    code, out, _ = command("report", store, "--out", tmp_path / "out", "--plugin", tmp_path / "mine.py", "--json")
    assert code == 0
    own = json.loads(out)["sources"]["own"]
    assert own["leave_size_out"]["hash"]["mine"] == pytest.approx(own["leave_size_out"]["hash"]["separable"])
    assert "mine" in [law["name"] for law in page_of(own).island("explorer-view")["laws"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--law", "satrated"), "did you mean 'saturated'"),
        (("--law", "dense"), "is not a law of the final loss in (N, E)"),
        (("--law", "compute"), "is not a law of the final loss in (N, E)"),
        (("--target", "loss_validaton"), "did you mean 'loss_validation'"),
        (("--plugin", "none.py"), "is not a Python file that can be read"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_leaves_nothing(
    command, store: Path, tmp_path: Path, options: tuple[str, str], said: str
) -> None:
    code, out, err = command("report", store, "--out", tmp_path / "out", *options)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["store"]


def test_an_existing_folder_needs_force(command, store: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    code, _, err = command("report", store, "--out", tmp_path / "out")
    assert (code, "--force" in err) == (2, True)
    assert command("report", store, "--out", tmp_path / "out", "--force").code == 0
    assert {"mine.txt", "index.html"} <= {p.name for p in (tmp_path / "out").iterdir()}


def test_one_run_of_a_store_is_a_report_of_its_own(command, store: Path, tmp_path: Path) -> None:
    run = next(p for p in store.iterdir() if (p / "result.json").is_file())
    code, out, _ = command("report", run, "--out", tmp_path / "out", "--json")
    assert (code, json.loads(out)["sources"]["own"]["runs"]) == (0, 1)


def test_imported_tables_stand_beside_own_runs_and_are_mixed_with_nothing(
    command, store: Path, released: RunTable, tmp_path: Path, page_of
) -> None:
    _, alone, _ = command("report", store, "--out", tmp_path / "alone", "--json")
    (store / "imported").mkdir()
    released.frame.to_parquet(store / "imported" / "clark2022.parquet", index=False)
    code, out, err = command("report", store, "--out", tmp_path / "out", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)["sources"]
    own = json.loads(alone)["sources"]["own"]
    assert told["own"] == own
    assert told["clark2022"]["runs"] == 223
    assert set(told["clark2022"]["fits"]) == {"s-base", "rl-r", "hash"}
    assert told["clark2022"]["fits"]["hash"]["sizes"] == ["15M", "25M", "55M", "130M", "370M", "1.3B"]
    page = page_of(told)
    assert page.html.index("<h2>All runs</h2>") < page.html.index("<h2>Imported: clark2022</h2>")
    table = page.island("runs-table")
    source = [column["name"] for column in table["columns"]].index("source")
    counts = pd.Series([row[source] for row in table["rows"]]).value_counts()
    assert counts.to_dict() == {"clark2022": 223, "own": 21}
    assert "clark2022-1-explorer-view" in page.names
    assert "clark2022-1-load-maps" not in page.names
    assert (tmp_path / "out" / "tables" / "clark2022-1" / "laws.csv").is_file()


def test_an_imported_table_with_another_loss_says_so(command, store: Path, tmp_path: Path) -> None:
    (store / "imported").mkdir()
    models = [(n, e) for n in (1e6, 2e6) for e in (1, 2, 8)]
    rows = [(f"r{n:g}{e}", "hash" if e > 1 else "dense", e, n, 3 - e / 99 - n / 1e9) for n, e in models]
    frame = pd.DataFrame(rows, columns=["run_id", "router", "experts", "active_params", "loss_other"])
    RunTable.from_frame(frame, "x").frame.to_parquet(store / "imported" / "Odd Näme.parquet", index=False)
    code, out, _ = command("report", store, "--out", tmp_path / "out", "--json")
    assert code == 0
    assert json.loads(out)["sources"]["Odd Näme"]["target"] == "loss_other"
    assert "no loss_validation, so loss_other stands for it" in (tmp_path / "out" / "index.html").read_text()


def test_a_path_that_is_no_utf_8(command, store: Path, tmp_path: Path) -> None:
    odd = tmp_path / "losses\udcff.csv"
    command("runs", "export", store, "--out", tmp_path / "losses.csv")
    (tmp_path / "losses.csv").rename(odd)
    code, _, err = command("report", odd, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    assert r"losses\udcff.csv" in (tmp_path / "out" / "index.html").read_text()
