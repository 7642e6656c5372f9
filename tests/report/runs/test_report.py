"""The report: one whole page that says what is there, whatever is there, and runs nothing that a table holds."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from report_pages import Page, written
from synthetic_store import Ending, grid, make_spec, seeded, write_store

from routelaw.errors import InputError
from routelaw.laws import get_law
from routelaw.runs.files import write_runs
from routelaw.runs.table import RunTable

HOSTILE = "<b><img/src=x/onerror=alert(1)>"
"""In the one spelling that a router's name keeps; a browser would run it, and Plotly would swallow the <b>."""


@pytest.fixture
def few_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where laws are not the point, two are enough."""
    monkeypatch.setattr(
        "routelaw.report.runs.analysis.comparable_laws", lambda: [get_law("separable"), get_law("bilinear")]
    )


@pytest.fixture
def no_stills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routelaw.report.runs.report.draw_static_figures", lambda source, folder: [])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Three sizes, two routers, three E, one run that failed, one that diverged, one that was stopped."""
    folder = tmp_path_factory.mktemp("report")
    specs = [*grid(), *seeded(grid(sizes=("0.2M",), routers=("hash",)), 1)]
    endings = {
        make_spec("0.8M", "s-base", 4).run_id: Ending("failed", "out of memory"),
        make_spec("0.2M", "s-base", 2).run_id: Ending("diverged"),
        make_spec("0.2M", "hash", 8, seed=1).run_id: Ending("stopped"),
    }
    return written(write_store(folder / "store", specs, endings=endings), folder / "out")


def test_everything_is_in_one_file_and_every_link_leads_somewhere(page: Page) -> None:
    for tag, attributes in page.parsed.tags:
        for name in ("src", "href", "srcset", "action"):
            address = attributes.get(name)
            if address is None or address.startswith(("data:", "#")):
                continue
            assert tag == "a"
            assert (page.folder / address).is_file()
    anchors = {attributes.get("id") for _, attributes in page.parsed.tags}
    assert {a["href"][1:] for t, a in page.parsed.tags if t == "a" and a["href"].startswith("#")} <= anchors
    assert len(page.html) < 15e6


def test_the_browser_is_told_to_run_these_scripts_and_no_others(page: Page) -> None:
    policy = next(a["content"] for t, a in page.parsed.tags if t == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    scripts = re.findall(r"<script>(.*?)</script>", page.html, re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


def test_the_parts_stand_in_their_order(page: Page) -> None:
    titles = re.findall(r"<h2>(.*?)</h2>", page.html)
    assert titles == [
        "Loss against experts", "Summary", "Advice", "Explorer", "Laws compared", "Effective parameters",
        "The slope in log E", "Training curves", "Expert load and drops", "Figures of the paper", "All runs",
    ]  # fmt: skip
    assert page.names == [
        "losses-chart", "explorer-view", "laws-chart", "effective-chart", "slopes-chart", "curves-chart", "load-maps",
        "runs-table",
    ]  # fmt: skip


def test_the_words_tell_what_was_trained_and_what_went_wrong(page: Page) -> None:
    for words in (
        "25 runs: 22 finished, 1 stopped, 1 diverged and 1 failed.",
        "3 sizes (0.2M, 0.5M, 0.8M)",
        "E = 2 to 8",
        "4 models of 21 with 2 seeds",
        "S-BASE 0.8M, E = 4",
        "failed: out of memory.",
        "diverged: the loss or its gradient stopped being finite before step 500.",
        "S-BASE is clearly better than HASH",
    ):
        assert words in page.text, words
    assert page.summary["sources"]["own"]["order"] == ["s-base", "hash"]


def test_figures_and_tables_lie_beside_the_page(page: Page) -> None:
    names = {str(p.relative_to(page.folder)) for p in page.folder.rglob("*.*")}
    drawn = ("curves", "expert_load", "losses", "laws", "effective", "slopes")
    assert {f"figures/{n}.{k}" for n in drawn for k in ("svg", "png")} <= names
    runs = pd.read_csv(page.folder / "tables" / "runs.csv").set_index("run_id")
    assert len(runs) == 25
    failed = runs.loc[make_spec("0.8M", "s-base", 4).run_id]
    assert (failed["status"], failed["reason"], failed["experts"]) == ("failed", "out of memory", 4)
    laws = pd.read_csv(page.folder / "tables" / "laws.csv")
    assert set(laws["technique"]) == {"s-base", "hash"}


@pytest.mark.usefixtures("few_laws")
def test_a_hostile_name_stays_text_everywhere(tmp_path: Path) -> None:
    def told(router: str, run: str, size: str, status: str) -> Page:
        rows = []
        for active in (1e6, 4e6, 16e6):
            for name, experts in (("dense", 1), (router, 2), (router, 8), ("hash", 2), ("hash", 8)):
                for step in (1, 2):
                    loss = 4 - 0.1 * np.log10(active) - 0.05 * experts**0.3 + (0.01 if name == "hash" else 0) - step / 9
                    cells = {"run_id": f"{run}-{name}-{active:g}-{experts}", "router": name, "experts": experts}
                    cells |= {"active_params": active, "step": step, "loss_validation": loss, "status": "finished"}
                    rows.append({**cells, "size": f"{size}{active:g}", "variant": "", "tokens": step * 100})
        rows[-1]["status"] = status
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        write_runs(RunTable.from_frame(pd.DataFrame(rows), "made"), folder / "runs.csv")
        return written(folder / "runs.csv", folder / "out")

    harmless = told("mine", "run", "size", "odd")
    hostile = told(HOSTILE, f"{HOSTILE}</script>", f"</td>{HOSTILE}$_{{x}}$", f"{HOSTILE}'\"")
    assert [t for t, _ in hostile.parsed.tags] == [t for t, _ in harmless.parsed.tags]
    assert not any(name.startswith("on") for _, attributes in hostile.parsed.tags for name in attributes)
    for name in hostile.names:
        island = re.search(f'id="{name}-data">(.*?)</script>', hostile.html, re.DOTALL)[1]
        assert "<" not in island
        json.loads(island)
    for trace in hostile.island("losses-chart")["traces"]:
        assert not any("<" in text for text in trace["text"])


ODD = {
    "one run": ([make_spec("0.2M", "s-base", 4)], {}, "S-BASE is the only routed technique here"),
    "dense alone": (grid(routers=()), {}, "There is no finished routed run: nothing to compare yet."),
    "one size": (grid(sizes=("0.2M",)), {}, "S-BASE has no law: it was trained at one size only (0.2M)"),
    "two sizes": (grid(sizes=("0.2M", "0.8M")), {}, "the sizes are too few to tell laws apart"),
    "two E": (grid(experts=(4,)), {}, "Law separable"),
    "no dense": ([s for s in grid() if s.router.name != "dense"], {}, "There is no dense run of the same size"),
    "a router of one's own": (grid(routers=("mine", "hash")), {}, "mine is clearly better than HASH"),
}


QUICK = ("one run", "dense alone", "no dense")


@pytest.mark.usefixtures("few_laws")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in ODD])
def test_odd_stores_have_a_page_too(tmp_path: Path, name: str) -> None:
    specs, endings, said = ODD[name]
    page = written(write_store(tmp_path / "store", specs, endings=endings), tmp_path / "out")
    assert said in page.text
    assert len(page.island("runs-table")["rows"]) == len(specs)
    assert "curves-chart" in page.names
    assert "nan" not in page.text.lower().split()


@pytest.mark.usefixtures("few_laws")
@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_runs_that_were_never_evaluated(tmp_path: Path, status: str) -> None:
    specs = grid(sizes=("0.2M",))
    endings = {spec.run_id: Ending(status, "no luck") for spec in specs}
    store = write_store(tmp_path / "store", specs, endings=endings, evaluations=0)
    page = written(store, tmp_path / "out")
    assert "No run has been evaluated yet" in page.text
    assert {row[-1] is None for row in page.island("runs-table")["rows"]} == {False}, "time comes from the log"
    assert page.island("load-maps")["runs"]


def test_nothing_to_report_on(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    for path, said in ((tmp_path / "store", "without runs"), (tmp_path / "none", "no such file")):
        with pytest.raises(InputError, match=said):
            written(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("few_laws", "no_stills")
def test_a_damaged_log_or_spec_costs_its_run_a_picture_and_no_more(tmp_path: Path) -> None:
    specs = grid()
    store = write_store(tmp_path / "store", specs)
    routed = [spec for spec in specs if spec.router.name != "dense"]
    (store / routed[0].run_id / "log.jsonl").write_text('{"step": 1, "layers"')
    (store / routed[1].run_id / "spec.json").write_text("{")
    page = written(store, tmp_path / "out")
    shown = {run["run"] for run in page.island("load-maps")["runs"]}
    assert routed[0].run_id not in shown
    assert {spec.run_id for spec in routed[2:]} <= shown
    assert len(page.island("runs-table")["rows"]) == len(specs)


@pytest.mark.usefixtures("few_laws", "no_stills")
def test_runs_of_another_corpus_or_recipe_are_set_aside(tmp_path: Path) -> None:
    specs = grid()
    faster = [replace(spec, train=replace(spec.train, learning_rate=1e-2)) for spec in specs[:3]]
    elsewhere = [replace(spec, corpus="beef" * 16) for spec in specs[:2]]
    plain = written(write_store(tmp_path / "plain", specs), tmp_path / "out")
    mixed = written(write_store(tmp_path / "mixed", [*specs, *faster, *elsewhere]), tmp_path / "out2")
    assert "2 runs of another corpus" in mixed.text
    assert "3 runs of models that were also trained under the recipe of most runs" in mixed.text
    assert mixed.summary["sources"]["own"]["fits"] == plain.summary["sources"]["own"]["fits"]
