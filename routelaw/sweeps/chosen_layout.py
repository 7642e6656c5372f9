"""What `layout = "auto"` stands for: on devices known by name, for an estimate, or on those that are here, to train.

The layout depends on the run and on kind and number of the devices alone, so that an estimate shows the layout that is
trained with, and all processes of a run come to the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from routelaw.costs.layouts import Cluster, choose_layout
from routelaw.costs.step_time import KNOWN, Device, known_device
from routelaw.distributed.ranks import Rank
from routelaw.errors import InputError
from routelaw.specs.layout import AUTO, check_choice
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.sweeps.sweep import PlannedRun
from routelaw.training.run import check_without_corpus


def device_kind(runs: Iterable[PlannedRun]) -> str | None:
    """The kind of devices that the runs with `layout = "auto"` name, which is one, or None."""
    kinds = {known_device(kind).name for run in runs if (kind := run.execution.device_kind) is not None}
    if len(kinds) > 1:
        raise InputError(f"a sweep is laid out for one kind of device, not for {' and '.join(sorted(kinds))}.")
    return next(iter(kinds), None)


def named_cluster(execution: ExecutionSpec, kind: str | None = None, devices: int | None = None) -> Cluster:
    """The devices that an execution names; `kind` and `devices` win over it."""
    kind, devices = kind or execution.device_kind, devices or execution.devices
    if kind is None:
        raise InputError(f'layout = "{AUTO}" plans for a kind of device: say execution.device_kind, such as h100.')
    if devices is None:
        raise InputError(f'layout = "{AUTO}" lays a run over a number of devices: say execution.devices.')
    return Cluster.of(known_device(kind), devices)


def gpus_here() -> tuple[str, int]:
    """The first GPU's name as its driver has it, and how many there are."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return (torch.cuda.get_device_name(0) if count else "", count)


def kind_of(name: str) -> Device | None:
    """The known device that a driver's name stands for: `NVIDIA H100 80GB HBM3`."""
    return next((KNOWN[word] for word in re.findall(r"[a-z0-9]+", name.lower()) if word in KNOWN), None)


def cluster_here(execution: ExecutionSpec, rank: Rank = Rank()) -> Cluster:
    """The GPUs of this machine, or those of the processes that were started together; as many as are asked for."""
    name, count = gpus_here()
    if not count:
        raise InputError(
            f'layout = "{AUTO}" plans for GPUs, and none can be used here: say execution.layout = "given", and data, '
            "expert and tensor where there are several processes."
        )
    kind = kind_of(name)
    if execution.device_kind is not None:
        asked = known_device(execution.device_kind)
        if kind is not None and kind is not asked:
            raise InputError(
                f"the run is to be laid out for {asked.name} (execution.device_kind), and here is {name}: "
                f"give --set execution.device_kind={kind.name}."
            )
        kind = asked
    if kind is None:
        raise InputError(
            f"{name} is not among the devices known here: say execution.device_kind, one of {', '.join(KNOWN)}."
        )
    devices = execution.devices or (rank.world if rank.is_distributed else count)
    if rank.is_distributed and devices != rank.world:
        raise InputError(
            f"the run is to be laid over {devices} devices (execution.devices), and {rank.world} processes were "
            "started."
        )
    if devices > count and not rank.is_distributed:
        raise InputError(
            f"the run is to be laid over {devices} devices (execution.devices), and this machine has {count}: start it "
            f"with torchrun on several, or give --set execution.devices={count}."
        )
    return Cluster.of(kind, devices)


def execution_here(spec: RunSpec, execution: ExecutionSpec, rank: Rank = Rank()) -> ExecutionSpec:
    """How a run is carried out here: with its layout, where that is to be chosen."""
    check_choice(execution)
    return choose_layout(spec, execution, cluster_here(execution, rank)) if execution.layout == AUTO else execution


def lay_out(
    runs: Sequence[PlannedRun], cluster_of: Callable[[ExecutionSpec], Cluster]
) -> tuple[tuple[PlannedRun, ...], tuple[tuple[PlannedRun, str], ...]]:
    """The runs with their layouts; and those that none is found for, with the reason."""
    laid_out, without = [], []
    for run in runs:
        if run.execution.layout != AUTO:
            laid_out.append(run)
            continue
        cluster = cluster_of(run.execution)  # what is wrong with that is wrong with all runs
        try:
            chosen = choose_layout(run.spec, run.execution, cluster)
            check_without_corpus(run.spec, chosen)
        except InputError as error:
            without.append((run, str(error)))
        else:
            laid_out.append(replace(run, execution=chosen))
    return tuple(laid_out), tuple(without)
