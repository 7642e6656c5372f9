"""The section "Advice" of the report says what `rl.advise` says of the same runs, and nothing where none are routed."""

import html

import pytest
from report_pages import written
from synthetic_store import grid, write_store

import routelaw as rl
from routelaw.fitting.advice.result import sentence_of


@pytest.fixture(autouse=True)
def no_stills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routelaw.report.runs.report.draw_static_figures", lambda source, folder: [])
    monkeypatch.setattr("routelaw.report.runs.analysis.comparable_laws", lambda: [rl.get_law("separable")])


def test_every_finding_and_remark_stands_in_the_page(tmp_path) -> None:
    store = write_store(tmp_path / "store", grid())
    page = written(store, tmp_path / "out")
    advice = rl.advise(rl.read_runs(tmp_path / "store"))
    text = html.unescape(page.html)
    for each in advice.recommendations:
        assert f"{each.number}. {each.title}" in text
        for sentence in [*map(sentence_of, each.findings), *each.remarks, each.paper]:
            assert sentence in text


def test_dense_runs_alone_have_no_advice(tmp_path) -> None:
    store = write_store(tmp_path / "store", grid(routers=()))
    assert "<h2>Advice</h2>" not in written(store, tmp_path / "out").html
