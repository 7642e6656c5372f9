"""`routelaw demo`: the whole story so far: losses in, laws, what to believe, what to build, and a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Collection

    from routelaw.runs.table import RunTable

LAWS = ("separable", "bilinear", "saturated", "irreducible")


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write the page and figures to.")] = Path("out/demo"),
    force: Annotated[bool, typer.Option("--force", help="Replace files in a folder that exists.")] = False,
    data: Annotated[Path | None, typer.Option(help="A run table to use instead of the paper's.")] = None,
) -> None:
    """Fit, judge and apply scaling laws to the paper's losses and redraw its figures; offline, to simulated ones."""
    from routelaw.cli.output import show
    from routelaw.report.whole_folder import check_target

    check_target(out, force)
    path = data or _released()
    table = _table(path)
    errors = _errors(table)
    show(f"1. {len(table.frame['run_id'].unique())} runs: {table.source}.")
    best = _laws(errors)
    _consequences(table, best, errors)
    page = _page(path, table, out, force)
    show(f"5. Figures and tables on one page: {page}")
    show("   Your own losses:  routelaw fit my_runs.csv --router NAME --law irreducible")
    show("   Your own law:     routelaw fit my_runs.csv --law mine --plugin mine.py   (ARCHITECTURE.md shows one)")


def _released() -> Path | None:
    """The paper's losses from the cache or the network; None, with a word, where neither has them."""
    from routelaw.cli.output import show
    from routelaw.errors import InputError
    from routelaw.runs.fetch import fetch_released, find_released

    found = find_released()
    if found:
        return found
    show("Fetching the losses that the paper's authors released (337 kB) …")
    try:
        return fetch_released()
    except InputError as error:
        show(f"! {error}")
        show("! Going on with losses SIMULATED from the paper's printed coefficients: the story, not the evidence.")
        return None


def _table(path: Path | None) -> RunTable:
    from routelaw.plans.simulated import simulated_runs
    from routelaw.runs.files import read_runs

    return read_runs(path) if path else simulated_runs()


def _errors(table: RunTable) -> dict[str, dict[str, float]]:
    """Law -> router -> leave-size-out error, for the laws that have one on every router; best on average first."""
    from routelaw.errors import InputError
    from routelaw.fitting.compare import rank_laws
    from routelaw.fitting.points import select_points
    from routelaw.laws import get_law
    from routelaw.specs.techniques import DENSE

    routers = [r for r in table.routers if r != DENSE]
    if not routers:
        raise InputError(f"{table.source}: there are only dense runs; the demo is about routed ones.")
    errors: dict[str, dict[str, float]] = {name: {} for name in LAWS}
    reasons: list[str] = []
    for router in routers:
        ranked, skipped = rank_laws(select_points(table, router, mixed=False), [get_law(name) for name in LAWS])
        for row in ranked:
            if row.validation.leave_size_out is not None:
                errors[row.fit.law.name][router] = row.validation.leave_size_out
            reasons += row.validation.warnings
        reasons += [s.reason for s in skipped]
    complete = {name: row for name, row in errors.items() if len(row) == len(routers)}
    if not complete:
        raise InputError(f"{table.source}: too little for the demo: {reasons[0]}")
    return dict(sorted(complete.items(), key=lambda item: sum(item[1].values())))


def _laws(errors: dict[str, dict[str, float]]) -> str:
    """The laws ranked on every router; returns the one with the lowest error on unseen sizes, summed over routers."""
    from routelaw.cli.output import error_e4, show
    from routelaw.cli.output import table as grid
    from routelaw.laws import get_law

    best = next(iter(errors))
    made = grid(
        "2. Which law predicts sizes it has not seen? (leave-size-out error, ×1e-4 of log10 L)", "law", *errors[best]
    )
    for name in LAWS:
        if name in errors:
            made.add_row(f"{name}: {get_law(name).formula}", *(error_e4(e) for e in errors[name].values()))
    show(made, f"   {best} does best.")
    left = [name for name in LAWS if name not in errors]
    if left:
        show(f"   Not ranked, for want of points: {', '.join(left)}.")
    return best


def _consequences(table: RunTable, best: str, laws: Collection[str]) -> None:
    """Where routing stops helping under two laws, and one plan."""
    from routelaw.cli.output import known, number, show, span
    from routelaw.fitting.fit import fit_law
    from routelaw.fitting.judgement import judge
    from routelaw.fitting.points import select_points
    from routelaw.plans.budget import Budget, best_models
    from routelaw.plans.predictor import Predictor
    from routelaw.specs.sizes import PAPER_SIZES

    router = "s-base" if "s-base" in table.routers else next(r for r in table.routers if r != "dense")
    points = select_points(table, router, mixed=False)
    judged = None
    for law in [name for name in dict.fromkeys(("saturated", best)) if name in laws]:
        judged = judge(fit_law(law, points))
        cut, ends = judged.derived["n_cut"], judged.intervals.get("n_cut")
        how_sure = f" ({judged.level:.0%}: {known(ends)})" if ends else ""
        when = f"N = {number(cut)}{how_sure}" if cut != float("inf") else "no size"
        show(f"3. Under {law}, {router} stops helping at {when}.")
    assert judged is not None, "the best law is among those fitted"
    budget = Budget(memory_bytes=24e9, flops_per_token=1.2e9)
    first = best_models([Predictor.from_judgement(judged)], budget, PAPER_SIZES, top=1)[0]
    show(
        f"4. Within 24 GB of weights and 1.2 GFLOPs per token: {first.router} {first.size} with E = {first.experts}, "
        f"predicted loss {first.loss:.3f}" + (f" {span(*first.interval)}." if first.interval else ".")
    )
    if first.extrapolation:
        show(f"   An extrapolation: {first.extrapolation}.")


def _page(path: Path | None, table: RunTable, out: Path, force: bool) -> Path:
    """The whole reproduction where the data are the paper's; else the figures that any table allows."""
    from routelaw.cli.output import progress
    from routelaw.report.overview import draw_overview
    from routelaw.report.reproduce import is_released, reproduce

    steps = reproduce(path, out, force=force) if is_released(table) else draw_overview(table, out, force=force)
    with progress() as bar:
        task = bar.add_task("drawing", total=None)
        for step in steps:
            bar.update(task, completed=step.done, total=step.total, description=step.what)
    return out / "index.html"
