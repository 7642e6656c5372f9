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
    from routelaw.fitting.intervals import DEFAULT_DRAWS
    from routelaw.plans.literature import published_predictors
    from routelaw.plans.predictor import fitted_predictors

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
        return published_predictors(named or (), routers or ())
    return fitted_predictors(
        options.load(runs, plugins),
        law,
        routers or (),
        target=target,
        draws=draws or DEFAULT_DRAWS,
        seed=seed or 0,
        check=check,
        notice=(lambda _: None) if quiet else note,
    )
