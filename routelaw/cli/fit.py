"""`routelaw fit` and `routelaw compare`: one law and how far to trust it; laws and routers against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli import options

if TYPE_CHECKING:
    from routelaw.fitting.comparison import Comparison
    from routelaw.fitting.fit import Error
    from routelaw.fitting.fit_report import FitReport
    from routelaw.laws import Law
    from routelaw.runs.table import RunTable


_Given = dict[str, Any]
"""Options with what was given for them, None where nothing was."""


def fit(
    runs: options.Runs = None,
    law: Annotated[
        str, typer.Option(help="The law: saturated is the paper's; see `routelaw compare` for all.")
    ] = "saturated",
    router: Annotated[
        str | None, typer.Option(help="Whose runs (dense runs join as E = 1).", show_default=False)
    ] = None,
    target: options.Target = "loss_validation",
    size: Annotated[list[str] | None, typer.Option(help="Only these sizes (repeatable).")] = None,
    k: Annotated[int | None, typer.Option(help="K, where a table mixes several (default 1).")] = None,
    routing_frequency: Annotated[
        float | None, typer.Option(help="R, where a table mixes several (default 0.5).")
    ] = None,
    variant: Annotated[str | None, typer.Option(help="Fit this variant instead of the defaults.")] = None,
    dense: Annotated[
        bool | None, typer.Option("--dense/--no-dense", help="Take the dense runs as E = 1.", show_default="dense")
    ] = None,
    average_seeds: Annotated[bool, typer.Option(help="Average runs that differ in the seed alone.")] = True,
    where: options.Where = None,
    best_of: options.BestOf = None,
    weights: Annotated[str | None, typer.Option(help="A column of the table with the weight of each run.")] = None,
    error: Annotated[str, typer.Option(help="squared or huber.")] = "squared",
    method: Annotated[
        str, typer.Option(help="variable-projection, or lbfgsb: the authors' best of 500 starts.")
    ] = "variable-projection",
    interval: Annotated[
        str | None, typer.Option(help="size-bootstrap, case-bootstrap or profile.", show_default=False)
    ] = None,
    level: options.Level = 0.9,
    draws: options.Draws = None,
    seed: options.Seed = None,
    at_params: Annotated[str | None, typer.Option(help="N at which EPC, slopes and loss are reported.")] = None,
    at_experts: Annotated[float | None, typer.Option(min=1, max=1e12, help="E at which they are reported.")] = None,
    plugin: options.Plugin = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit a scaling law to a table of losses and judge it: parameters, intervals, errors on unseen runs."""
    options.use_one_thread()
    from routelaw.cli.options import one_of
    from routelaw.cli.output import print_json
    from routelaw.errors import InputError
    from routelaw.fitting.fit import fit_law
    from routelaw.fitting.fit_report import DEFAULT_METHOD, judge
    from routelaw.fitting.intervals import DEFAULT_DRAWS, METHODS
    from routelaw.fitting.points import select_points
    from routelaw.fitting.published import fit_lbfgsb
    from routelaw.laws import get_law

    measure: Error = one_of(error, ("squared", "huber"), "--error")
    method = one_of(method, ("variable-projection", "lbfgsb"), "--method")
    interval = one_of(DEFAULT_METHOD if interval is None else interval, METHODS, "--interval")
    if interval == "profile":
        options.refuse_without_effect({"--draws": draws, "--seed": seed}, "on profile intervals, which draw nothing")
    at = options.parameters(at_params, "--at-params") if at_params is not None else None
    if method == "lbfgsb" and measure == "huber":
        raise InputError("--method lbfgsb minimises the squared error, as the authors did: leave out --error huber.")
    table = options.selected(options.load(runs, plugin), where, best_of, target)
    chosen = get_law(law)
    router = _usual_router(table, chosen) if router is None else router
    _check_options(
        chosen,
        router,
        {"--k": k, "--routing-frequency": routing_frequency},
        {"--at-params": at_params, "--at-experts": at_experts},
        {"--dense" if dense else "--no-dense": dense},
    )
    points = select_points(
        table,
        router,
        chosen,
        target=target,
        include_dense=dense is not False,
        k=k,
        routing_frequency=routing_frequency,
        variant=variant,
        sizes=size,
        average_seeds=average_seeds,
        weight_column=weights,
    )
    fitted = fit_law(chosen, points, error=measure) if method == "variable-projection" else fit_lbfgsb(chosen, points)
    judged = judge(
        fitted,
        method=interval,
        level=level,
        draws=draws or DEFAULT_DRAWS,
        seed=seed or 0,
        active_params=at,
        experts=at_experts,
    )
    if as_json:
        print_json(judged.as_dict())
    else:
        _show(judged, table.notes)


def _check_options(law: Law, router: str, architecture: _Given, at: _Given, dense: _Given) -> None:
    """Refuse what this law, or dense runs, have no use for."""
    from routelaw.specs.names import DENSE, canonical_router

    if canonical_router(router) == DENSE:
        options.refuse_without_effect({**architecture, **dense, "--at-experts": at["--at-experts"]}, "on dense runs")
    if "experts" not in law.inputs and "flops_per_token" in law.inputs:
        options.refuse_without_effect(architecture, f"under law {law.name}, which takes every K and R")
    if set(law.inputs) != {"active_params", "experts"}:
        options.refuse_without_effect(at, f"under law {law.name}, from which no effective parameters follow")


def _usual_router(table: RunTable, law: Law) -> str:
    """The only one there is; dense runs for a law that knows no routing."""
    from routelaw.errors import InputError
    from routelaw.fitting.points import knows_routing

    if not knows_routing(law):
        return "dense"
    routed = [r for r in table.routers if r != "dense"]
    if len(routed) != 1:
        if not routed:
            raise InputError(f"{table.source}: there are only dense runs, which --law dense describes.")
        raise InputError(f"{table.source}: choose a router with --router ({', '.join(routed)}).")
    return routed[0]


def _show(judged: FitReport, notes: tuple[str, ...]) -> None:
    from routelaw.cli.output import error_e4, known, number, show, table
    from routelaw.fitting.fit_report import DERIVED_MEANINGS

    fitted, points = judged.fit, judged.fit.points
    show(f"{fitted.law.name}: {fitted.law.formula}   [{fitted.law.source}]")
    show(
        f"{points.router}, {points.target}: {len(points)} points, sizes {', '.join(points.sizes)}; {fitted.status}"
        + (f" (left out: {'; '.join(points.left_out)})" if points.left_out else "")
    )
    how = f"{judged.level:.0%} interval ({judged.method})"
    parameters = table("", "parameter", "value", how, "meaning")
    parameters.columns[-1].justify = "left"
    meanings = {p.name: p.meaning for p in (*fitted.law.parameters, *fitted.law.constants)}
    constants = {c.name: judged.derived[c.name] for c in fitted.law.constants}
    for name, value in {**fitted.params, **constants}.items():
        ends = judged.intervals.get(name)
        parameters.add_row(name, number(value), known(ends), meanings[name])
    v = judged.validation
    names = [name.replace("_", " ") for name in v.errors]
    errors = table("", "error in log10 L, ×1e-4", *names)
    errors.add_row("", *(error_e4(e) for e in v.errors.values()))
    show(parameters, errors)
    at_a_point = {name: value for name, value in judged.derived.items() if name not in constants}
    if at_a_point:
        at = judged.at
        derived = table("", f"at N = {number(at['active_params'])}, E = {at['experts']:g}", "value", how)
        for name, value in at_a_point.items():
            ends = judged.intervals.get(name)
            derived.add_row(DERIVED_MEANINGS.get(name, name), number(value), known(ends))
        show(derived)
    for warning in judged.warnings:
        show(f"! {warning}")
    for note in notes:
        show(f"  {note}")


def compare(
    runs: options.Runs = None,
    law: Annotated[list[str] | None, typer.Option(help="Only these laws (repeatable).")] = None,
    router: Annotated[list[str] | None, typer.Option(help="Only these routers (repeatable).")] = None,
    target: options.Target = "loss_validation",
    where: options.Where = None,
    best_of: options.BestOf = None,
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
    table = options.selected(options.load(runs, plugin), where, best_of, target)
    comparing.laws_to_compare(law or [], under, table)
    routers = comparing.routers_to_compare(table, router or [], note, target)
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
        _show_laws(found)
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


def _show_laws(found: Comparison) -> None:
    from routelaw.cli.output import show, table

    for title, header, rows, sentences in found.parts():
        made = table(title, *header)
        for row in rows:
            made.add_row(*row)
        show(made, *sentences)
