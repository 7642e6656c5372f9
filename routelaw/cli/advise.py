"""`routelaw advise`: the paper's recommendations to practitioners, judged on a table of runs."""

from __future__ import annotations

from typing import Annotated

import typer

from routelaw.cli import options


def advise(
    runs: options.Runs = None,
    target: options.Target = "loss_validation",
    variant: Annotated[
        str | None,
        typer.Option(help="Advise on routers of this variant.", show_default="each router's most frequent"),
    ] = None,
    gain: Annotated[
        float, typer.Option(help="Percent of the loss that a doubling of E has to gain to be worth while.")
    ] = 1.0,
    level: options.Level = 0.9,
    as_json: options.AsJson = False,
) -> None:
    """The paper's six recommendations as statements about these runs: whether to route and up to which size, which
    router, how many experts, K and R, limits, and which runs are missing. Each with a verdict and its numbers."""
    options.use_one_thread()
    from routelaw.cli.output import print_json, say
    from routelaw.fitting.advice import advise as advise_on

    advice = advise_on(options.load(runs), target=target, variant=variant, gain=gain, level=level)
    if as_json:
        print_json(advice.as_dict())
    else:
        for line in advice.lines():
            say(line)
