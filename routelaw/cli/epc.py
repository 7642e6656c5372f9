"""`routelaw epc`: which dense model a routed one equals, and what else follows from a law."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from routelaw.cli import options


def epc(
    runs: options.Runs = None,
    fit: Annotated[list[str] | None, typer.Option(help="A published fit, e.g. clark2022/s-base (repeatable).")] = None,
    law: Annotated[str, typer.Option(help="Law to fit to the table.")] = "saturated",
    router: Annotated[list[str] | None, typer.Option(help="Only these routers (repeatable).")] = None,
    target: Annotated[
        str, typer.Option(help="Which loss_… column, or `all`: effective size per corpus.")
    ] = "loss_validation",
    size: options.Size = None,
    params: options.ActiveParams = None,
    experts: Annotated[float, typer.Option(min=1, max=1e12, help="E of the model.")] = 64,
    effective: Annotated[str | None, typer.Option(help="A dense size to equal: asks for the experts it takes.")] = None,
    loss: Annotated[
        float | None, typer.Option(help="A loss: asks for the size that reaches it at each E (level curve).")
    ] = None,
    level: options.Level = 0.9,
    draws: options.Draws = None,
    seed: options.Seed = None,
    plugin: options.Plugin = None,
    as_json: options.AsJson = False,
) -> None:
    """Effective parameters of a routed model and their inverse, cut-offs, slopes, level curves. Needs no data."""
    import math

    from routelaw.cli.options import predictors
    from routelaw.cli.output import print_json
    from routelaw.errors import InputError
    from routelaw.laws.equivalence import check_law
    from routelaw.plans.equivalents import equivalents
    from routelaw.runs.table import LOSS_RANGE
    from routelaw.specs.counting import dense_params
    from routelaw.specs.sizes import get_size

    active = options.active_params_of(size, params) or float(dense_params(get_size("370M")))
    wanted = options.parameters(effective, "--effective") if effective is not None else None
    if loss is not None and not (math.isfinite(loss) and 0 < loss <= LOSS_RANGE[1]):
        raise InputError(f"--loss must be a positive number of nats per token below {LOSS_RANGE[1]:g}, not {loss:g}.")
    targets = options.load(runs, plugin).losses if target == "all" and runs else [target]
    rows = []
    for one in targets:
        quiet = one != targets[0]
        made = predictors(
            runs, fit, law, router, one, draws=draws, seed=seed, plugins=plugin, check=check_law, quiet=quiet
        )
        rows += [
            {"target": one, **equivalents(p, active, experts, dense_size=wanted, loss=loss, level=level)} for p in made
        ]
    if as_json:
        print_json({"active_params": active, "experts": experts, "level": level, "fits": rows})
    else:
        _show(rows, active, experts, level, wanted, loss)


def _show(rows, active, experts, level, wanted, loss) -> None:
    from routelaw.cli.output import number, show, span, table

    title = f"N = {number(active)}, E = {experts:g}: the dense model it equals ({level:.0%} intervals)"
    made = table(title, "fit", "N̄", "interval", "N̄_max", "N_cut", "a(E)", "b(N)", "loss")
    several = len({r["target"] for r in rows}) > 1
    labels = [f"{r['fit']}, {r['target']}" if several else r["fit"] for r in rows]
    for label, r in zip(labels, rows, strict=True):
        ends = r["intervals"]["effective_params"]
        made.add_row(
            label,
            number(r["effective_params"]),
            span(*ends) if ends else "–",
            number(r["max_effective_params"]),
            number(r["n_cut"]),
            f"{r['a_of_e']:.4f}",
            f"{r['b_of_n']:.4f}",
            f"{r['loss']:.4f}",
        )
    show(made)
    for label, r in zip(labels, rows, strict=True):
        if r["extrapolation"]:
            show(f"! {label}: {r['extrapolation']}: an extrapolation.")
        if wanted is not None:
            needed = r["experts_for_effective"]
            answer = f"E = {needed:.3g}" if needed < 1e12 else "no number of experts is enough"
            show(f"{label}: to equal a dense model of {number(wanted)} at N = {number(active)}: {answer}.")
    if loss is not None:
        levels = table(f"size that reaches a loss of {loss:g}", "fit", *(f"E={e}" for e in rows[0]["level_curve"]))
        for label, r in zip(labels, rows, strict=True):
            levels.add_row(label, *(number(n) for n in r["level_curve"].values()))
        show(levels)
    for sentence in _warnings(rows):
        show(sentence)


def _warnings(rows: list[dict[str, Any]]) -> list[str]:
    """What fits left out and warn of, each sentence once, naming the corpora where it does not hold for all of them."""
    count = len({r["target"] for r in rows})
    targets: dict[tuple[str, str], list[str]] = {}
    for r in rows:
        left_out = [f"left out: {'; '.join(r['left_out'])}."] if r["left_out"] else []
        for sentence in (*left_out, *r["warnings"]):
            targets.setdefault((sentence, r["fit"]), []).append(r["target"])
    fits: dict[str, list[str]] = {}
    for (sentence, fit), where in targets.items():
        fits.setdefault(sentence, []).append(fit if len(where) == count else f"{fit}, {', '.join(where)}")
    lines = [f"{' ' if s.startswith('left out') else '!'} {'; '.join(named)}: {s}" for s, named in fits.items()]
    published = [r for r in rows if r["published"]]
    if published:
        lines.append("  Published coefficients carry no intervals; give a run table for them.")
    if any(r["law"] == "saturated" for r in published):
        lines.append(
            "  N_cut = 10^(−b/c), and the three digits that the paper prints of b and c do not determine it: "
            "fit the released table to ask for it (`routelaw data fetch`)."
        )
    return lines
