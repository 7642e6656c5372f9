"""`routelaw count`: what a model costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from routelaw.cli.options import refuse_without_effect
from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.specs.run import RouterSpec


def count(
    size: Annotated[
        str,
        typer.Option(help="Of the paper (15M … 7B), miniature (0.2M … 20M), or a rung such as 207M."),
    ],
    router: Annotated[str, typer.Option(help="dense, s-base, rl-r, hash, switch or base.")] = "dense",
    experts: Annotated[int, typer.Option(help="E: experts in each routed block.")] = 1,
    k: Annotated[int | None, typer.Option(help="K: experts that a token visits.", show_default="1")] = None,
    routing_frequency: Annotated[
        float | None, typer.Option(help="R: share of the blocks that is routed.", show_default="0.5")
    ] = None,
    flop_increase: Annotated[int, typer.Option(help="Dense only: FFW FLOPs of the R·L blocks times this.")] = 1,
    shared_decisions: Annotated[bool, typer.Option("--shared-decisions", help="One router for all blocks.")] = False,
    ffws_per_expert: Annotated[int, typer.Option(help="FFWs stacked in each expert.")] = 1,
    sequence_length: Annotated[int, typer.Option(help="T: tokens in a sequence, for the FLOPs of attention.")] = 2048,
    vocabulary: Annotated[int, typer.Option(help="V: tokens to choose from, for the FLOPs of the logits.")] = 32_000,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of the router: variant=G for rl-r (repeatable).")
    ] = None,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file that registers a router. Code, so only what you trust.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Count active parameters, total parameters and forward FLOPs per token, exactly."""
    import json
    from dataclasses import asdict

    from routelaw.specs import counting
    from routelaw.specs.names import DENSE
    from routelaw.specs.sizes import get_size

    chosen = _known(router, option or [], plugin or [])
    if chosen.name == DENSE and flop_increase == ffws_per_expert == 1:
        given = {"--k": k, "--routing-frequency": routing_frequency, "--shared-decisions": shared_decisions or None}
        refuse_without_effect(given, "on a dense model")
    counts = counting.count(
        get_size(size),
        chosen.name,
        experts,
        k=1 if k is None else k,
        routing_frequency=0.5 if routing_frequency is None else routing_frequency,
        flop_increase=flop_increase,
        shared_decisions=shared_decisions,
        ffws_per_expert=ffws_per_expert,
        value_layers=chosen.value_layers,
        sequence_length=sequence_length,
        vocabulary=vocabulary,
    )
    if chosen.plugin:
        note(f"router {chosen.name} is counted as a linear one, whatever else its file holds.")
    if as_json:
        typer.echo(json.dumps(asdict(counts)))
        return
    for name, value in asdict(counts).items():
        typer.echo(f"{name:<16} {value:>22,}")


def _known(name: str, options: list[str], plugins: list[Path]) -> RouterSpec:
    """The router by name with its options; torch is needed only where there are options or plugins to check."""
    from dataclasses import replace

    from routelaw.cli.options import plain_value
    from routelaw.errors import InputError
    from routelaw.plugins import router_file
    from routelaw.specs.names import DENSE, known_router
    from routelaw.specs.run import RouterSpec

    if not options and not plugins:
        return RouterSpec(known_router(name))
    from routelaw.routers.router import load_router, router_class

    for file in plugins:
        load_router(file)
    given = {}
    for item in options:
        key, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"--option takes NAME=VALUE, such as variant=G, not {item!r}.")
        given[key.strip()] = plain_value(value.strip())
    spec = RouterSpec(name, options=given)
    if spec.name == DENSE:
        if given:
            raise InputError(f"--option {next(iter(given))} is for routers, and a dense model has none: leave it out.")
        return spec
    router_class(spec.name)(8, 8, 1, spec)  # which checks its options
    return replace(spec, plugin=router_file(spec.name))
