"""`routelaw plan layout`: which data × expert × tensor to train a run on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from routelaw.costs.layouts import LayoutPlan, LayoutRanking
    from routelaw.specs.run import RunSpec

A_STEP = 1
"""A plan is of one step: how many there are does not matter."""
NOT_READ = {
    "execution.": "a plan tries every layout and its own micro-batches",
    "train.seed": "a plan draws nothing",
    "train.steps": "a plan is of one step",
}
"""Fields of a run that a plan does not read. In a file they may stand, since it may be that of a run."""
READ = "execution.precision"
LEAST_SHOWN = 1e-5
"""Seconds: counts and norms alone are no waiting."""


def layout(
    devices: Annotated[int, typer.Option(help="How many devices there are.")],
    device: Annotated[str, typer.Option(help="Which, by name: a100, h100, h200, b200, l40s or l4.")] = "h100",
    spec: Annotated[
        Path | None, typer.Option(help="A TOML file with [model], [router], [train]; options win over it.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="A model size by name.")] = None,
    router: Annotated[
        str | None, typer.Option(help="dense, s-base, rl-r, hash, switch or base.", show_default="s-base")
    ] = None,
    experts: Annotated[int | None, typer.Option(help="E: experts in each routed block.")] = None,
    k: Annotated[int | None, typer.Option(help="K: experts that a token visits.")] = None,
    routing_frequency: Annotated[float | None, typer.Option(help="R: share of the blocks that is routed.")] = None,
    batch: Annotated[int | None, typer.Option(help="Sequences per step.", show_default="256")] = None,
    sequence_length: Annotated[int | None, typer.Option(help="Tokens in a sequence.", show_default="2048")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any other field: router.group_tokens=2048 (repeatable).")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="bfloat16 or float32.", show_default="bfloat16")] = None,
    node: Annotated[int, typer.Option(min=1, help="Devices in a node.")] = 8,
    link: Annotated[
        str | None, typer.Option(help="Bytes per second to others of the node, one direction; e.g. 450GB.")
    ] = None,
    network: Annotated[str | None, typer.Option(help="Bytes per second to other nodes, per device; e.g. 50GB.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many to list.")] = 8,
    as_json: options.AsJson = False,
) -> None:
    """Every layout data × expert × tensor of the devices: memory, bytes sent and step time, quickest first.

    Below it the arithmetic of the best one, line by line. Memory and bytes are those of the code; times are rough.
    """
    from routelaw.cli.options import one_of, settings_of
    from routelaw.cli.output import print_json
    from routelaw.costs.layouts import Cluster, plan_layouts
    from routelaw.costs.step_time import known_device
    from routelaw.specs.files import gather_tables

    chosen = {
        "model.size": size,
        "model.sequence_length": sequence_length,
        "router.name": router,
        "router.experts": experts,
        "router.k": k,
        "router.routing_frequency": routing_frequency,
        "train.batch": batch,
    }
    _check_settings(set_ or [], {**chosen, READ: precision})
    if devices <= node:
        options.refuse_without_effect({"--network": network}, "on one node")
    meant, asked = _understood(
        gather_tables(spec, chosen, settings_of(set_ or [])), str(spec) if spec else "the options"
    )
    precision = one_of(asked if precision is None else precision, ("bfloat16", "float32"), "--precision")
    kind = known_device(device)
    cluster = Cluster(
        kind,
        devices,
        options.quantity(link, "--link") if link is not None else kind.link,
        options.quantity(network, "--network") if network is not None else kind.network,
        node,
    )
    plan = plan_layouts(meant, cluster, precision)
    if as_json:
        print_json(_as_json(plan))
    else:
        _show(plan, top)


def _check_settings(settings: list[str], chosen: dict[str, Any]) -> None:
    """Refuse settings that a plan does not read, and those that say again what an option says."""
    from routelaw.cli.options import settings_of
    from routelaw.errors import InputError

    for name in settings_of(settings):
        for unread, why in NOT_READ.items():
            if name.startswith(unread) and name != READ:
                raise InputError(f"--set {name} has no effect here, since {why}: leave it out.")
        if chosen.get(name) is not None:
            option = {"router.name": "router", READ: "precision"}.get(name, name.partition(".")[2].replace("_", "-"))
            raise InputError(f"give either --{option} or --set {name}, not both.")


def _understood(tables: dict[str, Any], where: str) -> tuple[RunSpec, str]:
    """The run, of no corpus, and the precision that a file asks for."""
    from routelaw.errors import InputError
    from routelaw.specs.files import from_mapping, run_spec
    from routelaw.specs.run import ExecutionSpec

    tables.pop("corpus", None)
    execution = from_mapping(ExecutionSpec, tables.pop("execution", {}), f"{where} [execution]")
    for table, key, value in (("router", "name", "s-base"), ("train", "steps", A_STEP)):
        if isinstance(own := tables.setdefault(table, {}), dict):
            own.setdefault(key, value)
    named = tables["router"]
    if isinstance(named, dict) and named["name"] != "dense" and "experts" not in named:
        raise InputError("say how many --experts there are, or --router dense.")
    asked = execution.precision
    return run_spec(tables, "any", where), "bfloat16" if asked == "auto" else asked


def _as_json(plan: LayoutRanking) -> dict[str, Any]:
    from dataclasses import asdict

    from routelaw.plans.layout_arithmetic import arithmetic

    cluster = plan.cluster
    return {
        **asdict(plan.spec.counts),
        "device": cluster.device.name,
        "devices": cluster.devices,
        "node": cluster.node,
        "link": cluster.link,
        "network": cluster.network,
        "precision": plan.precision,
        "layouts": [_row(p) for p in (*plan.fitting, *plan.too_large)],
        "notes": plan.notes,
        "arithmetic": {head: [asdict(line) for line in lines] for head, lines in arithmetic(plan).items()},
    }


def _row(p: LayoutPlan) -> dict[str, Any]:
    from dataclasses import asdict

    from routelaw.costs.communication import sent_by_kind

    return {
        **asdict(p.layout),
        "micro_batches": p.micro_batches,
        "fits": not p.missing,
        "missing": p.missing,
        "needed": p.needed,
        "memory": {**asdict(p.memory), "total": p.memory.total},
        "sent": {**sent_by_kind(tuple(c.flow for c in p.crossings)), "total": p.sent, "between_nodes": p.between_nodes},
        "seconds": {
            "computing": p.compute.total,
            "gathering_and_reducing": p.overlapped,
            "waiting": p.waited,
            "step": p.step_seconds,
            "without_overlap": p.without_overlap,
        },
    }


def _show(plan: LayoutRanking, top: int) -> None:
    from routelaw.cli.output import number, show
    from routelaw.plans.layout_arithmetic import arithmetic

    spec, cluster = plan.spec, plan.cluster
    counts = spec.counts
    show(
        f"{spec.router.name}, E = {spec.router.experts}: N {number(counts.active_params)} active and "
        f"P {number(counts.total_params)} total parameters, {number(counts.flops_per_token)} FLOPs per token; "
        f"{spec.train.batch} sequences of {spec.model.sequence_length:,} a step, {plan.precision}, on "
        f"{cluster.devices} × {cluster.device.name} in nodes of {cluster.node}"
    )
    show(_table((*plan.fitting, *plan.too_large)[:top]))
    if hidden := max(0, len(plan.fitting) - top):
        show(f"  {hidden} more fit: --top {len(plan.fitting)} lists them.")
    best = plan.best
    show(f"The arithmetic of {best.layout}, {best.micro_batches} micro-batch{'es' * (best.micro_batches > 1)}:")
    for head, lines in arithmetic(plan).items():
        show(
            f"  {head}", *(f"    {line.what}: {line.formula}{' = ' * bool(line.result)}{line.result}" for line in lines)
        )
    show(*(f"! {note}" for note in plan.notes), *_assumptions(plan))


def _table(plans: Sequence[LayoutPlan]) -> Table:
    from routelaw.cli.output import table
    from routelaw.formatting import byte_size
    from routelaw.plans.layout_arithmetic import seconds

    made = table(
        "data × expert × tensor, quickest first, what does not fit last; memory and bytes of one process",
        "layout", "micro-batches", "memory", "parameters", "optimiser", "activations", "all-to-all",
        "sent", "to other nodes", "computes", "gathers experts", "waits", "step",
    )  # fmt: skip
    for p in plans:
        m = p.memory
        kept = m.activations + m.logits
        sizes = (p.needed, m.parameters, m.masters + m.optimizer, kept, m.exchange, p.sent, p.between_nodes)
        spent = (p.compute.total, p.overlapped, p.waited, p.step_seconds)
        times = [seconds(float(f"{t:.3g}")) if t >= LEAST_SHOWN else "–" for t in spent]
        shown = [byte_size(s) if s else "–" for s in sizes]
        if p.missing:
            shown[0] += f", {byte_size(p.missing)} too much"
        named = f"{p.layout.data}×{p.layout.expert}×{p.layout.tensor}"
        made.add_row(named, str(p.micro_batches), *shown, *times)
    return made


def _assumptions(plan: LayoutRanking) -> list[str]:
    from routelaw.costs.layouts import REACHED
    from routelaw.costs.step_time import BEST_SHARE

    lines = [
        f"  Assumed: balanced routing and nothing dropped; links at {REACHED:.0%} of their data sheets, products at up "
        f"to {BEST_SHARE:.0%}; gathering and reducing experts overlaps with computing. Times rank layouts; "
        "none has been timed on GPUs."
    ]
    if plan.precision != "bfloat16":
        lines.append("! Rates are those of bfloat16: products in float32 take longer.")
    return lines
