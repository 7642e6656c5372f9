"""`routelaw compare`: laws against each other per router, and routers against each other under one law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli import options

if TYPE_CHECKING:
    from routelaw.fitting.compare import Ranked, RouterComparison, Skipped


USUAL_EXPERTS = 64


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
    from routelaw.cli.output import note, print_json, progress, show
    from routelaw.errors import InputError
    from routelaw.fitting.compare import comparable_laws, rank_laws
    from routelaw.fitting.points import has_finished, knows_routing, select_points
    from routelaw.laws import get_law
    from routelaw.laws.equivalence import check_law
    from routelaw.specs.techniques import DENSE, canonical_router

    at = options.active_params_of(size, params)
    table = options.load(runs, plugin)
    laws = [get_law(name) for name in dict.fromkeys(law)] if law else comparable_laws()
    if under is not None:
        check_law(get_law(under))
    for one in [*laws, *([get_law(under)] if under is not None else [])]:
        if one.along_training or not knows_routing(one):
            raise InputError(f"law {one.name} cannot be compared on routed runs at the end of training.")
    routers = list(dict.fromkeys(map(canonical_router, router or [])))
    if not routers:
        there = [r for r in table.routers if r != DENSE]
        routers = [r for r in there if has_finished(table, r)] or there
        for name in there:
            if name not in routers:
                note(f"{name} is left out: it has no finished run.")
    if not routers:
        raise InputError(f"{table.source}: there are only dense runs; comparing needs a router.")
    if len(routers) == 1:
        asked = {"--under": under, "--size": size, "--params": params, "--experts": experts}
        options.refuse_without_effect(asked, f"with one router ({routers[0]}) and none to compare it with")
    ranked: dict[str, list[Ranked]] = {}
    skipped: dict[str, list[Skipped]] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    warnings: dict[str, tuple[str, ...]] = {}
    with progress(quiet=as_json) as bar:
        task = bar.add_task("fitting", total=len(routers))
        for name in routers:
            points = select_points(table, name, mixed=False, target=target)
            ranked[name], skipped[name] = rank_laws(points, laws, level, seed or 0)
            left_out[name], warnings[name] = points.left_out, points.warnings
            bar.advance(task)
    if not any(ranked.values()):
        raise InputError(f"{table.source}: no law can be fitted: {next(iter(skipped.values()))[0].reason}")
    comparison = _routers(ranked, under, at, USUAL_EXPERTS if experts is None else experts, level, seed or 0)
    if comparison:
        warnings = {name: (*said, *_extrapolates(ranked[name], comparison)) for name, said in warnings.items()}
    why_not = "" if comparison else _why_not_compared(ranked, under, at)
    if as_json:
        made = _as_dict(target, level, ranked, skipped, left_out, comparison)
        print_json(made | {"warnings": warnings, "routers_why_not": why_not})
    else:
        _show(ranked, skipped, left_out, warnings, comparison, level)
        if why_not:
            show(f"  {why_not}")


def _why_not_compared(ranked: dict[str, list[Ranked]], under: str | None, active_params: float | None) -> str:
    """What was asked of the comparison of routers and has no use without one; empty where nobody would miss it."""
    asked = [option for option, value in (("--under", under), ("--size or --params", active_params)) if value]
    fitted = [router for router, rows in ranked.items() if rows]
    if len(fitted) > 1:
        return "Routers are not compared: no law has a leave-size-out error for every one of them."
    if not asked:
        return ""
    return f"Routers are not compared, since {fitted[0]} is the only one: {' and '.join(asked)} had no use."


def _routers(
    ranked: dict[str, list[Ranked]],
    under: str | None,
    active_params: float | None,
    experts: float,
    level: float,
    seed: int,
) -> RouterComparison | None:
    """Routers at one point, under the law asked for or the one with the lowest leave-size-out error on average."""
    from routelaw.fitting.compare import compare_routers
    from routelaw.fitting.fit import fit_law
    from routelaw.fitting.judgement import reference_point
    from routelaw.laws import get_law

    ranked = {router: rows for router, rows in ranked.items() if rows}
    if len(ranked) < 2:
        return None
    errors: dict[str, list[float]] = {}
    for rows in ranked.values():
        for row in rows:
            if row.validation.leave_size_out is not None and set(row.fit.law.inputs) == {"active_params", "experts"}:
                errors.setdefault(row.fit.law.name, []).append(row.validation.leave_size_out)
    everywhere = {name: sum(e) for name, e in errors.items() if len(e) == len(ranked)}
    if under is None and not everywhere:
        return None
    law = get_law(min(everywhere, key=everywhere.__getitem__) if under is None else under)
    fits = {router: fit_law(law, rows[0].fit.points) for router, rows in ranked.items()}
    at = reference_point(next(iter(fits.values())), active_params, experts)
    return compare_routers(fits, at, level=level, seed=seed)


def _extrapolates(rows: list[Ranked], comparison: RouterComparison) -> list[str]:
    """A warning where a router is compared outside of what was fitted to it."""
    from routelaw.plans.predictor import Predictor

    at = comparison.at
    outside = Predictor.from_fit(rows[0].fit).extrapolation(at["active_params"], at["experts"]) if rows else ""
    where = f"N = {at['active_params']:.3g} and E = {at['experts']:g}"
    return [f"its loss at {where} is an extrapolation: {outside}."] if outside else []


def _as_dict(target, level, ranked, skipped, left_out, comparison) -> dict[str, Any]:
    def row(r: Ranked) -> dict[str, Any]:
        v = r.validation
        return {
            "law": r.fit.law.name,
            "parameters": len(r.fit.law.parameters),
            "status": r.fit.status,
            "warnings": _warnings(r),
            "rmsle": {
                "in_sample": v.in_sample,
                "leave_one_out": v.leave_one_out,
                "leave_size_out": v.leave_size_out,
                "largest_size_out": v.largest_size_out,
            },
            "leave_size_out_interval": r.interval,
            "behind_best": r.behind,
            "worse_than_best_probability": r.worse_probability,
            "clearly_worse_than_best": r.clearly_worse,
        }

    result: dict[str, Any] = {
        "target": target,
        "level": level,
        "interval_method": "size-bootstrap of held-out errors",
        "laws": {router: [row(r) for r in rows] for router, rows in ranked.items()},
        "skipped": {router: {s.law: s.reason for s in rows} for router, rows in skipped.items()},
        "left_out": left_out,
        "routers": None,
    }
    if comparison:
        result["routers"] = {
            "law": comparison.law.name,
            "at": comparison.at,
            "order": comparison.routers,
            "loss": comparison.loss,
            "interval": comparison.interval,
            "better_probability": {f"{p} < {q}": v for (p, q), v in comparison.better_probability.items()},
        }
    return result


def _show(ranked, skipped, left_out, warnings, comparison, level) -> None:
    from routelaw.cli.output import error_e4, number, show, table

    for router, rows in ranked.items():
        title = f"{router}: laws by leave-size-out error (log10 L, ×1e-4; {level:.0%} intervals over sizes)"
        made = table(
            title, "law", "params", "in sample", "one out", "size out", "interval", "largest out", "against the best"
        )
        for r in rows:
            v = r.validation
            ends = f"[{error_e4(r.interval[0])}, {error_e4(r.interval[1])}]" if r.interval else "–"
            made.add_row(
                r.fit.law.name,
                str(len(r.fit.law.parameters)),
                error_e4(v.in_sample),
                error_e4(v.leave_one_out),
                error_e4(v.leave_size_out),
                ends,
                error_e4(v.largest_size_out),
                _verdict(r),
            )
        show(made)
        if left_out[router]:
            show(f"  {router}: left out: {'; '.join(left_out[router])}.")
        for s in skipped[router]:
            show(f"  {s.law} left out: {s.reason}")
        for warning in warnings[router]:
            show(f"! {router}: {warning}")
        for r in rows:
            for warning in _warnings(r):
                if warning not in warnings[router]:  # what holds for the points holds for every law
                    show(f"! {r.fit.law.name}: {warning}")
    if comparison:
        at = comparison.at
        where = f"at N = {number(at['active_params'])}, E = {at['experts']:g}, under {comparison.law.name}"
        made = table(f"routers {where}", "router", "predicted loss", f"{level:.0%} interval")
        for router in comparison.routers:
            low, high = comparison.interval[router]
            made.add_row(router, f"{comparison.loss[router]:.4f}", f"[{low:.4f}, {high:.4f}]")
        show(made)
        for better, worse in zip(comparison.routers, comparison.routers[1:], strict=False):
            probability = comparison.better_probability[better, worse]
            show(f"  {better} is better than {worse} with probability {probability:.2f}.")


def _warnings(r: Ranked) -> list[str]:
    return [*r.fit.warnings, *r.validation.warnings]


def _verdict(r: Ranked) -> str:
    if r.worse_probability is None:
        return "best" if r.behind == 0 else "–"
    noise = "clearly worse" if r.clearly_worse else "within noise"
    return f"{noise} (P worse {r.worse_probability:.2f})"
