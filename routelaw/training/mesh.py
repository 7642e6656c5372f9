"""The processes of one run: how they find each other, and which of them form which team."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from routelaw.errors import InputError
from routelaw.model.parallel import ALONE, Parallel, Team
from routelaw.specs.layout import Layout

NAMES = ("data", "expert", "tensor")


@contextmanager
def joined(layout: Layout, device: torch.device, patience: float) -> Iterator[tuple[Parallel, DeviceMesh | None]]:
    """This process among the others of its run, as torchrun's environment has it; alone where the layout is of one.

    A process that is not heard of for `patience` seconds ends the run.
    """
    if layout.world == 1:
        yield ALONE, None
        return
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started != layout.world:
        raise InputError(f"a layout of {layout} needs {layout.world} processes, and {started} were started.")
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=patience))
    try:
        mesh = init_device_mesh(device.type, (layout.data, layout.expert, layout.tensor), mesh_dim_names=NAMES)
        mesh["data", "expert"]._flatten("batch")
        yield Parallel(*(_team(mesh, name) for name in ("batch", "data", "expert", "tensor"))), mesh
    finally:
        dist.destroy_process_group()


def _team(mesh: DeviceMesh, name: str) -> Team:
    own = mesh[name]
    return Team(own.get_group(), own.get_local_rank(), own.size()) if own.size() > 1 else Team()
