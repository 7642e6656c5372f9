"""`routelaw data`: public tables of losses, the paper's released one first, listed, fetched and found."""

from pathlib import Path
from typing import Annotated

import typer

from routelaw.cli.output import say

app = typer.Typer(help="Public tables of losses: list, fetch and find them.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="A table of `routelaw data list`.")]


@app.command("list")
def list_tables(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """List the tables that can be fetched, with source, licence and hash, and those that are only recognised."""
    from dataclasses import asdict

    from routelaw.cli.output import print_json, show, table
    from routelaw.runs.fetch import released_tables
    from routelaw.runs.public import public_tables

    released = released_tables()
    others = {name: found for name, found in public_tables().items() if name not in released}
    if as_json:
        rows = [{**asdict(r), "path": str(r.kept), "present": r.found() is not None} for r in released.values()]
        recognised = [{"name": t.name, "title": t.title, "license": t.license} for t in others.values()]
        print_json({"tables": rows, "recognised": recognised})
        return
    made = table("", "name", "losses", "licence", "fetched")
    for name, entry in released.items():
        made.add_row(name, entry.title, entry.license, "yes" if entry.found() else "no")
    made.columns[1].justify = made.columns[2].justify = "left"
    show(made, "Where `routelaw data fetch NAME` gets them, and the sha256 that it expects:")
    for entry in released.values():
        show(f"  {entry.name} ({entry.sha256[:12]}…)")
        say(f"    {entry.url}")  # in one piece, however narrow the terminal
    show("Not fetched, but recognised where you have a copy:")
    for entry in others.values():
        show(f"  {entry.name}: {entry.title} (licence: {entry.license})")


@app.command()
def fetch(
    name: Name = "clark2022",
    to: Annotated[Path | None, typer.Option(help="Directory to put it in, instead of the cache.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write, instead of the cache.")] = None,
    url: Annotated[str | None, typer.Option(help="A mirror to fetch from.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The hash to expect from a mirror with another version.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Download a table, the paper's unless named, and check its hash; a broken download is continued.

    It is its authors', under the licence that `routelaw data list` names.
    """
    import json
    import re

    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    from routelaw.cli.output import progress
    from routelaw.errors import InputError
    from routelaw.formatting import shortened
    from routelaw.runs.fetch import fetch_released, released_table

    if to and out:
        raise InputError("Give either --to (a directory) or --out (a file), not both.")
    wanted = released_table(name)
    expected = wanted.sha256 if sha256 is None else sha256.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise InputError(f"--sha256 takes 64 hexadecimal digits, not {shortened(expected)!r}.")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with progress(*columns, quiet=as_json) as bar:
        task = bar.add_task(wanted.title, total=None)
        path = fetch_released(
            to / wanted.file_name if to else out,
            wanted.url if url is None else url,
            expected,
            released=wanted,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        typer.echo(json.dumps({"path": str(path), "bytes": path.stat().st_size, "sha256": expected}))
    else:
        say(str(path))


@app.command()
def where(
    name: Name = "clark2022", as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False
) -> None:
    """Say where a cached table is, the paper's unless named, or where it would be."""
    import json

    from routelaw.runs.fetch import released_table

    wanted = released_table(name)
    found = wanted.found()
    if as_json:
        typer.echo(json.dumps({"path": str(wanted.kept), "present": found is not None}))
    elif found:
        say(str(found))
    else:
        command = "routelaw data fetch" if name == "clark2022" else f"routelaw data fetch {name}"
        say(f"{wanted.kept} (not there yet: run `{command}`)")
