"""What the processes of a layout really hold and send in a step: measured by every one of them.

Tensors are measured by the storages they lie in, activations by what autograd saves, bytes by the calls to
torch.distributed (FSDP's among them), each counted as a ring or an all-to-all would send it; and by the counter of the
loopback interface, which knows nothing of all that.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from routelaw.bench.models import training_loss
from routelaw.costs.communication import EXCHANGE, GATHER, REDUCE, SMALL, TENSOR
from routelaw.distributed.groups import Meshes, Parallel
from routelaw.distributed.sharding import shard
from routelaw.distributed.tensor_shards import local_part
from routelaw.model.transformer import Transformer
from routelaw.specs.layout import Layout
from routelaw.specs.run import RunSpec
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import StepInfo, train_step
from verification.layout_equality import among, spawned

LOOPBACK = Path("/sys/class/net/lo/statistics/tx_bytes")


@dataclass(frozen=True)
class Case:
    spec: RunSpec
    layout: Layout
    micro_batches: int = 1
    precision: str = "float32"
    steps: int = 2
    """Over which bytes are counted."""
    peak: bool = True
    """Whether to look for the most memory at one moment, which takes a while."""
    rounds: int = 0
    """Rounds of as many steps, over which the loopback interface is watched."""


@dataclass(frozen=True)
class RankMeasurement:
    """What was measured in one process."""

    held: dict[str, int]
    """Bytes of parameters (while they compute), masters, optimizer and gradients."""
    kept: int
    """Bytes that autograd keeps for the backward pass of a micro-batch."""
    peak: int | None
    """The most bytes of tensors at one moment of a step."""
    sent: dict[str, float]
    """Bytes per step by kind, of the calls. The shuffle is among the rows that are exchanged: one group may do both."""
    dropped: float
    """Share of the assignments."""
    loopback: float | None
    """Bytes per step and process that went over the loopback interface; None where there is no counter."""


def measured(cases: Sequence[Case]) -> list[list[RankMeasurement]]:
    """Measurements of every case, by rank. All cases are of equally many processes, which are started once."""
    found = spawned(_measure, *cases)
    return [[found[number, rank] for rank in range(case.layout.world)] for number, case in enumerate(cases)]


def _measure(rank: int, ports: Sequence[int], cases: Sequence[Case], told: Any) -> None:
    torch.set_num_threads(1)
    for number, (port, case) in enumerate(zip(ports, cases, strict=True)):
        with among(rank, case.layout, port, torch.device("cpu")) as (parallel, meshes):
            told[number, rank] = measure(case, parallel, meshes)


def measure(case: Case, parallel: Parallel, meshes: Meshes | None) -> RankMeasurement:
    spec, dtype = case.spec, getattr(torch, case.precision)
    model = Transformer(spec, parallel)
    if meshes is None or parallel.batch.size == 1:
        model.to(dtype)
    else:
        model.to(torch.promote_types(dtype, torch.float32))
        shard(model, meshes, dtype)
    optimizer = Optimizer(model, spec.train)
    shape = (spec.train.batch, spec.model.sequence_length + 1)
    tokens_BS = torch.randint(spec.model.vocabulary, shape, generator=torch.Generator().manual_seed(0))

    def step(number: int) -> StepInfo:
        return train_step(model, optimizer, tokens_BS, spec, number, case.micro_batches)

    held: dict[str, int] = {}
    _look_before_step(optimizer, held)
    step(0)  # makes the statistics
    held["optimizer"] = stored(v for state in optimizer.statistics.values() for v in state.values())
    held["masters"] = stored(m for n, m in optimizer.masters.items() if _is_master(m, optimizer.parameters[n]))
    held["parameters"], kept = _forward(model, tokens_BS, case.micro_batches)
    most = _most_alive(model, optimizer, step) if case.peak else None
    with counted(parallel) as sent:
        dropped = sum(step(2 + i).dropped for i in range(case.steps)) / case.steps
    per_step = {kind: count / case.steps for kind, count in sent.items()}
    return RankMeasurement(held, kept, most, per_step, dropped, _over_loopback(case, step))


def _over_loopback(case: Case, step: Callable[[int], StepInfo]) -> float | None:
    """Bytes per step and process: the least of some rounds, since others may use the interface, too."""
    found = []
    for _ in range(case.rounds):
        dist.barrier()
        time.sleep(0.05)  # acknowledgements are on their way
        before = loopback_bytes()
        dist.barrier()
        for number in range(case.steps):
            step(2 + number)
        dist.barrier()
        time.sleep(0.05)
        after = loopback_bytes()
        if before is not None and after is not None:
            found.append((after - before) / case.steps / case.layout.world)
    return min(found, default=None)


def _most_alive(model: Transformer, optimizer: Optimizer, step: Callable[[int], StepInfo]) -> int:
    alive = Alive([*optimizer.masters.values(), *optimizer.state().values(), *model.buffers()])
    with alive:
        step(1)
    return alive.most


def _is_master(master: Tensor, parameter: Tensor) -> bool:
    """A copy of the parameter, or FSDP's shard of it."""
    return master is not parameter or master is not local_part(master)


def _look_before_step(optimizer: Optimizer, held: dict[str, int]) -> None:
    """Gradients are gone after a step."""
    original = optimizer.step

    def step(rate: float, norm: Tensor) -> None:
        held["gradients"] = stored(m.grad for m in optimizer.masters.values() if m.grad is not None)
        original(rate, norm)

    optimizer.step = step  # pyrefly: ignore


def _named(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _forward(model: Transformer, tokens_BS: Tensor, micro_batches: int) -> tuple[int, int]:
    """Bytes of the parameters while they compute, and of what autograd keeps beside them."""
    batch = model.parallel.batch
    size = tokens_BS.shape[0] // (micro_batches * batch.size)
    first = batch.rank * size
    piece_BS = tokens_BS[first : first + size]
    saved: dict[int, Tensor] = {}  # held, so that no address is used twice

    def save(tensor: Tensor) -> Tensor:
        saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        loss, _output = training_loss(model, piece_BS, 1, first)
    own = [*model.parameters(), *model.buffers()]
    whole = {tensor.untyped_storage().data_ptr() for tensor in own}
    kept = sum(t.untyped_storage().nbytes() for pointer, t in saved.items() if pointer not in whole)
    held = stored(tensor for name, tensor in _named(model) if not name.endswith(".number"))  # a block's, for compilers
    loss.backward()  # so that FSDP gives the parameters back
    return held, kept


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
    original = {name: getattr(dist, name) for name in looks if hasattr(dist, name)}  # names differ between versions
    for name, function in original.items():
        setattr(dist, name, _watched(function, looks[name]))
    try:
        yield sent
    finally:
        for name, function in original.items():
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
