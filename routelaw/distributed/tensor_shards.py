"""Which part of which tensor of the whole model a process holds, by the name of the parameter.

Initialisation draws that part, a checkpoint stores it together with its place, and any layout of processes reads its
own parts out of those of any other. What computes does not care.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from torch import Tensor, nn

from routelaw.distributed.groups import SINGLE, Parallel


@dataclass(frozen=True)
class TensorShard:
    """A block of a larger tensor."""

    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    replica: int = 0
    """Which copy this is of those that several processes hold: the first is the one that is saved."""

    @classmethod
    def whole(cls, shape: Iterable[int], replica: int = 0) -> TensorShard:
        shape = tuple(shape)
        return cls(shape, (0,) * len(shape), shape, replica)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where it lies in the whole tensor."""
        return tuple(slice(start, start + n) for start, n in zip(self.offset, self.shape, strict=True))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def is_sound(self) -> bool:
        """Whether it lies within the whole: in a file anything may be written."""
        counts = (*self.global_shape, *self.offset, *self.shape)
        return (
            all(isinstance(n, int) and n >= 0 for n in counts)
            and len(self.offset) == len(self.shape) == len(self.global_shape)
            and all(a + n <= most for a, n, most in zip(self.offset, self.shape, self.global_shape, strict=True))
        )

    def intersection(self, other: TensorShard) -> TensorShard:
        """What both hold of the whole; it may have no elements."""
        sides = [(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(self.slices, other.slices, strict=True)]
        return replace(
            self,
            offset=tuple(start for start, _ in sides),
            shape=tuple(max(0, stop - start) for start, stop in sides),
        )

    def within(self, outer: TensorShard) -> tuple[slice, ...]:
        """Where it lies in a shard that holds all of it."""
        return replace(self, offset=tuple(a - b for a, b in zip(self.offset, outer.offset, strict=True))).slices


def tensor_shards(module: nn.Module, parallel: Parallel, routed_blocks: Collection[int]) -> dict[str, TensorShard]:
    """By parameter, before FSDP shards them further. Blocks are numbered from 1."""
    shards = {}
    for name, parameter in module.named_parameters():
        shape, tensor_split = tuple(parameter.shape), tensor_dimension(name)
        groups = {} if tensor_split is None else {tensor_split: parallel.tensor}
        # A dense FFW is an expert of one, and every process of an expert group has it.
        if ".experts." in name and int(name.split(".")[1]) + 1 in routed_blocks:
            groups[0] = parallel.expert
        sides = [groups.get(dimension, SINGLE) for dimension in range(len(shape))]
        shards[name] = TensorShard(
            tuple(n * group.size for n, group in zip(shape, sides, strict=True)),
            tuple(n * group.rank for n, group in zip(shape, sides, strict=True)),
            shape,
            replica=parallel.tensor.rank if tensor_split is None else 0,
        )
    return shards


def tensor_dimension(name: str) -> int | None:
    """Along which tensor-parallel processes split a parameter, by heads or hidden units (Shoeybi et al. 2019); None
    where each holds all of it."""
    if name.endswith(("query.weight", "key.weight", "value.weight", "relative.weight")):
        return 0
    if name.endswith("attention.out.weight") or ".experts.down." in name:
        return 1
    return 2 if ".experts.up." in name else None


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor that may be sharded (a DTensor, whose class takes a while to import)."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # pyrefly: ignore


def local_shard(tensor: Tensor, shard: TensorShard) -> tuple[Tensor, TensorShard]:
    """What FSDP left on this process of the shard that the model was built with, and its place."""
    own = local_part(tensor).detach()
    if not hasattr(tensor, "to_local"):
        return own, shard
    # FSDP2 splits as torch.chunk does: shards of ⌈n/p⌉, so that the last processes may hold less, or nothing.
    mesh, dimension = tensor.device_mesh, tensor.placements[0].dim  # pyrefly: ignore
    chunk, offset = -(-shard.shape[dimension] // mesh.size()), list(shard.offset)
    offset[dimension] += min(mesh.get_local_rank() * chunk, shard.shape[dimension])
    return own, replace(shard, offset=tuple(offset), shape=tuple(own.shape))
