"""`routelaw reproduce`: JSON for machines, a table of verdicts for people."""

import json

import pytest
import typer
from typer.testing import CliRunner

from routelaw.cli.report import reproduce
from routelaw.errors import InputError
from routelaw.report.clark2022 import reproduce as module
from routelaw.report.page import ReportProgress

SUMMARY = {
    "verdicts": {"matches": 2, "not reproducible from the release": 1, "ours": 4},
    "tables": {
        "one": {"title": "Table One", "verdicts": {"matches": 2, "not reproducible from the release": 1}},
        "two": {"title": "Table Two", "verdicts": {"ours": 4}},
    },
    "figures": {"f": {}},
    "not_drawn": {"Figure G": "no such runs."},
    "findings": ["Of 3 printed numbers …"],
    "page": "out/index.html",
}


@pytest.fixture
def run(monkeypatch):
    steps = [ReportProgress(1, 2, "a"), ReportProgress(2, 2, "b", SUMMARY)]
    monkeypatch.setattr(module, "reproduce", lambda data, out, force: iter(steps))
    app = typer.Typer()
    app.command()(reproduce)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_json_is_the_summary(run):
    result = run("--out", "out", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == SUMMARY


def test_people_get_counts_what_was_not_drawn_and_where_the_page_is(run):
    said = run("--out", "out").stdout
    for words in ("Table One", "not in release", "Figure G: no such runs.", "1 figures. Page: out/index.html"):
        assert words in said
    assert "Table Two" not in said


def test_bad_input_is_the_users_to_mend(run, monkeypatch):
    def refuse(data, out, force):
        raise InputError("no released losses found.")

    monkeypatch.setattr(module, "reproduce", refuse)
    assert isinstance(run("--out", "out").exception, InputError)
