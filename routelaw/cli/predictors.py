"""Where a command's predictions come from: a published fit by name, or a fit to the user's table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.laws import Law
    from routelaw.plans.predictor import Predictor

PUBLISHED_TARGET, PUBLISHED_LAW = "loss_validation", "saturated"


def predictors(
    runs: Path | None,
    named: list[str] | None,
    law: str,
    routers: list[str] | None,
    target: str,
    *,
    draws: int | None,
    seed: int | None,
    plugins: list[Path] | None = None,
    check: Callable[[Law], None],
    quiet: bool = False,
) -> list[Predictor]:
    """Published fits when named, or when there is no table at all; else the law fitted to each router of the table.

    `check` refuses a law that the command has no use for, before anything is fitted. `quiet`: of routers left out
    somebody has heard already.
    """
    from routelaw.cli import options
    from routelaw.errors import InputError
    from routelaw.fitting.fit import fit_law
    from routelaw.fitting.intervals import DEFAULT_DRAWS
    from routelaw.fitting.judgement import judge
    from routelaw.fitting.points import has_finished, knows_routing, select_points
    from routelaw.laws import get_law
    from routelaw.plans.predictor import Predictor
    from routelaw.specs.techniques import DENSE, canonical_router

    if named and runs:
        raise InputError("give either a run table or --fit, not both.")
    if named and routers:
        raise InputError("give either --router or --fit, not both: a published fit is of one router.")
    if runs is None:
        if plugins:
            raise InputError("--plugin has no effect on published fits: give a run table for the law to be fitted to.")
        options.refuse_without_effect({"--draws": draws, "--seed": seed}, "on published fits, which have no intervals")
        for option, asked, only in (("--target", target, PUBLISHED_TARGET), ("--law", law, PUBLISHED_LAW)):
            if asked != only:
                raise InputError(f"{option} {asked} needs a run table: the published fits have {only} alone.")
        return _published(named, routers)
    table = options.load(runs, plugins)
    chosen = get_law(law)
    check(chosen)
    asked = list(dict.fromkeys(map(canonical_router, routers or [])))
    wanted = asked or ([r for r in table.routers if r != DENSE] if knows_routing(chosen) else [DENSE])
    if not wanted:
        raise InputError(f"{table.source}: there are only dense runs, which --law dense describes.")
    made = []
    for router in wanted:
        if not asked and len(wanted) > 1 and not has_finished(table, router):
            if not quiet:
                note(f"{router} is left out: it has no finished run.")
            continue
        points = select_points(table, router, chosen, target=target)
        judged = judge(fit_law(chosen, points), draws=draws or DEFAULT_DRAWS, seed=seed or 0)
        made.append(Predictor.from_judgement(judged))
    if not made:
        raise InputError(f"{table.source}: no router has a finished run to fit.")
    return made


def _published(named: list[str] | None, routers: list[str] | None) -> list[Predictor]:
    from routelaw.errors import InputError
    from routelaw.plans.literature import PUBLISHED, published
    from routelaw.specs.nearest import nearest_hint
    from routelaw.specs.techniques import canonical_router

    if named:
        return [published(name) for name in dict.fromkeys(named)]
    known = {entry.router: name for name, entry in PUBLISHED.items()}
    wanted = list(dict.fromkeys(map(canonical_router, routers or ["s-base", "rl-r", "hash"])))
    for router in wanted:
        if router not in known:
            hint, there = nearest_hint(router, known), ", ".join(known)
            raise InputError(f"no published fit of router {router!r}{hint}; there are {there}, or give a run table.")
    return [published(known[r]) for r in wanted]
