"""`routelaw sweep`: from one file to many trained runs; give the same command again to continue.

While it goes on a terminal shows one live table; into a pipe or a log file a line per event takes its place.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli.output import note
from routelaw.formatting import printable
from routelaw.specs.run import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from rich.console import Group

    from routelaw.runs.store import Store
    from routelaw.specs.run import RunSpec
    from routelaw.sweeps.progress import Event, SweepProgress
    from routelaw.sweeps.run_sweep import SweepTraining
    from routelaw.sweeps.sweep import Sweep


SOME_FAILED = 1
BACKENDS = ("local", "ray")


def sweep(
    file: Annotated[
        Path, typer.Argument(help="A TOML file: a base run and grids. experiments/paper/ has those of the paper.")
    ],
    store: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    corpus: Annotated[Path | None, typer.Option(help="A corpus to use instead of the file's.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any field, for all runs: train.steps=100 (repeatable).")
    ] = None,
    smallest: Annotated[
        int | None, typer.Option(min=1, help="Only the runs of so many of the smallest sizes: to try a sweep.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would run, and what it would take.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time a few steps of every shape for the estimate.")
    ] = False,
    price: Annotated[
        float | None, typer.Option(min=0, max=1e9, help="Price of one device for an hour, for the estimate.")
    ] = None,
    device_name: Annotated[
        str | None, typer.Option(help="Estimate for a device that is not here: h100, h200, a100 …")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, max=1e6, help="Estimate with as many devices for each run whose layout is auto."),
    ] = None,
    backend: Annotated[str, typer.Option(help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    jobs: Annotated[
        int | None, typer.Option(help="local: runs at a time, on a GPU side by side; one per GPU or core unless given.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="ray: the cluster's address; one that runs here unless given.")
    ] = None,
    cpus_per_run: Annotated[
        float | None,
        typer.Option(min=0, max=1e6, help="ray: CPUs set aside for each process of a run.", show_default="1"),
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(min=0, max=1e6, help="ray: GPUs for each process; 0.25: four runs share one.", show_default="0"),
    ] = None,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file that registers a router. Code, so only what you trust.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Nothing but one JSON object at the end.")] = False,
) -> None:
    """Train every run of a sweep file that the store does not hold yet.

    Stop it, kill it, start it twice: no run is trained twice and none is lost. Exit code 1: some runs failed.
    """
    from routelaw.cli.options import one_of, settings_of
    from routelaw.cli.output import print_json, progress
    from routelaw.cli.sweep_estimate import show_estimate
    from routelaw.runs.store import Store
    from routelaw.sweeps.dry_run import dry_run as estimate_by_dry_run
    from routelaw.sweeps.run_sweep import Ray, load_sweep, run_sweep

    one_of(backend, BACKENDS, "--backend")
    _refuse_without_effect(
        {
            "--jobs": (jobs, backend == "local", "--backend local"),
            "--address": (address, backend == "ray", "--backend ray"),
            "--cpus-per-run": (cpus_per_run, backend == "ray", "--backend ray"),
            "--gpus-per-run": (gpus_per_run, backend == "ray", "--backend ray"),
            "--price": (price, dry_run, "--dry-run"),
            "--device-name": (device_name, dry_run, "--dry-run"),
            "--devices": (devices, dry_run, "--dry-run"),
            "--measure": (measure or None, dry_run, "--dry-run"),
        }
    )
    settings, plugins = settings_of(set_ or []), plugin or []
    planned = load_sweep(
        file, corpus=corpus, settings=settings, plugins=plugins, smallest=smallest, may_lack_corpus=dry_run
    )
    kept = Store(store)
    ray = None
    if backend == "ray":
        ray = Ray(address, 1.0 if cpus_per_run is None else cpus_per_run, gpus_per_run or 0.0)
    if dry_run:
        with progress(quiet=not measure) as bar:
            task = bar.add_task("timing a few steps of every shape", total=None)
            estimate = estimate_by_dry_run(
                planned,
                kept,
                jobs=jobs,
                ray=ray,
                measure=measure,
                price=price,
                device_name=device_name,
                devices=devices,
                remark=note,
                notice=lambda done, total: bar.update(task, completed=done, total=total),
            )
        print_json(estimate.to_json()) if as_json else show_estimate(planned, estimate)
        return
    training = run_sweep(planned, kept, jobs=jobs, ray=ray, notice=note)
    if not as_json:
        note_what_is_there(training)
    failed = watch(training.events(), planned, kept, quiet=as_json)
    if as_json:
        print_json(_summary(planned, kept, failed))
    else:
        show_end(planned, kept, failed)
    if failed:
        raise typer.Exit(SOME_FAILED)


def note_what_is_there(training: SweepTraining) -> None:
    """How many of the runs need not be trained."""
    if count := len(training.sweep.runs) - len(training.missing):
        note(f"{count} of {len(training.sweep.runs)} runs are in {training.store.path} already.")


def _refuse_without_effect(options: dict[str, tuple[Any, bool, str]]) -> None:
    """Options that were given, whether they are used, and with what they would be."""
    from routelaw.errors import InputError

    for name, (given, used, where) in options.items():
        if given is not None and not used:
            raise InputError(f"{name} has no effect without {where}: leave it out.")


def _summary(sweep: Sweep, store: Store, failed: dict[str, str]) -> dict[str, Any]:
    results = {
        run.spec.run_id: store.find(run.spec.run_id).result for run in sweep.runs if store.ended(run.spec.run_id)
    }
    return {
        "runs": len(sweep.runs),
        "ended": len(results),
        "diverged": sorted(run_id for run_id, result in results.items() if result["status"] == "diverged"),
        "failed": failed,
        "store": str(store.path),
        "results": {run_id: result["loss_validation"] for run_id, result in results.items()},
    }


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
