"""The processes of one run: how they find each other, and which of them form which team."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from routelaw.errors import InputError
from routelaw.model.parallel import ALONE, SINGLE, Group, Parallel
from routelaw.specs.layout import Layout
from routelaw.training.ranks import Rank

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

NAMES = ("data", "expert", "tensor")
JUDGING = 30.0
"""Seconds more than the run's hang timeout."""


@dataclass(frozen=True)
class Meshes:
    """Over whom parameters are sharded: experts over data, all else over data × expert."""

    data: DeviceMesh
    batch: DeviceMesh


@contextmanager
def joined(layout: Layout, device: torch.device, hang_timeout: float) -> Iterator[tuple[Parallel, Meshes | None]]:
    """This process among the others of its run, as its environment has it; alone where the layout is of one.

    Exchanges give up after the run's hang timeout and a little more, so that it can first be found out who is to blame
    (pulse.py).
    """
    rank = Rank.here()
    check_world(layout, rank)
    if layout.world == 1:
        yield ALONE, None
        return
    store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=hang_timeout)))
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=dist.PrefixStore("groups", store),
        rank=rank.number,
        world_size=rank.world,
        timeout=timedelta(seconds=hang_timeout + JUDGING),
        device_id=device if device.type == "cuda" else None,
    )
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(device.type, (layout.data, layout.expert, layout.tensor), mesh_dim_names=NAMES)
    batch = mesh["data", "expert"]._flatten("batch")
    yield Parallel(*map(_team, (batch, mesh["data"], mesh["expert"], mesh["tensor"]))), Meshes(mesh["data"], batch)
    dist.destroy_process_group()  # not after an error: whoever is still in an exchange would be waited for


def check_world(layout: Layout, rank: Rank) -> None:
    if rank.world != layout.world:
        raise InputError(
            f"a layout of {layout} needs {layout.world} process{'es' * (layout.world > 1)}, and {rank.world} "
            f"{'were' if rank.world > 1 else 'was'} started."
        )


def device_of(rank: Rank, device: torch.device) -> torch.device:
    """Each process of a machine has a GPU of its own."""
    if device.type != "cuda" or not rank.is_distributed:
        return device
    if rank.local >= torch.cuda.device_count():
        raise InputError(
            f"each process needs a GPU of its own, and this machine has {torch.cuda.device_count()}: "
            f"there is none for its process {rank.local + 1}."
        )
    own = torch.device("cuda", rank.local)
    torch.cuda.set_device(own)
    return own


def _team(mesh: DeviceMesh) -> Group:
    return Group(mesh.get_group(), mesh.get_local_rank(), mesh.size()) if mesh.size() > 1 else SINGLE
