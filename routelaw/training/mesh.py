"""The processes of one run: how they find each other, and which of them form which team."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from routelaw.errors import InputError
from routelaw.model.parallel import ALONE, NOBODY_ELSE, Parallel, Team
from routelaw.specs.layout import Layout

NAMES = ("data", "expert", "tensor")


@dataclass(frozen=True)
class Meshes:
    """Over whom parameters are sharded: experts over data, all else over data × expert."""

    data: DeviceMesh
    batch: DeviceMesh


@contextmanager
def joined(layout: Layout, device: torch.device, patience: float) -> Iterator[tuple[Parallel, Meshes | None]]:
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
        batch = mesh["data", "expert"]._flatten("batch")
        yield Parallel(*map(_team, (batch, mesh["data"], mesh["expert"], mesh["tensor"]))), Meshes(mesh["data"], batch)
    finally:
        dist.destroy_process_group()


def _team(mesh: DeviceMesh) -> Team:
    return Team(mesh.get_group(), mesh.get_local_rank(), mesh.size()) if mesh.size() > 1 else NOBODY_ELSE
