"""`routelaw plan` and `routelaw epc`: from a budget to a model, and to the dense model that a routed one equals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from routelaw.cli import options
from routelaw.cli.plan_layout import layout

if TYPE_CHECKING:
    from routelaw.laws import Law
    from routelaw.plans.budget import Candidate
    from routelaw.plans.predictor import Predictor


REASONS_SHOWN = 3
"""Different extrapolations explained below the table, beside that of the best answer."""


class _ModelByDefault(TyperGroup):
    """`routelaw plan RUNS …` is `routelaw plan model RUNS …`: the question most people have needs no extra word."""

    def parse_args(self, ctx, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["model", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ModelByDefault,
    help="From a budget to a model: which router, size, E, K and R; or to a layout.",
    no_args_is_help=True,
)
app.command()(layout)


@app.callback()
def _plan() -> None:
    """From a budget to a model: which router, size, E, K and R (`routelaw plan …` is `routelaw plan model …`); and from
    devices to a layout."""


@app.command()
def model(
    runs: options.RunsOrPublished = None,
    fit: Annotated[list[str] | None, typer.Option(help="A published fit, e.g. clark2022/s-base (repeatable).")] = None,
    law: Annotated[str, typer.Option(help="Law to fit; `compute` also ranks K and R.")] = "saturated",
    router: Annotated[list[str] | None, typer.Option(help="Only these routers (repeatable).")] = None,
    target: options.Target = "loss_validation",
    total_params: Annotated[str | None, typer.Option(help="Most parameters in all, e.g. 10B.")] = None,
    flops_per_token: Annotated[str | None, typer.Option(help="Most forward FLOPs per token, e.g. 2e9.")] = None,
    memory: Annotated[str | None, typer.Option(help="Most bytes of weights, e.g. 80GB.")] = None,
    bytes_per_param: Annotated[float, typer.Option(min=0.1, help="2 for bfloat16, 1 for 8 bits.")] = 2.0,
    target_loss: Annotated[float | None, typer.Option(help="Reach this loss at the least compute.")] = None,
    experts: Annotated[
        str | None, typer.Option(help="Expert counts to consider.", show_default="powers of two up to 512")
    ] = None,
    k: Annotated[str | None, typer.Option(help="K to consider (laws that read compute).", show_default="1,2,4")] = None,
    routing_frequency: Annotated[
        str | None, typer.Option(help="R to consider (likewise).", show_default="0.25,0.5,1")
    ] = None,
    ladder: Annotated[str, typer.Option(help="paper: its eight sizes; fine: about 6 % apart.")] = "paper",
    level: options.Level = 0.9,
    draws: options.Draws = None,
    seed: options.Seed = None,
    top: Annotated[int, typer.Option(min=1, help="How many to list.")] = 8,
    plugin: options.Plugin = None,
    as_json: options.AsJson = False,
) -> None:
    """The best (router, size, E, K, R) within a budget, the runner-ups, and a warning when the answer extrapolates."""
    from dataclasses import asdict

    from routelaw.cli.options import one_of, predictors
    from routelaw.cli.output import print_json
    from routelaw.fitting.points import knows_routing
    from routelaw.plans.budget import (
        EXPERT_CHOICES,
        FREQUENCY_CHOICES,
        K_CHOICES,
        Budget,
        best_models,
        check_countable,
        ranks_architectures,
    )
    from routelaw.specs.sizes import PAPER_SIZES, fine_ladder

    ladder = one_of(ladder, ("paper", "fine"), "--ladder")
    budget = Budget(
        total_params=options.quantity(total_params, "--total-params") if total_params is not None else None,
        flops_per_token=None if flops_per_token is None else options.quantity(flops_per_token, "--flops-per-token"),
        memory_bytes=options.quantity(memory, "--memory") if memory is not None else None,
        bytes_per_param=bytes_per_param,
        target_loss=target_loss,
    )
    experts_considered = options.numbers(experts, "--experts", int) if experts is not None else EXPERT_CHOICES
    ks = options.numbers(k, "--k", int) if k is not None else K_CHOICES
    frequencies = FREQUENCY_CHOICES
    if routing_frequency is not None:
        frequencies = options.numbers(routing_frequency, "--routing-frequency", float, highest=1)
    architecture = {"--k": k, "--routing-frequency": routing_frequency}
    if runs is None:
        options.refuse_without_effect(architecture, "on published fits, which hold for the K and R of their models")

    def check(chosen: Law) -> None:
        check_countable(chosen)
        if not ranks_architectures(chosen):
            options.refuse_without_effect(architecture, f"under law {chosen.name}, which reads no compute")
        if not knows_routing(chosen):
            options.refuse_without_effect({"--experts": experts}, f"under law {chosen.name}, which knows no routing")

    made = predictors(runs, fit, law, router, target, draws=draws, seed=seed, plugins=plugin, check=check)
    best = best_models(
        made,
        budget,
        PAPER_SIZES if ladder == "paper" else fine_ladder(4e6, 100e9),
        experts=experts_considered,
        ks=ks,
        frequencies=frequencies,
        level=level,
        top=top,
    )
    if as_json:
        fits = [
            {
                "name": p.name,
                "law": p.law.name,
                "source": p.source,
                "left_out": p.left_out,
                "warnings": p.warnings,
            }
            for p in made
        ]
        print_json({"budget": asdict(budget), "fits": fits, "level": level, "best": [asdict(c) for c in best]})
    else:
        _show(best, budget.target_loss, level, made)


def _show(best: list[Candidate], target_loss: float | None, level: float, used: list[Predictor]) -> None:
    from routelaw.cli.output import number, show, span, table
    from routelaw.formatting import byte_size
    from routelaw.plans.budget import COUNTED_LIKE, ranks_architectures
    from routelaw.specs.names import TECHNIQUES

    goal = f"least compute for a loss of {target_loss:g}" if target_loss is not None else "lowest predicted loss"
    made = table(
        f"{goal}, best first",
        "model",
        "E",
        "K",
        "R",
        "loss",
        f"{level:.0%} interval",
        "N̄",
        "total",
        "FLOPs/token",
        "memory",
    )
    for c in best:
        made.add_row(
            f"{c.router} {c.size}" + (" *" if c.extrapolation else ""),
            str(c.experts),
            str(c.k) if c.experts > 1 else "–",
            f"{c.routing_frequency:g}" if c.experts > 1 else "–",
            f"{c.loss:.4f}",
            span(*c.interval) if c.interval else "–",
            number(c.effective_params) if c.effective_params else "–",
            number(c.counts.total_params),
            number(c.counts.flops_per_token),
            byte_size(c.memory_bytes),
        )
    show(made)
    if best[0].extrapolation:
        show(f"! * The best answer extrapolates: {best[0].extrapolation}. Do not trust its loss to the last digit.")
    others: dict[str, Candidate] = {}
    for c in best[1:]:
        if c.extrapolation and c.extrapolation != best[0].extrapolation:
            others.setdefault(c.extrapolation, c)
    for c in list(others.values())[:REASONS_SHOWN]:
        show(f"  * {c.router} {c.size} with E = {c.experts} extrapolates: {c.extrapolation}.")
    for p in used:
        if p.left_out:
            show(f"  {p.name}: left out: {'; '.join(p.left_out)}.")
    warnings: dict[str, list[str]] = {}
    for p in used:
        for warning in p.warnings:
            if not warning.startswith(("n_cut", "N̄_max", "under law")):  # a plan does not rest on where routing ends
                warnings.setdefault(warning, []).append(p.name)
    for warning, names in warnings.items():
        show(f"! {', '.join(names)}: {warning}")
    for p in used:
        if p.router not in TECHNIQUES:
            show(
                f"  The router of {p.router} is counted like that of {COUNTED_LIKE}: one linear layer per routed block."
            )
    if not any(ranks_architectures(p.law) for p in used):
        show(
            "  K and R are those of the models fitted: a law that reads no compute knows no others; "
            "--law compute on a table does."
        )


def epc(
    runs: options.RunsOrPublished = None,
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
        _show_equivalents(rows, active, experts, level, wanted, loss)


def _show_equivalents(rows, active, experts, level, wanted, loss) -> None:
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
    for sentence in _equivalents_warnings(rows):
        show(sentence)


def _equivalents_warnings(rows: list[dict[str, Any]]) -> list[str]:
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
    published = [r for r in rows if r["published"] and r["intervals"]["effective_params"] is None]
    if published:
        lines.append("  Coefficients that were printed carry no intervals; give a run table for them.")
    if any(r["law"] == "saturated" for r in published):
        lines.append(
            "  N_cut = 10^(−b/c), and the three digits that the paper prints of b and c do not determine it: "
            "clark2022/…, fitted to the released losses, do."
        )
    return lines
