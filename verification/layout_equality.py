"""Does a run mean the same on every layout? Every router, K, shuffle and capacity, on 1, 2 and 4 processes (gloo).

    python -m verification.layout_equality [--steps 20] [--processes 1 2 4] [--precision float64 float32] [--record]

Each layout and case is trained side by side with a single process, in float64 and in float32, whole and in two
micro-batches. Compared at every step: the loss, every gradient before clipping, the gradient's norm, drops, loads and
the routers' losses; then an evaluation. The figure is the largest difference; float64 must stay below 1e-10, float32
below 1e-5. Exit code 1 otherwise. Tests do the same with fewer steps and layouts, and resume checkpoints of one layout
on another.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor

from benchmarks.script import run
from routelaw.bench.results import Row, row
from routelaw.distributed.groups import Meshes, Parallel, device_of, process_groups
from routelaw.distributed.ranks import Rank
from routelaw.distributed.sharding import shard
from routelaw.distributed.tensor_shards import local_part
from routelaw.errors import InputError
from routelaw.evaluation.likelihood import likelihood
from routelaw.model.transformer import Transformer
from routelaw.specs.counting import Architecture
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.training.optimizer import Optimizer
from routelaw.training.run import check_split
from routelaw.training.state import TrainState
from routelaw.training.step import StepInfo, train_step

MOST = {"float64": 1e-10, "float32": 1e-5}
RESHARDED = ("rl-r, shuffled over all", "two FFWs", "hash")
GROUP, BATCH, LENGTH = 32, 8, 16
ROUTED = RouterSpec("switch", 4, group_tokens=GROUP, capacity_factor=1.0)
CASES: dict[str, RouterSpec] = {
    "dense": RouterSpec(),
    "switch": ROUTED,
    "s-base": replace(ROUTED, name="s-base"),
    "base": replace(ROUTED, name="base"),
    "hash": replace(ROUTED, name="hash"),
    "rl-r": replace(ROUTED, name="rl-r"),
    "K = 2, dropless": replace(ROUTED, k=2, capacity_factor=0.0),
    "s-base, shuffled over all": replace(ROUTED, name="s-base", shuffle_groups=4),
    "rl-r, shuffled over all": replace(ROUTED, name="rl-r", shuffle_groups=4),
    "hash, shuffled over two": replace(ROUTED, name="hash", shuffle_groups=2),
    "two FFWs": replace(ROUTED, ffws_per_expert=2, shuffle_groups=4),
    "shared decisions": replace(ROUTED, name="s-base", shared_decisions=True, routing_frequency=1.0, shuffle_groups=4),
}

Alone = tuple[list[tuple[StepInfo, dict[str, Tensor]]], list[float]]
"""Steps of one process with their gradients, and what it then evaluates to."""
_by_itself: dict[tuple[str, torch.dtype, int, torch.device], Alone] = {}


def spec_of(router: RouterSpec, steps: int) -> RunSpec:
    model = ModelSpec(Architecture(16, 2, 4, 8), vocabulary=64, sequence_length=LENGTH)
    return RunSpec(model, router, TrainSpec(steps=steps, batch=BATCH, learning_rate=1e-3), "corpus")


def possible(router: RouterSpec, layout: Layout, micro_batches: int) -> bool:
    """What a run would not refuse."""
    try:
        check_split(spec_of(router, 1), micro_batches, layout)
    except InputError:
        return False
    return True


def followed(model: Transformer, spec: RunSpec, micro_batches: int) -> Iterator[tuple[StepInfo, dict[str, Tensor]]]:
    """Every step with its gradients, before they are clipped and before the optimiser hides their scale."""
    optimizer = Optimizer(model, spec.train, fused=False)  # whose gradients can be looked at
    seen: dict[str, Tensor] = {}
    original = optimizer.step

    def step(rate: float, norm: Tensor) -> None:
        for name, master in optimizer.masters.items():
            seen[name] = (master.grad.full_tensor() if master is not local_part(master) else master.grad).clone()
        original(rate, norm)

    optimizer.step = step
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    for number in range(spec.train.steps):
        tokens_BS = torch.randint(0, spec.model.vocabulary, (BATCH, LENGTH + 1), generator=generator).to(device)
        yield train_step(model, optimizer, tokens_BS, spec, number, micro_batches), dict(seen)


def free_ports(count: int) -> list[int]:
    """Below those that the system gives to connections, of which there will be many before the last port is used."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError(f"no {count} ports are free")


@dataclass(frozen=True)
class LayoutCase:
    """A layout to be compared with a process by itself."""

    layout: Layout
    micro_batches: int
    dtype: torch.dtype
    steps: int

    @property
    def cases(self) -> dict[str, RouterSpec]:
        """Those that a run would not refuse."""
        return {name: router for name, router in CASES.items() if possible(router, self.layout, self.micro_batches)}


def compare(rank: int, ports: Sequence[int], trials: Sequence[LayoutCase], told: Any, kind: str = "cpu") -> None:
    """On every rank: for each trial and case the largest difference of loss, gradient and log, put into `told`. Where a
    layout has fewer processes than there are, the last ones leave it out."""
    torch.set_num_threads(1)
    most = max(trial.layout.world for trial in trials)
    device = device_of(Rank(rank, most, rank), torch.device(kind))
    for port, trial in zip(ports, trials, strict=True):
        if rank >= trial.layout.world:
            continue
        with among(rank, trial.layout, port, device) as (parallel, meshes):
            for name, router in trial.cases.items():
                spec = spec_of(router, trial.steps)
                shards = parallel.batch.size > 1
                gap = gaps(spec, parallel, meshes, trial.dtype, trial.micro_batches, device, shards)
                if trial.layout.world > 1:
                    dist.all_reduce(gap, op=dist.ReduceOp.MAX)
                if rank == 0:
                    told[trial, name] = gap.tolist()


@contextmanager
def among(rank: int, layout: Layout, port: int, device: torch.device) -> Iterator[tuple[Parallel, Meshes | None]]:
    known = {"RANK": rank, "WORLD_SIZE": layout.world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    before = dict(os.environ)
    os.environ.update({name: str(value) for name, value in known.items()})
    try:
        with process_groups(layout, device, 120.0) as found:
            yield found
    finally:
        os.environ.clear()
        os.environ.update(before)


def by_itself(spec: RunSpec, dtype: torch.dtype, micro_batches: int, device: torch.device) -> Alone:
    """Computed once for all layouts that are compared with it."""
    key = (spec.run_id, dtype, micro_batches, device)
    if key not in _by_itself:
        model = Transformer(spec).to(device, dtype)
        _by_itself[key] = list(followed(model, spec, micro_batches)), _evaluated(model)
    return _by_itself[key]


def gaps(
    spec: RunSpec,
    parallel: Parallel,
    meshes: Meshes | None,
    dtype: torch.dtype,
    micro_batches: int,
    device: torch.device,
    shards: bool,
) -> Tensor:
    """The largest differences between a process by itself and these together: of what steps and evaluations report, and
    of gradients; and, last, the share that was dropped."""
    alone, evaluated = by_itself(spec, dtype, micro_batches, device)
    model = Transformer(spec, parallel)
    placed = model.shards
    if shards:
        shard(model.to(device, torch.promote_types(dtype, torch.float32)), meshes, dtype)
    else:
        model.to(device, dtype)
    gap = torch.zeros(3, dtype=torch.float64, device=device)
    for (info, own), (wanted, whole) in zip(followed(model, spec, micro_batches), alone, strict=True):
        gap[0] = max(gap[0], _apart(_figures(info), _figures(wanted)))
        gap[1] = max(gap[1], max(float((own[n] - whole[n][placed[n].slices]).abs().max()) for n in own))
    gap[0] = max(gap[0], _apart(_evaluated(model), evaluated))
    gap[2] = alone[-1][0].dropped
    return gap


@dataclass(frozen=True)
class Stretch:
    """A part of a run: resumed from what lies in the folder, up to a step, and saved there if asked."""

    layout: Layout
    folder: Path
    until: int
    saves: bool = False


def checkpointed(rank: int, ports: Sequence[int], stretches: Sequence[Stretch], told: Any) -> None:
    """On every rank, one after another: by stretch and case the step it began at, then losses and gradient norms."""
    torch.set_num_threads(1)
    for port, stretch in zip(ports, stretches, strict=True):
        if rank >= stretch.layout.world:
            continue
        with among(rank, stretch.layout, port, torch.device("cpu")) as (parallel, meshes):
            for name in RESHARDED:
                figures = _continued(stretch, name, parallel, meshes)
                if rank == 0:
                    told[stretch, name] = figures


def _continued(stretch: Stretch, name: str, parallel: Parallel, meshes: Meshes | None) -> list[float]:
    spec = spec_of(CASES[name], 20)
    model = Transformer(spec, parallel).to(torch.float64)
    if parallel.batch.size > 1:
        shard(model, meshes, torch.float64)
    state = TrainState(spec, model, Optimizer(model, spec.train))
    state.resume(stretch.folder / name, lambda _: None)
    figures = [state.step]
    for number in range(state.step, stretch.until):
        tokens_BS = torch.randint(0, 64, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(number))
        info = train_step(model, state.optimizer, tokens_BS, spec, number)
        state.record(info)
        figures += [info.loss, info.gradient_norm]
    if stretch.saves:
        _evaluated(model)  # as before most checkpoints: it leaves sharded parameters whole
        state.save(stretch.folder / name, keep=2)
    return figures


def spawned(work: Any, *tasks: Any, kind: tuple[str, ...] = ()) -> dict[Any, Any]:
    """What as many processes as the largest layout needs were told, started once. On a CPU they are forked from one
    that has imported torch for all of them."""
    method = "spawn" if kind else "forkserver"
    torch.multiprocessing.get_context("forkserver").set_forkserver_preload(["routelaw.training.run"])
    with torch.multiprocessing.Manager() as manager:
        told = manager.dict()
        world = max(task.layout.world for task in tasks)
        arguments = (free_ports(len(tasks)), tasks, told, *kind)
        torch.multiprocessing.start_processes(work, arguments, nprocs=world, start_method=method)
        return dict(told)


def _evaluated(model: Transformer) -> list[float]:
    """Nats per token and every expert's load, over batches that do not divide evenly among processes."""
    draw = np.random.default_rng(1)
    batches = [draw.integers(0, model.spec.model.vocabulary, (rows, LENGTH + 1)) for rows in (5, 3)]
    found = likelihood(model, batches, next(model.parameters()).device)
    return [found.nats_per_token, float(found.tokens), *(share for load in found.load.values() for share in load)]


def _figures(info: StepInfo) -> list[float]:
    figures = [info.loss, info.gradient_norm]
    for layer in info.layers:
        figures += [layer.dropped, layer.oversubscribed, *layer.load, *layer.losses.values()]
    return figures


def _apart(one: list[float], two: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, two, strict=True))


@dataclass(frozen=True)
class Options:
    steps: int = 20
    processes: tuple[int, ...] = (1, 2, 4)
    precision: tuple[str, ...] = tuple(MOST)


def layouts_of(world: int) -> list[Layout]:
    """Every layout of so many processes."""
    sides = [n for n in range(1, world + 1) if world % n == 0]
    return [Layout(d, e, world // d // e) for d in sides for e in sides if world % (d * e) == 0]


def rows(options: Options) -> Iterator[Row]:
    for name in options.precision:
        dtype, most = getattr(torch, name), MOST[name]
        for world in options.processes:
            layouts = layouts_of(world)
            found = spawned(compare, *(LayoutCase(one, n, dtype, options.steps) for one in layouts for n in (1, 2)))
            for layout in layouts:
                gaps = {(c, case.micro_batches): max(g[:2]) for (case, c), g in found.items() if case.layout == layout}
                failures = {
                    f"{case}, {pieces} micro-batches": f"{gap:.1e} is beyond {most:g}"
                    for (case, pieces), gap in gaps.items() if gap > most
                }  # fmt: skip
                figures = {"cases": len(gaps), "difference": max(gaps.values()), "beyond": len(failures)}
                yield row(f"{name} {layout}", figures, failures)


if __name__ == "__main__":
    run("layout_equality", __doc__, Options, rows, lambda o: f"made up, {o.steps} steps", wanted={"beyond": (0, 0)})
