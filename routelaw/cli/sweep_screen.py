"""A sweep on the screen: one live table while it goes on, and what became of it.

Where nobody watches (a pipe, a log file) a line per event takes the table's place.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import typer

from routelaw.formatting import printable
from routelaw.specs.run import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.console import Group

    from routelaw.runs.store import Store
    from routelaw.specs.run import RunSpec
    from routelaw.sweeps.estimate.sweep_estimate import SweepEstimate
    from routelaw.sweeps.progress import Event, SweepProgress
    from routelaw.sweeps.sweep import Sweep

INTERRUPTED = 130


def watch(events: Iterator[Event], sweep: Sweep, store: Store, *, quiet: bool) -> dict[str, str]:
    """Follow a sweep to its end; returns the reasons of the runs that failed. Ctrl-C stops it in good order, and says
    so before the workers are waited for: who sees nothing happen would press it again."""
    from rich.console import Console
    from rich.live import Live

    from routelaw.sweeps.progress import Tick, Watch

    console = Console(stderr=True, quiet=quiet, highlight=False)
    specs = {run.spec.run_id: run.spec for run in sweep.runs}
    failed: dict[str, str] = {}
    watching = Watch(store, list(specs.values()))
    stopping = "stopping in good order; Ctrl-C again does not wait."
    with (
        Live(console=console, auto_refresh=False, transient=True) as live,
        _on_interrupt(lambda: console.print(stopping)),
    ):
        try:
            for event in events:
                progress = watching.now()
                if not isinstance(event, Tick):
                    line = _line(event, specs, store, progress, failed)
                    if line and not quiet:
                        live.console.print(printable(line), markup=False, soft_wrap=True)
                if console.is_terminal:
                    live.update(_screen(progress), refresh=True)
        except KeyboardInterrupt:
            events.close()  # pyrefly: ignore
            typer.echo("stopped; the same command continues.", err=True)
            raise typer.Exit(INTERRUPTED) from None
    return failed


@contextmanager
def _on_interrupt(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` at the first Ctrl-C, or when a batch system or a closed terminal asks to end, before anything is
    unwound; the next Ctrl-C is Python's own."""
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupted(_number: int, _frame: FrameType | None) -> None:
        for number in asked:
            signal.signal(number, signal.default_int_handler)
        with suppress(OSError):  # the terminal may be gone
            say()
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupted) for number in asked]
    try:
        yield
    finally:
        for number, handler in zip(asked, before, strict=True):
            signal.signal(number, handler)


def _line(
    event: Event, specs: dict[str, RunSpec], store: Store, progress: SweepProgress, failed: dict[str, str]
) -> str:
    from routelaw.sweeps.progress import Lost, RunEnded, RunFailed, Waiting

    if isinstance(event, RunEnded):
        result = store.find(event.run_id).result
        loss = result.get("loss_validation")
        how = f"loss {loss:.4f}" if result.get("status") == "finished" and loss is not None else result.get("status")
        return f"{_count(progress)} {describe(specs[event.run_id])}: {how}{_left(progress.seconds_left)}"
    if isinstance(event, RunFailed):
        failed[event.run_id] = event.reason
        return f"{_count(progress)} {describe(specs[event.run_id])} FAILED: {event.reason}"
    if isinstance(event, Waiting):
        return f"{_count(progress)} {describe(specs[event.run_id])}: held by {event.holder}; waiting for it"
    if isinstance(event, Lost):
        return (
            f"{_count(progress)} {describe(specs[event.run_id])}: {event.reason}; it goes on from its last checkpoint"
        )
    return ""


def _screen(progress: SweepProgress) -> Group:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    from routelaw.cli.output import table

    made = table("", "run", "step", "loss", "tokens/s", "dropped", "left")
    for row in progress.running:
        made.add_row(
            describe(row.spec),
            f"{row.step:,} of {row.spec.train.steps:,}",
            "–" if row.loss is None else f"{row.loss:.4f}",
            f"{row.tokens_per_second:,.0f}" if row.tokens_per_second else "–",
            "–" if row.dropped is None else f"{row.dropped:.1%}",
            _clock(row.seconds_left),
        )
    head = f"{_count(progress)} {progress.share:.0%}{_left(progress.seconds_left)}"
    return Group(made, Text(head), ProgressBar(total=1.0, completed=progress.share, width=60))


def show_estimate(sweep: Sweep, estimate: SweepEstimate) -> None:
    """The runs and what they will take, before anything starts."""
    from routelaw.cli.output import memory, number, show, table

    priced = estimate.cost is not None
    columns = ("run", "id", "N", "P", "FLOPs", "memory", "time", *(["cost"] if priced else []), "by")
    made = table(f"{len(sweep.runs)} runs of {sweep.source}", *columns)
    for run, cost in zip(sweep.runs, estimate.runs, strict=True):
        counts = run.spec.counts
        made.add_row(
            describe(run.spec),
            run.spec.run_id,
            number(counts.active_params, 3),
            number(counts.total_params, 3),
            f"{cost.training_flops:.2e}",
            memory(cost.required.device or cost.required.host),
            "done" if cost.done else _clock(cost.seconds),
            *([f"{cost.cost:,.2f}"] if priced else []),
            cost.how,
        )
    show(made, *estimate.sentences())


def show_end(sweep: Sweep, store: Store, failed: dict[str, str]) -> None:
    from routelaw.cli.output import show, table
    from routelaw.runs.store import OUTPUT

    made = table(f"{sweep.source} in {store.path}", "run", "id", "status", "loss_validation", "seconds")
    for run in sweep.runs:
        if not store.ended(run.spec.run_id):
            continue
        result = store.find(run.spec.run_id).result
        loss = result.get("loss_validation")
        shown = "–" if loss is None else f"{loss:.4f}"
        made.add_row(describe(run.spec), run.spec.run_id, result["status"], shown, f"{result['seconds']:.0f}")
    show(made)
    for run_id, reason in failed.items():
        attempts = store.attempts(run_id)
        show(f"FAILED {run_id}: {reason}" + (f" (log: {attempts[-1][1] / OUTPUT})" if attempts else ""))
    if failed:
        show(f"{len(failed)} of {len(sweep.runs)} runs failed; the same command tries them again.")
    show(f"Look at it: routelaw report {store.path} --out out/report")


def _count(progress: SweepProgress) -> str:
    return f"[{progress.ended}/{progress.runs}]"


def _left(seconds: float | None) -> str:
    return "" if seconds is None else f", {_clock(seconds)} left"


def _clock(seconds: float | None) -> Any:
    return "–" if seconds is None else str(timedelta(seconds=round(seconds)))
