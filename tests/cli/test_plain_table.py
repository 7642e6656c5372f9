"""Long tables, written line by line, against what Rich writes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from routelaw.cli.plain_table import LONG, PlainTable


def made(rows: int, title: str = "runs in [red]store") -> PlainTable:
    table = PlainTable(title, "id", "router", "E", "loss")
    for number in range(rows):
        table.add_row(f"run {number}", "s-base (Ünïcode – 漢字)" if number % 7 else "", str(number), "[bold]3.14")
    return table


def written(table: PlainTable, width: int, *, terminal: bool, long: bool) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, highlight=False, legacy_windows=False)
    if long:
        assert table.write_long(console)
    else:
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "title", ["", "runs in [red]store", "a title that is longer than all of the columns together: " * 2]
)
def test_the_same_characters(terminal: bool, title: str) -> None:
    by_line, by_rich = (written(made(LONG, title), 160, terminal=terminal, long=long) for long in (True, False))
    assert by_line == by_rich


def test_what_is_short_or_would_not_fit_is_left_to_rich() -> None:
    console = Console(file=io.StringIO(), width=30)
    assert not made(LONG).write_long(console)
    assert not made(LONG - 1).write_long(Console(file=io.StringIO(), width=160))
    assert made(3).row_count == 3
