"""`routelaw reproduce`: the paper's tables and figures from its released losses, printed | ours | verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from routelaw.cli import options


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder to write: index.html, tables/, figures/, summary.json.")],
    data: Annotated[
        Path | None, typer.Option(help="The released table; by default the one `routelaw data fetch` keeps.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files in a folder that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
) -> None:
    """Recompute the paper's tables and redraw its figures from the released losses: printed, ours, verdict."""
    options.use_one_thread()
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from routelaw.cli.output import followed, print_json
    from routelaw.report.clark2022.reproduce import reproduce as steps

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    summary = followed(steps(data, out, force=force), *columns, quiet=as_json)
    if as_json:
        print_json(summary)
    else:
        _show(summary)


def _show(summary: dict) -> None:
    from routelaw.cli.output import show, table

    judged = [verdict for verdict in summary["verdicts"] if verdict != "ours"]
    short = {"not reproducible from the release": "not in release"}
    made = table("Printed against ours", "table", *(short.get(v, v) for v in judged))
    for entry in summary["tables"].values():
        counts = entry["verdicts"]
        if "ours" not in counts:
            made.add_row(entry["title"], *(str(counts.get(v) or "·") for v in judged))
    made.add_section()
    made.add_row("all", *(str(summary["verdicts"][v]) for v in judged))
    show(made, *(f"not drawn: {title}: {why}" for title, why in summary["not_drawn"].items()))
    show(summary["findings"][0], f"{len(summary['figures'])} figures. Page: {summary['page']}")
