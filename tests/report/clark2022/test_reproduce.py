"""The whole reproduction: what is written, and that nothing is when it cannot be."""

import csv
import json
import re
from collections import Counter
from dataclasses import replace

import pytest
from matplotlib.figure import Figure as Drawing

from routelaw.errors import InputError
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.report.clark2022 import BUILDERS
from routelaw.report.clark2022 import reproduce as module
from routelaw.report.clark2022.pages import build_page
from routelaw.report.clark2022.reproduce import released_runs, reproduce

HOSTILE = "<script>alert(1)</script>"


def draw(table) -> Drawing:
    picture = Drawing(figsize=(2, 1))
    picture.subplots().plot([1, 2], [1, 2])
    return picture


def refuse(table) -> Drawing:
    raise CannotDraw("no such runs.")


FIGURES = [
    Figure("one", "One", "A line.", draw, "fig:one", on_release="Only here."),
    Figure("two", HOSTILE, "Not drawn.", refuse),
]


@pytest.fixture
def quick(monkeypatch, built):
    """Tables from the session's, two toy figures, one process."""
    monkeypatch.setattr(module, "BUILDERS", {name: lambda runs, name=name: built(name) for name in BUILDERS})
    monkeypatch.setattr(module, "all_figures", lambda: FIGURES)


@pytest.mark.long
def test_everything_is_written_and_agrees(quick, released_path, tmp_path):
    out = tmp_path / "out"
    steps = list(reproduce(released_path, out, workers=1))
    summary = steps[-1].summary
    assert [step.done for step in steps] == list(range(1, steps[-1].total + 1))
    assert sorted(p.name for p in out.iterdir()) == ["figures", "index.html", "summary.json", "tables"]
    assert sorted(p.name for p in (out / "figures").iterdir()) == ["one.png", "one.svg"]
    written = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert {**written, "page": str(out / "index.html")} == summary
    assert written["not_drawn"] == {HOSTILE: "no such runs."}

    total: Counter[str] = Counter()
    for name, entry in written["tables"].items():
        with (out / entry["file"]).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0])[:8] == ["table", "row", "column", "printed", "ours", "difference", "verdict", "convention"]
        assert {row["table"] for row in rows} == {name}
        assert len(rows) == entry["cells"]
        assert dict(Counter(row["verdict"] for row in rows)) == entry["verdicts"]
        assert all(row["convention"] for row in rows)
        assert all(row["difference"] for row in rows if row["printed"] and row["ours"])
        total.update(row["verdict"] for row in rows)
    assert dict(total) == written["verdicts"]

    html = (out / "index.html").read_text(encoding="utf-8")
    assert HOSTILE not in html
    assert "A line. Only here." in html
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", html)
    assert all(entry["title"].replace("&", "&amp;") in html for entry in written["tables"].values())
    for link in re.findall(r'href="#([^"]+)"', html):
        assert f'id="{link}"' in html


@pytest.mark.long
def test_a_table_from_elsewhere_cannot_write_into_the_page(built, released):
    tables = {name: built(name) for name in BUILDERS}
    first = tables["claims"]
    cells = (replace(first.cells[0], row=HOSTILE, note=HOSTILE), *first.cells[1:])
    tables["claims"] = replace(first, cells=cells, reading=HOSTILE, convention=HOSTILE)
    html = build_page(replace(released, source=HOSTILE, notes=(HOSTILE,)), tables, [], [(HOSTILE, HOSTILE)])
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 6


def test_without_data_it_says_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match=r"routelaw data fetch.*--data"):
        list(reproduce(None, tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_other_tables_are_refused(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("run_id,router,experts,active_params,loss_validation\n1,dense,1,1000,3.0\n")
    with pytest.raises(InputError, match="223 runs"):
        released_runs(table)
    with pytest.raises(InputError, match="no such file"):
        list(reproduce(tmp_path / "none.csv", tmp_path / "out"))
    assert [p.name for p in tmp_path.iterdir()] == ["mine.csv"]


def test_an_existing_folder_is_refused_before_any_work(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("mine")
    with pytest.raises(InputError, match="--force"):
        list(reproduce(tmp_path / "none.csv", out))
    assert [p.name for p in out.iterdir()] == ["mine"]


def test_a_failure_in_a_table_leaves_nothing_behind(monkeypatch, quick, released_path, tmp_path):
    def broken(runs):
        raise InputError("broken.")

    monkeypatch.setattr(module, "_groups", lambda: [(module.BuildTask("table", "dense_scaling"),)])
    monkeypatch.setitem(module.BUILDERS, "dense_scaling", broken)
    with pytest.raises(InputError, match="broken"):
        list(reproduce(released_path, tmp_path / "deep" / "out", workers=1))
    assert list(tmp_path.iterdir()) == []


def test_unwritable_output(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        list(reproduce(None, tmp_path / "file" / "out"))


def test_two_processes_do_what_one_does(monkeypatch, released, tmp_path):
    groups = [(module.BuildTask("table", "dense_scaling"),), (module.BuildTask("table", "architectures"),)]
    alone = {task.name: table for task, table in module._results(groups, released, tmp_path, workers=1)}
    shared = {task.name: table for task, table in module._results(groups, released, tmp_path, workers=2)}
    assert alone == shared
