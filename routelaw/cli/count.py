"""`routelaw count`: what a model costs."""

from typing import Annotated

import typer


def count(
    size: Annotated[
        str,
        typer.Option(help="Of the paper (15M … 7B), miniature (0.2M … 20M), or a rung such as 207M."),
    ],
    router: Annotated[str, typer.Option(help="dense, s-base, rl-r, hash, switch or base.")] = "dense",
    experts: Annotated[int, typer.Option(help="E: experts in each routed block.")] = 1,
    k: Annotated[int, typer.Option(help="K: experts that a token visits.")] = 1,
    routing_frequency: Annotated[float, typer.Option(help="R: share of the blocks that is routed.")] = 0.5,
    flop_increase: Annotated[int, typer.Option(help="Dense only: FFW FLOPs of the R·L blocks times this.")] = 1,
    shared_decisions: Annotated[bool, typer.Option("--shared-decisions", help="One router for all blocks.")] = False,
    ffws_per_expert: Annotated[int, typer.Option(help="FFWs stacked in each expert.")] = 1,
    sequence_length: Annotated[int, typer.Option(help="T: tokens in a sequence, for the FLOPs of attention.")] = 2048,
    vocabulary: Annotated[int, typer.Option(help="V: tokens to choose from, for the FLOPs of the logits.")] = 32_000,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Count active parameters, total parameters and forward FLOPs per token, exactly."""
    import json
    from dataclasses import asdict

    from routelaw.specs import counting
    from routelaw.specs.sizes import get_size
    from routelaw.specs.techniques import known_router

    counts = counting.count(
        get_size(size),
        known_router(router),
        experts,
        k=k,
        routing_frequency=routing_frequency,
        flop_increase=flop_increase,
        shared_decisions=shared_decisions,
        ffws_per_expert=ffws_per_expert,
        sequence_length=sequence_length,
        vocabulary=vocabulary,
    )
    if as_json:
        typer.echo(json.dumps(asdict(counts)))
        return
    for name, value in asdict(counts).items():
        typer.echo(f"{name:<16} {value:>22,}")
