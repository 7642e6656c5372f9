"""`routelaw data`: the paper's released losses, fetched and found."""

from pathlib import Path
from typing import Annotated

import typer

from routelaw.cli.output import say

app = typer.Typer(help="Fetch and find the losses released with the paper.", no_args_is_help=True)


@app.command()
def fetch(
    to: Annotated[Path | None, typer.Option(help="Directory to put it in, instead of the cache.")] = None,
    out: Annotated[Path | None, typer.Option(help="File to write, instead of the cache.")] = None,
    url: Annotated[str | None, typer.Option(help="A mirror to fetch from.")] = None,
    sha256: Annotated[str | None, typer.Option(help="The hash to expect from a mirror with another version.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Download the released losses (337 kB, CC-BY 4.0) and check their hash; a broken download is continued."""
    import json
    import re

    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    from routelaw.cli.output import progress
    from routelaw.errors import InputError
    from routelaw.formatting import shortened
    from routelaw.runs.fetch import FILE_NAME, RELEASED_SHA256, RELEASED_URL, fetch_released

    if to and out:
        raise InputError("Give either --to (a directory) or --out (a file), not both.")
    expected = RELEASED_SHA256 if sha256 is None else sha256.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise InputError(f"--sha256 takes 64 hexadecimal digits, not {shortened(expected)!r}.")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with progress(*columns, quiet=as_json) as bar:
        task = bar.add_task("released losses", total=None)
        path = fetch_released(
            to / FILE_NAME if to else out,
            RELEASED_URL if url is None else url,
            expected,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        typer.echo(json.dumps({"path": str(path), "bytes": path.stat().st_size, "sha256": expected}))
    else:
        say(str(path))


@app.command()
def where(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Say where the cached table is, or where it would be."""
    import json

    from routelaw.runs.fetch import cache_path, find_released

    found = find_released()
    if as_json:
        typer.echo(json.dumps({"path": str(cache_path()), "present": found is not None}))
    elif found:
        say(str(found))
    else:
        say(f"{cache_path()} (not there yet: run `routelaw data fetch`)")
