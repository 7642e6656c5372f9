"""Meters of one process: bytes of storages, the most of them at once, bytes sent in calls to torch.distributed, and
what went over the loopback interface."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from routelaw.costs.communication import EXCHANGE, GATHER, REDUCE, SMALL, TENSOR
from routelaw.distributed.groups import Parallel
from routelaw.distributed.tensor_shards import local_part

LOOPBACK = Path("/sys/class/net/lo/statistics/tx_bytes")


def stored(tensors: Iterable[Tensor]) -> int:
    """Bytes of the storages behind them, each once."""
    storages = {(s := local_part(t).untyped_storage()).data_ptr(): s.nbytes() for t in tensors}
    return sum(storages.values())


class Alive(TorchDispatchMode):
    """The most bytes of storages at once, by what they are each time that one is made: FSDP empties and fills some."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self._held = [local_part(tensor).untyped_storage() for tensor in known]
        self._always = sum({storage.data_ptr(): storage.nbytes() for storage in self._held}.values())
        self._known = {storage._cdata for storage in self._held}
        self._seen: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.most = self._always

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        new = False
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = local_part(tensor).untyped_storage()
                new |= storage._cdata not in self._known and storage._cdata not in self._seen
                if storage._cdata not in self._known:
                    self._seen[storage._cdata] = storage
        if new:
            self.most = max(self.most, self._always + sum(storage.nbytes() for storage in self._seen.values()))
        return result


@contextmanager
def counted(parallel: Parallel) -> Iterator[Counter[str]]:
    """Bytes that this process sends in calls to torch.distributed, by kind."""
    sent: Counter[str] = Counter()

    def gather(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, **_: Any) -> None:
        sent[GATHER] += _bytes(output_tensor) * _others(group)

    def reduce(output: Tensor, input: Tensor, *_: Any, group: Any = None, **__: Any) -> None:
        sent[REDUCE] += _bytes(input) * _others(group)

    def all_reduce(tensor: Tensor, *_: Any, group: Any = None, **__: Any) -> None:
        among = group is parallel.tensor.process_group and tensor.ndim > 0
        sent[TENSOR if among else SMALL] += 2 * _bytes(tensor) * _others(group)

    def all_to_all(_: Tensor, x: Tensor, received: Any = None, rows: Any = None, group: Any = None) -> None:
        share = _others(group) if rows is None else 1 - rows[dist.get_rank(group)] / max(sum(rows), 1)
        sent[SMALL if rows is None else EXCHANGE] += _bytes(x) * share  # counts are sent in equal parts

    looks = {
        "all_gather_single": gather, "all_gather_into_tensor": gather, "reduce_scatter_single": reduce,
        "reduce_scatter_tensor": reduce, "all_reduce": all_reduce, "all_to_all_single": all_to_all,
    }  # fmt: skip
    honest = {name: getattr(dist, name) for name in looks if hasattr(dist, name)}  # names differ between versions
    for name, function in honest.items():
        setattr(dist, name, _watched(function, looks[name]))
    try:
        yield sent
    finally:
        for name, function in honest.items():
            setattr(dist, name, function)


def _watched(function: Callable, look: Callable) -> Callable:
    def call(*arguments: Any, **named: Any) -> Any:
        look(*arguments, **named)
        return function(*arguments, **named)

    return call


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _others(group: Any) -> float:
    size = dist.get_world_size(group)
    return (size - 1) / size


def loopback_bytes() -> int | None:
    return int(LOOPBACK.read_text()) if LOOPBACK.is_file() else None
