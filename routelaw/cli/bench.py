"""`routelaw bench`: how fast things are on this machine, as ratios against named baselines."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli import options

if TYPE_CHECKING:
    from routelaw.bench.results import Table

MODELS = "models"
"""The table that has sizes."""


def bench(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help="sinkhorn, layer, experts, attention, models, cpu, analysis; all unless given.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny shapes, to see that it works; times mean little.")
    ] = False,
    sizes: Annotated[
        list[str] | None, typer.Option(help="Model sizes of the table models, e.g. 130M,370M (repeatable).")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any option of a table: layer.experts=[8,64] (repeatable).")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Append each table to a file of results, as one line of JSON.")
    ] = False,
    results: Annotated[Path | None, typer.Option(help="That file.", show_default="benchmarks/results.jsonl")] = None,
    limit: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds after which a table ends with the rows that it has.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure Sinkhorn, a routed layer, its cost against E, attention and whole models, each against a baseline.

    On a GPU at the published shapes, compiled, which takes many minutes. On a CPU eager, at shapes that take
    some ten minutes in all on two cores.
    """
    from routelaw.cli.output import print_json, show
    from routelaw.errors import InputError

    if record and quick:
        raise InputError("times of --quick mean little: leave out --record.")
    options.refuse_without_effect({"--results": None if record else results}, "without --record")
    wanted = _asked(tables or [])
    given = _given(wanted, sizes or [], set_ or [])
    from routelaw.bench import measured, preset
    from routelaw.bench.clock import CUDA
    from routelaw.bench.results import RESULTS, ResultsFile, kept

    chosen = {name: preset(name, quick, **given.get(name, {})) for name in wanted}
    if MODELS in chosen:
        from routelaw.bench.models import check_room

        check_room(chosen[MODELS])  # before the minutes that other tables take
    file = ResultsFile(results or RESULTS) if record else None
    follow = partial(kept, seconds=limit) if record or limit else iter
    if not as_json:
        show(_words(quick, CUDA))
    done = []
    for name, asked in chosen.items():
        table = measured(name, asked, follow)
        done.append(table)
        if file:
            file.append_table(table)
        if not as_json:
            _show(table)
    if as_json:
        print_json({"quick": quick, "tables": [table.as_json() for table in done]})


def _asked(names: list[str]) -> list[str]:
    """In the order given, each once; all if there are none."""
    from routelaw.bench import TABLES
    from routelaw.cli.options import one_of

    return list(dict.fromkeys(one_of(name, TABLES, "routelaw bench") for name in names)) or list(TABLES)


def _given(wanted: list[str], sizes: list[str], settings: list[str]) -> dict[str, dict[str, Any]]:
    """Options by table. Sizes are looked up here, so that a wrong one is said before anything is measured."""
    from routelaw.cli.options import one_of, settings_of
    from routelaw.errors import InputError
    from routelaw.specs.sizes import get_size

    given: dict[str, dict[str, Any]] = {}
    for name, value in settings_of(settings).items():
        table, _, option = name.partition(".")
        given.setdefault(one_of(table, tuple(wanted), "--set"), {})[option] = value
    if sizes and MODELS not in wanted:
        raise InputError(f"--sizes is for the table {MODELS}, which is not among {', '.join(wanted)}: name it, too.")
    if names := [name.strip() for listed in sizes for name in listed.split(",")]:
        given.setdefault(MODELS, {})["sizes"] = names
    for name in names:
        get_size(name)
    return given


def _words(quick: bool, cuda: bool) -> str:
    if quick:
        return "Tiny shapes, to see that it works: overheads rule, so times and ratios mean little."
    if cuda:
        return "On the GPU: published shapes, compiled. The first calls compile, so this takes many minutes."
    return "No GPU: eager, float32, and shapes for two cores (some ten minutes for all tables); GPU figures differ."


def _show(table: Table) -> None:
    from routelaw.cli.output import number, show
    from routelaw.cli.output import table as made_table

    memory = [column for column in table.present if column.endswith("(MiB)")]
    others = [column for column in table.present if column not in memory]
    failed = {(failure.row, failure.candidate) for failure in table.failures}
    for title, columns in ((f"{table.name}: {table.setting}", others), (f"{table.name}: memory", memory)):
        if columns:  # memory by itself: with the others a line would be too long
            made = made_table(title, "", *columns)
            for name, row in table.rows.items():
                cells = ["failed" if (name, c) in failed else number(row.get(c, float("nan"))) for c in columns]
                made.add_row(name, *cells)
            show(made)
    show(f"  Baseline: {table.baseline}.", *(f"  {column}: {table.columns[column]}." for column in table.present))
    show(*(f"! {failure}" for failure in table.failures))
    show(f"  {table.machine}, {table.machine.date}", "")
