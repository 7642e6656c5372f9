"""`routelaw report` and `routelaw reproduce`: a page on runs or losses, and the paper redone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from routelaw.cli import options
from routelaw.specs.names import STUDIES


def report(
    runs: Annotated[Path, typer.Argument(metavar="STORE", help="A folder of runs, or a run table (CSV or Parquet).")],
    out: Annotated[Path, typer.Option(help="Folder to write: index.html, figures/, tables/.")],
    force: Annotated[bool, typer.Option("--force", help="Replace files in a folder that exists.")] = False,
    law: Annotated[
        str | None, typer.Option(help="The selected law (default: the simplest that none clearly beats).")
    ] = None,
    target: options.Target = "loss_validation",
    study: Annotated[
        list[str] | None,
        typer.Option(
            help="A study of the paper to judge on these runs: "
            + ", ".join(STUDIES)
            + " (repeatable; by default those whose sweep files the store was made by)."
        ),
    ] = None,
    plugin: options.Plugin = None,
    as_json: options.AsJson = False,
) -> None:
    """What the runs say: which router wins where and how surely, the fitted laws, curves, expert load, every run; and
    what the claims of the paper's studies come to on them."""
    options.use_one_thread()
    from routelaw.cli.output import followed, print_json
    from routelaw.files import without_collection
    from routelaw.laws import get_law
    from routelaw.report.page import check_target
    from routelaw.report.runs.report import report_steps

    check_target(out, force)
    own_laws = options.load_laws(plugin or [])
    selected = get_law(law) if law is not None else None
    with without_collection():  # of what a page is made from, all is needed to the end
        steps = report_steps(
            runs, out, force=force, law=selected, own_laws=own_laws, target=target, studies=study or ()
        )
        summary = followed(steps, quiet=as_json)
    if as_json:
        print_json(summary)
    else:
        _show(summary)


def _show(summary: dict[str, Any]) -> None:
    from routelaw.cli.output import show
    from routelaw.report.runs.data import OWN
    from routelaw.report.runs.law_text import without_law

    for name, source in summary["sources"].items():
        states = ", ".join(f"{count} {state}" for state, count in source["statuses"].items())
        show(f"{'' if name == OWN else f'{name}: '}{source['runs']} runs: {states}.")
        if source.get("law"):
            show(f"  selected law: {source['law']}, because {source['law_because']}.")
        for judged in source.get("studies", []):
            _show_study(judged)
        names = source["techniques"]
        for sentence in without_law({names[key]: why for key, why in source.get("no_law", {}).items()}):
            show(f"  {sentence}")
        clear = [d for d in source.get("pairwise", []) if d["verdict"] == "clearly"]
        for comparison in clear[:5]:
            pair = [source["techniques"][comparison[which]] for which in ("first", "second")]
            better, worse = pair if comparison["lead_log10"] > 0 else reversed(pair)
            show(f"  {better} is clearly better than {worse}.")
        if source.get("pairwise") and not clear:
            show("  No technique is clearly better than another.")
    show(f"Page: {summary['page']}")


def _show_study(study: dict[str, Any]) -> None:
    from routelaw.cli.output import show

    show(f"  study {study['study']}: {study['question']}")
    for claim in study["claims"]:
        show(f"    {claim['statement']}: {claim['verdict']}. {claim['why'][:1].upper()}{claim['why'][1:]}")
    for title, why in study["not_drawn"].items():
        show(f"    not drawn: {title}: {why}")


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
        _show_reproduced(summary)


def _show_reproduced(summary: dict) -> None:
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
