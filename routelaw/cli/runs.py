"""`routelaw runs`: what a store holds; take out, bring in, compare, remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from routelaw.cli.output import note, say
from routelaw.formatting import printable

app = typer.Typer(help="List, show, compare, export, import and remove the runs of a store.", no_args_is_help=True)

StorePath = Annotated[Path, typer.Argument(help="A folder of runs, as `routelaw sweep` makes.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]


@app.command("list")
def list_(
    store: StorePath = Path("runs"),
    where: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=VALUE", help="router=s-base,hash or status=failed (repeatable).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """One row per run: its own and imported ones."""
    import pandas as pd

    from routelaw.cli.output import print_json, show, table
    from routelaw.errors import InputError
    from routelaw.runs.listing import filtered, list_runs

    wanted = {}
    for item in where or []:
        name, given, value = item.partition("=")
        if not given:
            raise InputError(f"--where takes field=value, such as router=s-base, not {item!r}.")
        wanted[name.strip()] = value
    rows = filtered(list_runs(_store(store), note), wanted)
    if as_json:
        print_json([{k: None if v != v else v for k, v in row.items()} for row in rows.to_dict("records")])
        return
    made = table(
        f"{len(rows)} runs in {store}", "id", "router", "size", "E", "K", "R", "seed", "status", "step", "loss"
    )
    for row in rows.to_dict("records"):
        name = f"{row['router']} {row['variant']}".strip() + (f" ({row['source']})" if row["source"] != "own" else "")
        loss = row["loss_validation"]
        step = "–" if pd.isna(row["step"]) else row["step"]  # a table of losses alone has no steps
        figures = (row["experts"], row["k"], f"{row['routing_frequency']:g}", row["seed"], row["status"], step)
        made.add_row(row["run_id"], name, row["size"], *map(str, figures), "–" if pd.isna(loss) else f"{loss:.4f}")
    show(made)


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="Its id, or the beginning of it.")],
    store: Annotated[Path, typer.Option(help="A folder of runs.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """One run: what it is, how it went, where it lies."""
    from routelaw.cli import output
    from routelaw.runs.store import OUTPUT
    from routelaw.specs.files import to_mapping
    from routelaw.specs.run import describe, meaning_of

    found = _store(store).find(run)
    last = found.last_logged()
    if as_json:
        output.print_json(
            {
                "run_id": found.run_id,
                "status": found.status,
                "folder": str(found.folder),
                "spec": to_mapping(found.spec),
                "result": found.result,
                "failure": found.failure,
                "last_logged": last,
            }
        )
        return
    output.show(f"{found.run_id}: {describe(found.spec)}, {found.status}", f"  folder   {found.folder}")
    for name, values in meaning_of(found.spec).items():
        output.show(f"  {name:<8} {values if isinstance(values, str) else _flat(values)}")
    if found.result:
        output.show(f"  result   {_flat(found.result)}")
    elif last:
        loss = f": loss {last['loss']:.4f}" if "loss" in last else ""
        output.show(f"  at step  {last['step']:,}{loss}")
    if found.failure:
        output.show(f"  failed   {found.failure.get('reason', 'without a reason')} (log: {found.folder / OUTPUT})")


@app.command()
def diff(
    one: Annotated[str, typer.Argument(help="A run's id, or the beginning of it.")],
    other: Annotated[str, typer.Argument(help="Another.")],
    store: Annotated[Path, typer.Option(help="A folder of runs.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """The fields in which two runs differ."""
    from routelaw.cli.output import print_json
    from routelaw.specs.files import differences

    kept = _store(store)
    found = differences(kept.find(one).spec, kept.find(other).spec)
    if as_json:
        print_json(found)
    else:
        for line in found or ["they are the same run."]:
            say(line)


@app.command()
def export(
    store: StorePath = Path("runs"),
    out: Annotated[Path, typer.Option(help="File to write: .csv (also .gz, .xz, .zst) or .parquet.")] = Path(
        "runs.csv"
    ),
    everything: Annotated[bool, typer.Option("--all", help="Imported runs too, with a column from_table.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """The run table: one row per run and evaluation, as `fit`, `compare` and `report` read it. Of a store, or of the
    folder of one run."""
    from routelaw.runs.files import read_runs, write_runs
    from routelaw.runs.listing import export_table

    table = read_runs(store) if _is_run(store) else export_table(_store(store), everything=everything)
    write_runs(table, out, force=force)
    say(f"{out}: {table.frame['run_id'].nunique()} runs, {len(table.frame)} rows")


@app.command("import")
def import_(
    table: Annotated[Path, typer.Argument(help="A run table; the paper's release is recognised.")],
    store: Annotated[Path, typer.Option(help="A folder of runs; made if it is not there.")] = Path("runs"),
    name: Annotated[str | None, typer.Option(help="What to call it; the file's name unless given.")] = None,
) -> None:
    """Keep other people's runs beside one's own. They are shown together and never fitted together."""
    from routelaw.errors import InputError
    from routelaw.runs.files import read_runs
    from routelaw.runs.listing import import_table
    from routelaw.runs.store import Store

    if _is_run(store):
        raise InputError(f"{store} is the folder of one run; give the folder of a store.")
    called = name or table.name.partition(".")[0]
    read = read_runs(table)
    count = import_table(Store(store), read, called)
    for warning in read.warnings:
        note(warning, "warning")
    say(f"{count} runs of {table} are in {store} as {called}")


@app.command()
def remove(
    runs: Annotated[list[str], typer.Argument(help="Ids, whole.")],
    store: Annotated[Path, typer.Option(help="A folder of runs.")] = Path("runs"),
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
) -> None:
    """Remove runs for good, with their checkpoints and attempts; also an imported table, by its name."""
    kept = _store(store)
    for name in runs:
        kept.check_removable(name)
    if not yes and not typer.confirm(printable(f"Remove {', '.join(runs)} from {store} for good?")):
        raise typer.Exit(1)
    for name in dict.fromkeys(runs):
        kept.remove(name)
    say(f"removed {', '.join(runs)}")


def _store(path: Path):
    from routelaw.errors import InputError
    from routelaw.runs.store import Store

    if not path.is_dir():
        raise InputError(f"{path}: there is no such folder of runs.")
    if _is_run(path):
        raise InputError(f"{path} is the folder of one run; give the folder that it lies in, {path.resolve().parent}.")
    return Store(path)


def _is_run(path: Path) -> bool:
    from routelaw.runs.folders import EVALUATIONS

    return (path / EVALUATIONS).exists()


def _flat(values: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())
