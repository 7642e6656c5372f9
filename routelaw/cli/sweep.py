"""`routelaw sweep`: from one file to many trained runs; give the same command again to continue."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from routelaw.cli.output import note

if TYPE_CHECKING:
    from routelaw.runs.store import Store
    from routelaw.sweeps.estimate import SweepEstimate
    from routelaw.sweeps.machine import Machine
    from routelaw.sweeps.sweep import Sweep

SOME_FAILED = 1
BACKENDS = ("local", "ray")


def sweep(
    file: Annotated[
        Path, typer.Argument(help="A TOML file: a base run and grids. experiments/ has those of the paper.")
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
    from routelaw.cli.sweep_screen import show_end, show_estimate
    from routelaw.errors import InputError
    from routelaw.kernels.cpu_bfloat16 import make_safe
    from routelaw.runs.store import Store
    from routelaw.sweeps.estimate import too_large
    from routelaw.sweeps.machine import Machine

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
    overrides = settings_of(set_ or []) | ({} if corpus is None else {"corpus": str(corpus)})
    planned, kept = understood(file, overrides, plugin or []), Store(store)
    ray = None
    if backend == "ray":
        ray = Ray(address, 1.0 if cpus_per_run is None else cpus_per_run, gpus_per_run or 0.0)
    executions = [run.execution for run in planned.runs]
    machine = Machine.on_cluster(executions, ray.cpus, ray.gpus) if ray else Machine.here(executions, jobs)
    if ray is None and machine.device == "cpu" and any(each.precision == "bfloat16" for each in executions):
        make_safe(note)  # here, so that all workers inherit it
    if dry_run or ray is None:  # what a cluster's nodes have is known to them alone
        if ray and machine.device == "cuda" and not device_name:
            raise InputError("say which GPU the cluster has, with --device-name, to estimate for it.")
        estimate = _estimated(planned, kept, machine, measure, price, device_name, plugin or [])
        if dry_run:
            print_json(estimate.to_json()) if as_json else show_estimate(planned, estimate)
            return
        if problem := too_large(estimate):
            raise InputError(problem)
    failed = carried_out(planned, kept, machine, ray, tuple(plugin or []), quiet=as_json)
    if as_json:
        print_json(_summary(planned, kept, failed))
    else:
        show_end(planned, kept, failed)
    if failed:
        raise typer.Exit(SOME_FAILED)


def _refuse_without_effect(options: dict[str, tuple[Any, bool, str]]) -> None:
    """Options that were given, whether they are used, and with what they would be."""
    from routelaw.errors import InputError

    for name, (given, used, where) in options.items():
        if given is not None and not used:
            raise InputError(f"{name} has no effect without {where}: leave it out.")


@dataclass(frozen=True)
class Ray:
    """A cluster, and what a run needs of it."""

    address: str | None
    cpus: float
    gpus: float


def understood(file: Path, overrides: dict[str, Any], plugins: list[Path]) -> Sweep:
    """The sweep, with everything checked that would otherwise fail when its run's turn comes."""
    from functools import cache

    from routelaw.cli.sweep_screen import describe
    from routelaw.corpus.shards import open_corpus
    from routelaw.errors import InputError
    from routelaw.routers.router import load_router
    from routelaw.sweeps.sweep import read_sweep
    from routelaw.training.run import check_run

    @cache
    def opened(path: str | Path) -> Any:
        return open_corpus(path, verify=True)

    for plugin in plugins:
        load_router(plugin)
    planned = read_sweep(file, overrides=overrides, opened=lambda path: opened(str(path)))
    for run in planned.runs:
        others = {name: opened(str(path)) for name, path in run.others.items()}
        try:
            check_run(run.spec, run.execution, {"validation": opened(str(run.corpus)), **others})
        except InputError as error:
            raise InputError(f"{file} ({describe(run.spec)}): {error}") from None
    return planned


def _estimated(
    sweep: Sweep,
    store: Store,
    machine: Machine,
    measure: bool,
    price: float | None,
    device_name: str | None,
    plugins: list[Path],
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
            plugins=plugins,
            notice=lambda done, total: bar.update(task, completed=done, total=total),
        )


def carried_out(
    sweep: Sweep,
    store: Store,
    machine: Machine,
    ray: Ray | None = None,
    plugins: tuple[Path, ...] = (),
    *,
    quiet: bool = False,
) -> dict[str, str]:
    """Train what is missing, longest runs first: the last minutes are then not spent on a single one.

    Returns the reasons of the runs that failed. Where nothing is missing no worker is started.
    """
    from routelaw.cli.sweep_screen import watch
    from routelaw.sweeps.cluster import run_on_ray
    from routelaw.sweeps.local import run_local
    from routelaw.sweeps.progress import work
    from routelaw.sweeps.task import Task

    missing = [run for run in sweep.runs if not store.ended(run.spec.run_id)]
    if len(missing) < len(sweep.runs) and not quiet:
        count = len(sweep.runs) - len(missing)
        note(f"{count} of {len(sweep.runs)} runs are in {store.path} already.")
    if not missing:
        return {}
    store.check_writable()
    _refuse_other_names(sweep, store)
    _say_what_is_dated_ahead(store)
    runs = sorted(missing, key=lambda run: -work(run.spec))
    tasks = [Task.of(run, machine.execution(run.execution), store, plugins) for run in runs]
    if ray is None:
        events = run_local(tasks, store, devices=machine.devices, threads=machine.threads)
    else:
        events = run_on_ray(tasks, store, address=ray.address, cpus=ray.cpus, gpus=ray.gpus)
    return watch(events, sweep, store, quiet=quiet)


def _refuse_other_names(sweep: Sweep, store: Store) -> None:
    """A run that `train --out` put into the store under a name of the user's would be trained a second time."""
    from routelaw.errors import InputError

    wanted = {run.spec.run_id for run in sweep.runs}
    for run in store.runs():
        if run.run_id in wanted and run.folder.parent == store.path and run.folder.name != run.run_id:
            raise InputError(
                f"{run.folder} holds run {run.run_id} of this sweep under another name: rename it to {run.run_id}, "
                "or give another --store."
            )


def _say_what_is_dated_ahead(store: Store) -> None:
    """A lease from the future would hold its run for ever; it is taken for lost, which its owner should hear of."""
    from routelaw.runs.leases import dated_ahead, host_of

    for run in store.runs():
        if not run.ended and (ahead := dated_ahead(run.folder)):
            host = str(host_of(run.folder)).partition("/")[0]
            note(
                f"the lease of host {host} on run {run.run_id} is dated {ahead:.0f} s ahead of this file system's "
                "clock, so its process is taken for lost and the run goes on here."
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
