"""`routelaw sweep --dry-run`: what the runs of a sweep are and what they will take, before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routelaw.sweeps.estimate.sweep_estimate import RunEstimate, SweepEstimate
    from routelaw.sweeps.sweep import Sweep


def show_estimate(sweep: Sweep, estimate: SweepEstimate) -> None:
    """The runs and what they will take."""
    from routelaw.cli.output import show, table

    spread = bool(estimate.without_layout) or any(run.run.execution.processes.world > 1 for run in estimate.runs)
    named = any(run.run.run_id for run in estimate.runs)
    priced = estimate.cost is not None
    ways = {run.how for run in estimate.runs}
    title = f"{len(sweep.runs)} runs of {sweep.source}"
    title += "; layouts are data × expert × tensor" * spread
    title += "; memory of one device" * (spread and all(run.required.device for run in estimate.runs))
    title += f"; times by {next(iter(ways))}" * (len(ways) == 1)
    layout = ["layout", "devices"] * spread
    head = [
        "run",
        *["id"] * named,
        "tokens",
        "N",
        "P",
        "FLOPs",
        *layout,
        "memory",
        "time",
        *["cost"] * priced,
        *["by"] * (len(ways) > 1),
    ]
    made = table(title, *head)
    for run in estimate.runs:
        made.add_row(*_cells(run, named=named, spread=spread, several_ways=len(ways) > 1))
    show(made, *estimate.sentences())


def _cells(run: RunEstimate, *, named: bool, spread: bool, several_ways: bool) -> list[str]:
    from routelaw.cli.output import number
    from routelaw.formatting import byte_size, duration
    from routelaw.specs.run import describe
    from routelaw.sweeps.estimate.sweep_estimate import tokens_of

    spec, layout = run.run.spec, run.run.execution.processes
    counts = spec.counts
    return [
        describe(spec),
        *[run.run.run_id or "–"] * named,
        number(tokens_of(run.run), 3),
        number(counts.active_params, 3),
        number(counts.total_params, 3),
        f"{run.training_flops:.2e}",
        *[layout.name, str(run.devices)] * spread,
        byte_size(run.required.device or run.required.host),
        "done" if run.done else duration(run.seconds),
        *([] if run.cost is None else [f"{run.cost:,.2f}"]),
        *[run.how] * several_ways,
    ]
