"""What the processes of a layout really hold and send in a step: measured by every one of them.

Tensors are measured by the storages they lie in, activations by what autograd saves, bytes by the calls to
torch.distributed (FSDP's among them), each counted as a ring or an all-to-all would send it; and by the counter of the
loopback interface, which knows nothing of all that.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from layout_meters import Alive, counted, loopback_bytes, stored
from torch import Tensor

from routelaw.model.parallel import Parallel
from routelaw.model.transformer import Transformer
from routelaw.specs.layout import Layout
from routelaw.specs.run import RunSpec
from routelaw.training.mesh import Meshes, joined
from routelaw.training.optimizer import Optimizer, local_part
from routelaw.training.sharding import shard
from routelaw.training.step import StepInfo, layer_losses, step_context, train_step, weighted_sum

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "training"))
from layout_cases import free_ports

PATIENCE = 120.0


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
class Measured:
    """What was measured in one process."""

    held: dict[str, int]
    """Bytes of parameters (while they compute), masters, optimizer and gradients."""
    kept: int
    """Bytes that autograd keeps for the backward pass of a micro-batch."""
    peak: int | None
    """The most bytes of tensors at one moment of a step."""
    sent: dict[str, float]
    """Bytes per step by kind, of the calls. The shuffle is among the rows that are exchanged: one team may do both."""
    dropped: float
    """Share of the assignments."""
    loopback: float | None
    """Bytes per step and process that went over the loopback interface; None where there is no counter."""


def measured(cases: Sequence[Case]) -> list[list[Measured]]:
    """Measurements of every case, by rank. All cases are of equally many processes, which are started once."""
    with torch.multiprocessing.Manager() as manager:
        told = manager.dict()
        torch.multiprocessing.spawn(_measure, (free_ports(len(cases)), list(cases), told), nprocs=cases[0].layout.world)
        return [[told[number, rank] for rank in range(case.layout.world)] for number, case in enumerate(cases)]


def _measure(rank: int, ports: list[int], cases: list[Case], told: Any) -> None:
    torch.set_num_threads(1)
    for number, case in enumerate(cases):
        known = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": case.layout.world, "MASTER_ADDR": "127.0.0.1"}
        known["MASTER_PORT"] = ports[number]
        os.environ.update({name: str(value) for name, value in known.items()})
        with joined(case.layout, torch.device("cpu"), PATIENCE) as (parallel, meshes):
            told[number, rank] = measure(case, parallel, meshes)


def measure(case: Case, parallel: Parallel, meshes: Meshes | None) -> Measured:
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
    return Measured(held, kept, most, per_step, dropped, _over_loopback(case, step))


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
    honest = optimizer.step

    def step(rate: float, norm: Tensor) -> None:
        held["gradients"] = stored(m.grad for m in optimizer.masters.values() if m.grad is not None)
        honest(rate, norm)

    optimizer.step = step  # pyrefly: ignore


def _named(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _forward(model: Transformer, tokens_BS: Tensor, micro_batches: int) -> tuple[int, int]:
    """Bytes of the parameters while they compute, and of what autograd keeps beside them."""
    spec, batch = model.spec, model.parallel.batch
    size = tokens_BS.shape[0] // (micro_batches * batch.size)
    first = batch.rank * size
    piece_BS = tokens_BS[first : first + size]
    saved: dict[int, Tensor] = {}  # held, so that no address is used twice

    def save(tensor: Tensor) -> Tensor:
        saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    model.train()
    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        output = model(piece_BS[:, :-1], step_context(spec, 1, piece_BS[:, :-1], first, batch))
        nll_T = model.token_nll(output.hidden_TD, piece_BS[:, 1:].flatten())
        loss = nll_T.mean() + weighted_sum(model, layer_losses(model, output, nll_T.detach()), nll_T)
    own = [*model.parameters(), *model.buffers()]
    whole = {tensor.untyped_storage().data_ptr() for tensor in own}
    kept = sum(t.untyped_storage().nbytes() for pointer, t in saved.items() if pointer not in whole)
    held = stored(tensor for name, tensor in _named(model) if not name.endswith(".number"))  # a block's, for compilers
    loss.backward()  # so that FSDP gives the parameters back
    return held, kept
