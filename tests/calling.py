"""The command line, called in this process as a shell would call it."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from routelaw.cli.main import main


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def called(words: Iterable[object], monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> Outcome:
    """`captured`: capsys, or capfd for what processes say that the command starts, too."""
    monkeypatch.setattr(sys, "argv", ["routelaw", *map(str, words)])
    captured.readouterr()
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    return Outcome(code, *captured.readouterr())


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable:
    """`command("fit", path, "--json")`: exit code, stdout and stderr. There is no cached table, and no plugin stays."""
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "cache-that-is-not-there"))
    monkeypatch.setattr("routelaw.laws._plugins", {})
    return lambda *words: called(words, monkeypatch, capsys)
