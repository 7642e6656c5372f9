"""How results are printed: tables for people, JSON for machines. JSON has no infinity: it is written as null.

Names in tables, paths and messages come from files, and files from anywhere: whatever is printed for people goes
through `printable`, and Rich's markup (`[red]`) is never taken for markup.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from routelaw.formatting import finite, number, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.progress import Progress

    from routelaw.cli.plain_table import PlainTable
    from routelaw.fitting.intervals import Interval

PIPE_WIDTH = 160


def print_json(value: Any) -> None:
    text = json.dumps(finite(value), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair: a file name that is no UTF-8
        text = json.dumps(finite(value))
    typer.echo(text)


def say(sentence: str) -> None:
    typer.echo(printable(sentence))


def note(sentence: str, kind: str = "note") -> None:
    """A remark beside the result, on stderr: `note: …`, `warning: …`."""
    typer.echo(f"{kind}: {printable(sentence)}", err=True)


def table(title: str, *columns: str) -> PlainTable:
    """A table whose first column is text and whose others are figures. Cells are text: markup in them is shown."""
    from routelaw.cli.plain_table import PlainTable

    return PlainTable(title, *columns)


def show(*renderables: Any) -> None:
    """Print tables and sentences. Into a file or pipe the width is fixed and generous, so that no name is cut."""
    import sys

    from rich.console import Console

    from routelaw.cli.plain_table import PlainTable

    if sys.stdout is None:  # closed by whoever called: there is nobody to show it to
        return
    terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if terminal else PIPE_WIDTH, soft_wrap=not terminal)
    for item in renderables:
        if isinstance(item, str):
            console.print(printable(item), markup=False)
        elif not (isinstance(item, PlainTable) and item.write_long(console)):
            console.print(item)


def progress(*columns: Any, quiet: bool = False) -> Progress:
    """A bar on stderr that leaves nothing behind; silent where nobody watches (a pipe, `--json`)."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def followed(steps: Iterable[Any], *columns: Any, quiet: bool = False) -> dict[str, Any]:
    """Go through the steps of a report under a progress bar; the summary that the last one carries."""
    summary: dict[str, Any] = {}
    with progress(*columns, quiet=quiet) as bar:
        task = bar.add_task("reading", total=None)
        for step in steps:
            bar.update(task, completed=step.done, total=step.total, description=step.what)
            summary = step.summary
    return summary


def span(low: float, high: float) -> str:
    return f"[{number(low)}, {number(high)}]"


def known(interval: Interval | None) -> str:
    """An interval with open ends written as such."""
    if interval is None:
        return "–"
    low = "(…" if interval.open_low else f"[{number(interval.low)}"
    high = "…)" if interval.open_high else f"{number(interval.high)}]"
    return f"{low}, {high}"


def error_e4(value: float | None) -> str:
    """An error in log10 L, in units of 1e-4."""
    return "–" if value is None else f"{value * 1e4:.1f}"
