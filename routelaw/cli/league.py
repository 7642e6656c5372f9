"""`routelaw league`: every law on every table, by its error on runs it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routelaw.cli import options

if TYPE_CHECKING:
    from routelaw.runs.table import RunTable


def league(
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE…", help="Run tables, public tables of losses (`routelaw data list`), or stores."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write: index.html, league.csv, league.svg, league.png.")
    ] = None,
    law: Annotated[list[str] | None, typer.Option(help="Only these laws (repeatable).")] = None,
    target: Annotated[
        str | None, typer.Option(help="Which loss; a table that lacks it is judged on its first.", show_default="first")
    ] = None,
    where: options.Where = None,
    best_of: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Of runs that differ in these alone, the one of lowest loss, in tables that have all of them.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files in a folder that exists.")] = False,
    level: options.Level = 0.9,
    seed: options.Seed = None,
    plugin: options.Plugin = None,
    as_json: options.AsJson = False,
) -> None:
    """Rank scaling laws over tables: fitted to some of the runs, judged on sizes, lengths and compute held out."""
    options.use_one_thread()
    from routelaw.cli.output import print_json, progress, show
    from routelaw.cli.output import table as grid
    from routelaw.fitting.league import league as play
    from routelaw.fitting.validation import error_e4
    from routelaw.laws import get_law
    from routelaw.report.league import write_league
    from routelaw.report.page import check_target

    if out is not None:
        check_target(out, force)
    elif force:
        options.refuse_without_effect({"--force": force}, "without --out")
    own = options.load_laws(plugin or [])
    chosen = [get_law(name) for name in law or []]
    loaded = [_prepared(path, where, best_of, target) for path in tables]
    with progress(quiet=as_json) as bar:
        task = bar.add_task("fitting", total=None)
        found = play(
            loaded,
            laws=[*chosen, *own] if chosen else [],
            target=target,
            level=level,
            seed=seed or 0,
            progress=lambda done, total, what: bar.update(task, completed=done, total=total, description=what),
        )
    if out is not None:
        write_league(found, out, force=force)
    if as_json:
        print_json(found.as_dict() | {"page": str(out / "index.html") if out else None})
        return
    for name, router, split, standings in found.contests():
        head = f"{name}, {router}: {split.replace('_', ' ')} ({standings[0].held_out} points held out)"
        made = grid(head, "rank", "law", "error in log10 L, ×1e-4", "interval", "at bounds")
        for s in standings:
            ends = "–" if s.low != s.low else f"[{error_e4(s.low)}, {error_e4(s.high)}]"
            made.add_row(str(s.rank), s.law, error_e4(s.error), ends, s.at_bounds)
        show(made)
    overall = grid("Over all contests", "law", "error over the best", "mean rank", "contests")
    for name, behind, rank, contests in found.overall():
        overall.add_row(name, f"{behind:.2f}×", f"{rank:.1f}", str(contests))
    show(overall)
    for n in found.not_ranked:
        show(f"  not ranked: {n.law} on {n.table}, {n.router}: {n.reason}")
    if out is not None:
        show(str(out / "index.html"))


def _prepared(path: Path, where: list[str] | None, best_of: str | None, target: str | None) -> RunTable:
    from routelaw.runs.files import read_runs

    table = read_runs(path)
    columns = [name.strip() for name in (best_of or "").split(",") if name.strip()]
    searched = columns if set(columns) <= set(table.frame.columns) else []
    loss = target if target in table.losses else table.losses[0]
    return options.selected(table, where, ",".join(searched) if searched else None, loss)
