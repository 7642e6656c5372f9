"""The processes that compute one model together: how they find each other, their groups, and what these exchange.

Gradients are those of the sum over all processes: a token's loss counts once, wherever it was computed. Two pairs of
operations keep tensor-parallel processes, which hold the same tokens, in step (Shoeybi et al. 2019): `copy_to_group` is
the identity whose gradient is summed over them, `reduce_from_group` sums values and passes gradients on. All others
hold different tokens and talk by all-to-all, whose gradient is the all-to-all back.

Shapes: N rows, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from routelaw.distributed.ranks import Rank
from routelaw.errors import InputError
from routelaw.specs.layout import Layout

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")
AXES = ("data", "expert", "tensor")
WATCHDOG_GRACE_S = 30.0
"""What collectives wait longer than the run's hang timeout."""


@dataclass(frozen=True)
class Group:
    """Some processes, and this one among them; a group of one has no process group and sends nothing."""

    process_group: ProcessGroup | None = None
    rank: int = 0
    size: int = 1

    def all_sum(self, value: Tensor) -> Tensor:
        """The sum over the group, in place; without a gradient."""
        if self.process_group is not None:
            dist.all_reduce(value, group=self.process_group)
        return value

    def copy_to_group(self, x: Tensor) -> Tensor:
        return x if self.process_group is None else _CopyToGroup.apply(x, self.process_group)  # pyrefly: ignore

    def reduce_from_group(self, x: Tensor) -> Tensor:
        return x if self.process_group is None else _ReduceFromGroup.apply(x, self.process_group)  # pyrefly: ignore

    def exchange(self, x_ND: Tensor, sent: Sequence[int], received: Sequence[int]) -> Tensor:
        """Rows in the order of their destination for rows in the order of their origin."""
        if self.process_group is None:
            return x_ND
        return _Exchange.apply(x_ND, list(sent), list(received), self.process_group)  # pyrefly: ignore


SINGLE = Group()


@dataclass(frozen=True)
class Parallel:
    """The groups of one process, which by default is the only one."""

    batch: Group = SINGLE
    """data × expert: each holds a part of the batch, all hold the same other parameters."""
    data: Group = SINGLE
    """Those that hold the same experts."""
    expert: Group = SINGLE
    """Those that hold different experts of a layer."""
    tensor: Group = SINGLE
    """Those that hold the same tokens and different heads and hidden units."""

    @property
    def alone(self) -> bool:
        return self.batch.size * self.tensor.size == 1

    @property
    def rank(self) -> int:
        """Among all processes of the run; tensor-parallel ones are neighbours."""
        return self.batch.rank * self.tensor.size + self.tensor.rank

    def gather(self, value: T) -> list[T]:
        """A value of every process, by rank."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * (self.batch.size * self.tensor.size)
        dist.all_gather_object(values, value)
        return values

    def any_says(self, so: bool, device: torch.device | str = "cpu") -> bool:
        """Whether any process does: what one alone hears, a signal say, all must act upon in the same step."""
        if self.alone:
            return so
        return bool(self.tensor.all_sum(self.batch.all_sum(torch.tensor(float(so), device=device))))


ALONE = Parallel()


class _CopyToGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        return _summed(gradient, ctx.group), None


class _ReduceFromGroup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        return gradient, None


def _summed(x: Tensor, group: ProcessGroup) -> Tensor:
    x = x.contiguous().clone()  # all_reduce works in place, and autograd may still need what was there
    dist.all_reduce(x, group=group)
    return x


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _all_to_all(x_ND, sent, received, group)

    @staticmethod
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor, None, None, None]:  # pyrefly: ignore
        return _all_to_all(gradient_ND, ctx.received, ctx.sent, ctx.group), None, None, None


def _all_to_all(x_ND: Tensor, sent: list[int], received: list[int], group: ProcessGroup) -> Tensor:
    out_ND = x_ND.new_empty(sum(received), *x_ND.shape[1:])
    dist.all_to_all_single(out_ND, x_ND.contiguous(), received, sent, group=group)
    return out_ND


@dataclass(frozen=True)
class Meshes:
    """Over whom parameters are sharded: experts over data, all else over data × expert."""

    data: DeviceMesh
    batch: DeviceMesh


@contextmanager
def process_groups(
    layout: Layout, device: torch.device, hang_timeout: float
) -> Iterator[tuple[Parallel, Meshes | None]]:
    """This process's groups among the others of its run, whom its environment names; none where the layout is of one.

    Collectives give up after the run's hang timeout and a little more, so that the watchdog can first find out which
    process is to blame.
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
        timeout=timedelta(seconds=hang_timeout + WATCHDOG_GRACE_S),
        device_id=device if device.type == "cuda" else None,
    )
    # Imported here, so that a process that computes alone begins without it.
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(device.type, (layout.data, layout.expert, layout.tensor), mesh_dim_names=AXES)
    batch = mesh["data", "expert"]._flatten("batch")
    yield Parallel(*map(_group, (batch, mesh["data"], mesh["expert"], mesh["tensor"]))), Meshes(mesh["data"], batch)
    dist.destroy_process_group()  # not after an error: whoever is still in a collective would be waited for


def _group(mesh: DeviceMesh) -> Group:
    return Group(mesh.get_group(), mesh.get_local_rank(), mesh.size()) if mesh.size() > 1 else SINGLE


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
