"""`routelaw figures`: the paper's figures of any runs, as SVG and PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from routelaw.cli import options


def figures(
    runs: Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE|STORE", help="A run table (CSV or Parquet) or a folder of runs.", show_default=False
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]…",
            help="Which figures to draw, by name (see --list); without names, all that the runs allow.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write NAME.svg and NAME.png to.")] = None,
    target: Annotated[
        str | None, typer.Option(help="Which loss to draw: a loss_… column.", show_default="the table's first")
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(metavar="ROUTER=VARIANT", help="Draw this variant of a router (default: its most frequent one)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="List the figures there are, and draw none.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw the paper's figures from any runs, and say what is missing for those that cannot be drawn."""
    options.use_one_thread()
    from routelaw.cli.output import followed, print_json
    from routelaw.errors import InputError
    from routelaw.figures.drawing import figure_steps

    if list_all:
        given = {"TABLE": runs, "--out": out, "--target": target, "--variant": variant, "--force": force or None}
        options.refuse_without_effect(given, "with --list, which draws nothing")
        _list(as_json)
        return
    if runs is None:
        raise InputError("give a run table or a store to draw, or --list for the figures that there are.")
    if out is None:
        raise InputError("--out is missing: name the folder to write the figures to.")
    steps = figure_steps(runs, out, names or [], target=target, variants=_variants(variant or []), force=force)
    summary = followed(steps, quiet=as_json)
    if as_json:
        print_json(summary)
    else:
        _show(summary, out)


def _variants(items: list[str]) -> dict[str, str]:
    """ROUTER=VARIANT, where a variant has equality signs of its own; `ROUTER=` is the technique's defaults."""
    from routelaw.errors import InputError
    from routelaw.formatting import shortened

    found: dict[str, str] = {}
    for item in items:
        router, given, variant = item.partition("=")
        if not given or not router:
            raise InputError(
                f"--variant takes ROUTER=VARIANT, such as s-base=capacity_factor=1, not {shortened(item)!r}."
            )
        if router in found:
            raise InputError(f"--variant names router {router!r} twice: choose one variant.")
        found[router] = variant
    return found


def _list(as_json: bool) -> None:
    from routelaw.cli.output import print_json, show, table
    from routelaw.figures import all_figures

    if as_json:
        print_json({f.name: {"title": f.title, "paper": f.paper, "caption": f.caption} for f in all_figures()})
        return
    made = table("", "figure", "in the paper", "title")
    for column in made.columns[1:]:
        column.justify = "left"
    for figure in all_figures():
        made.add_row(figure.name, _place(figure.paper), figure.title)
    show(made)


def _place(paper: str) -> str:
    """Where a figure stands in the paper, short: its number, the appendix, or nowhere."""
    if not paper:
        return "–"
    return "appendix" if paper.startswith("Appendix") else paper.partition(" (")[0]


def _show(summary: dict[str, Any], out: Path) -> None:
    from routelaw.cli.output import show

    for sentence in (*summary["taken"], *summary["notes"]):
        show(f"  {sentence}")
    for name, drawn in summary["drawn"].items():
        show(f"{name}: {drawn['title']}")
    for name, sentence in summary["not_drawn"].items():
        show(f"not drawn: {name}: {sentence}")
    drawn, missing = len(summary["drawn"]), len(summary["not_drawn"])
    rest = f", {missing} not" if missing else ""
    show(f"{drawn} {'figure' if drawn == 1 else 'figures'} drawn{rest}; SVG and PNG in {out}.")
