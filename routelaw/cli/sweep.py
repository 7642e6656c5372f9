"""`routelaw sweep`: from one file to many trained runs; give the same command again to continue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.runs.store import Store
    from routelaw.sweeps.estimate import SweepEstimate
    from routelaw.sweeps.machine import Machine
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
    from routelaw.cli.choices import one_of
    from routelaw.cli.output import print_json
    from routelaw.cli.run_tables import settings_of
    from routelaw.cli.sweep_screen import show_end, show_estimate, watch
    from routelaw.errors import InputError
    from routelaw.runs.store import Store
    from routelaw.sweeps.run_sweep import Ray, load_sweep, machine_of, run_sweep

    one_of(backend, BACKENDS, "--backend")
    _refuse_without_effect(
        {
            "--jobs": (jobs, backend == "local", "--backend local"),
            "--address": (address, backend == "ray", "--backend ray"),
            "--cpus-per-run": (cpus_per_run, backend == "ray", "--backend ray"),
            "--gpus-per-run": (gpus_per_run, backend == "ray", "--backend ray"),
            "--price": (price, dry_run, "--dry-run"),
            "--device-name": (device_name, dry_run, "--dry-run"),
            "--measure": (measure or None, dry_run, "--dry-run"),
        }
    )
    planned, kept = (
        load_sweep(file, corpus=corpus, settings=settings_of(set_ or []), plugins=plugin or []),
        Store(store),
    )
    ray = None
    if backend == "ray":
        ray = Ray(address, 1.0 if cpus_per_run is None else cpus_per_run, gpus_per_run or 0.0)
    if dry_run:
        machine = machine_of(planned, jobs, ray, note)
        if ray and machine.device == "cuda" and not device_name:
            raise InputError("say which GPU the cluster has, with --device-name, to estimate for it.")
        estimate = _estimated(planned, kept, machine, measure, price, device_name)
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


def _estimated(
    sweep: Sweep,
    store: Store,
    machine: Machine,
    measure: bool,
    price: float | None,
    device_name: str | None,
) -> SweepEstimate:
    from routelaw.cli.output import progress
    from routelaw.sweeps.estimate import estimate_sweep

    with progress(quiet=not measure) as bar:
        task = bar.add_task("timing a few steps of every shape", total=None)
        return estimate_sweep(
            sweep.runs,
            store,
            machine=machine,
            measure=measure,
            price=price,
            device_name=device_name,
            plugins=sweep.plugins,
            notice=lambda done, total: bar.update(task, completed=done, total=total),
        )


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
