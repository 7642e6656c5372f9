"""The same run on one process and on several, compared step by step: what every rank of a test carries out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from routelaw.errors import InputError
from routelaw.evaluation.likelihood import likelihood
from routelaw.model.cuts import cuts_of
from routelaw.model.parallel import Parallel
from routelaw.model.transformer import Transformer
from routelaw.specs.architecture import Architecture
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.training.groups import check_split
from routelaw.training.mesh import Meshes, device_of, joined
from routelaw.training.optimizer import Optimizer, local_part
from routelaw.training.ranks import Rank
from routelaw.training.sharding import shard
from routelaw.training.state import TrainState
from routelaw.training.step import StepInfo, train_step

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
    optimizer = Optimizer(model, spec.train)
    seen: dict[str, Tensor] = {}
    honest = optimizer.step

    def step(rate: float, norm: Tensor) -> None:
        for name, master in optimizer.masters.items():
            seen[name] = (master.grad.full_tensor() if master is not local_part(master) else master.grad).clone()
        honest(rate, norm)

    optimizer.step = step
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    for number in range(spec.train.steps):
        tokens_BS = torch.randint(0, spec.model.vocabulary, (BATCH, LENGTH + 1), generator=generator).to(device)
        yield train_step(model, optimizer, tokens_BS, spec, number, micro_batches), dict(seen)


def compare(
    rank: int,
    port: int,
    layouts: Sequence[tuple[Layout, int]],
    dtype: torch.dtype,
    steps: int,
    told: Any,
    kind: str = "cpu",
) -> None:
    """On every rank: for each layout and case the largest difference of loss, gradient and log, put into `told`."""
    torch.set_num_threads(1)
    device = device_of(Rank(rank, layouts[0][0].world, rank), torch.device(kind))
    for number, (layout, micro_batches) in enumerate(layouts):
        known = {"RANK": rank, "WORLD_SIZE": layout.world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port + number}
        os.environ.update({name: str(value) for name, value in known.items()})
        with joined(layout, device, 120.0) as (parallel, meshes):
            for name, router in CASES.items():
                if not possible(router, layout, micro_batches):
                    continue
                spec = spec_of(router, steps)
                gap = gaps(spec, parallel, meshes, dtype, micro_batches, device, shards=parallel.batch.size > 1)
                if layout.world > 1:
                    dist.all_reduce(gap, op=dist.ReduceOp.MAX)
                if rank == 0:
                    told[str(layout), micro_batches, name] = gap.tolist()


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
    single = Transformer(spec).to(device, dtype)
    alone = list(followed(single, spec, micro_batches))
    model = Transformer(spec, parallel)
    cuts = cuts_of(model)
    if shards:
        shard(model.to(device, torch.promote_types(dtype, torch.float32)), meshes, dtype)
    else:
        model.to(device, dtype)
    gap = torch.zeros(3, dtype=torch.float64, device=device)
    for (info, own), (wanted, whole) in zip(followed(model, spec, micro_batches), alone, strict=True):
        gap[0] = max(gap[0], _apart(_figures(info), _figures(wanted)))
        gap[1] = max(gap[1], max(float((own[n] - whole[n][cuts[n].slices]).abs().max()) for n in own))
    gap[0] = max(gap[0], _apart(_evaluated(model), _evaluated(single)))
    gap[2] = alone[-1][0].dropped
    return gap


def checkpointed(rank: int, port: int, layout: Layout, folder: Path, until: int, saves: bool, told: Any) -> None:
    """On every rank: continue from what lies in the folder, step to `until`, and save there if asked; the losses."""
    if layout.world > 1:
        torch.set_num_threads(1)
        known = {"RANK": rank, "WORLD_SIZE": layout.world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in known.items()})
    with joined(layout, torch.device("cpu"), 120.0) as (parallel, meshes):
        for name in RESHARDED:
            spec = spec_of(CASES[name], 20)
            model = Transformer(spec, parallel).to(torch.float64)
            if parallel.batch.size > 1:
                shard(model, meshes, torch.float64)
            state = TrainState(spec, model, Optimizer(model, spec.train))
            state.resume(folder / name, lambda _: None)
            losses = [state.step]
            for number in range(state.step, until):
                tokens_BS = torch.randint(0, 64, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(number))
                info = train_step(model, state.optimizer, tokens_BS, spec, number)
                state.record(info)
                losses += [info.loss, info.gradient_norm]
            if saves:
                _evaluated(model)  # as before most checkpoints: it leaves sharded parameters whole
                state.save(folder / name, keep=2)
            if rank == 0:
                told[name] = losses


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
