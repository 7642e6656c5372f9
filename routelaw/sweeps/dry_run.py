"""What a sweep will take, from its file: layouts are chosen first, for devices that are named or for those here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from routelaw.costs.layouts import Cluster
from routelaw.errors import InputError
from routelaw.runs.store import Store
from routelaw.specs.layout import AUTO
from routelaw.specs.run import ExecutionSpec
from routelaw.sweeps.chosen_layout import cluster_here, device_kind, lay_out, named_cluster
from routelaw.sweeps.estimate.sweep_estimate import SweepEstimate, estimate_sweep
from routelaw.sweeps.estimate.time_estimator import Notice
from routelaw.sweeps.local import Machine
from routelaw.sweeps.run_sweep import Ray, machine_of
from routelaw.sweeps.sweep import Sweep


def dry_run(
    sweep: Sweep,
    store: Store,
    *,
    jobs: int | None = None,
    ray: Ray | None = None,
    measure: bool = False,
    price: float | None = None,
    device_name: str | None = None,
    devices: int | None = None,
    remark: Callable[[str], None] = lambda _: None,
    notice: Notice = lambda done, total: None,
) -> SweepEstimate:
    """An estimate for the devices that `device_name` or the file names, else for this machine. To `measure` is to take
    steps on this machine, whatever the file names. `devices` wins over the file's number of devices for a run."""
    _refuse_without_effect(sweep, measure, device_name, devices)
    kind = device_name or (None if measure else device_kind(sweep.runs))

    def cluster_of(execution: ExecutionSpec) -> Cluster:
        if kind or ray:
            return named_cluster(execution, kind, devices)
        return cluster_here(replace(execution, devices=devices or execution.devices))

    runs, without_layout = lay_out(sweep.runs, cluster_of)
    machine = Machine.elsewhere(jobs) if kind and not ray else machine_of(replace(sweep, runs=runs), jobs, ray, remark)
    if ray and machine.device == "cuda" and not kind:
        raise InputError("say which GPU the cluster has, with --device-name, to estimate for it.")
    return estimate_sweep(
        runs,
        store,
        machine=machine,
        measure=measure,
        price=price,
        device_name=kind,
        plugins=sweep.plugins,
        notice=notice,
        without_layout=without_layout,
    )


def _refuse_without_effect(sweep: Sweep, measure: bool, device_name: str | None, devices: int | None) -> None:
    if measure and device_name:
        raise InputError("--measure times steps on this machine, and --device-name is for another: leave one out.")
    if devices is not None and not any(run.execution.layout == AUTO for run in sweep.runs):
        raise InputError(
            f'--devices has no effect, since no run of {sweep.source} has layout = "{AUTO}": leave it out, or give '
            f"--set execution.layout={AUTO}."
        )
    missing = next((path for run in sweep.runs for path in run.missing), None)
    if measure and missing:
        raise InputError(
            f"--measure trains a few steps, and {missing} is not there: build the corpus, or leave --measure out."
        )
