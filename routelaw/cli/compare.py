"""`routelaw compare`: laws against each other per router, and routers against each other under one law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from routelaw.cli import options

if TYPE_CHECKING:
    from routelaw.fitting.comparison import Comparison


def compare(
    runs: options.Runs = None,
    law: Annotated[list[str] | None, typer.Option(help="Only these laws (repeatable).")] = None,
    router: Annotated[list[str] | None, typer.Option(help="Only these routers (repeatable).")] = None,
    target: options.Target = "loss_validation",
    size: options.Size = None,
    params: options.ActiveParams = None,
    experts: Annotated[
        float | None, typer.Option(min=1, max=1e12, help="E at which routers are compared.", show_default="64")
    ] = None,
    under: Annotated[
        str | None, typer.Option(help="Law under which routers are compared (default: the best on average).")
    ] = None,
    level: options.Level = 0.9,
    seed: options.Seed = None,
    plugin: options.Plugin = None,
    as_json: options.AsJson = False,
) -> None:
    """Rank laws by their error on sizes they have not seen, and routers by predicted loss; say what is only noise."""
    options.use_one_thread()
    from routelaw.cli.output import note, print_json, progress, show
    from routelaw.fitting import comparison as comparing

    at = options.active_params_of(size, params)
    table = options.load(runs, plugin)
    comparing.laws_to_compare(law or [], under)
    routers = comparing.routers_to_compare(table, router or [], note)
    if len(routers) == 1:
        asked = {"--under": under, "--size": size, "--params": params, "--experts": experts}
        options.refuse_without_effect(asked, f"with one router ({routers[0]}) and none to compare it with")
    with progress(quiet=as_json) as bar:
        task = bar.add_task("fitting", total=len(routers))
        found = comparing.compare(
            table,
            laws=law or [],
            routers=routers,
            target=target,
            under=under,
            active_params=at,
            experts=experts,
            level=level,
            seed=seed or 0,
            progress=lambda done, _: bar.update(task, completed=done),
        )
    why_not = "" if found.routers else _why_not_compared(found, under, at)
    if as_json:
        print_json(found.as_dict() | {"routers_why_not": why_not})
    else:
        _show(found)
        if why_not:
            show(f"  {why_not}")


def _why_not_compared(found: Comparison, under: str | None, active_params: float | None) -> str:
    """What was asked of the comparison of routers and has no use without one; empty where nobody would miss it."""
    asked = [option for option, value in (("--under", under), ("--size or --params", active_params)) if value]
    fitted = [router for router, ranking in found.rankings.items() if ranking.laws]
    if len(fitted) > 1:
        return "Routers are not compared: no law has a leave-size-out error for every one of them."
    if not asked:
        return ""
    return f"Routers are not compared, since {fitted[0]} is the only one: {' and '.join(asked)} had no use."


def _show(found: Comparison) -> None:
    from routelaw.cli.output import show, table

    for title, header, rows, sentences in found.parts():
        made = table(title, *header)
        for row in rows:
            made.add_row(*row)
        show(made, *sentences)
