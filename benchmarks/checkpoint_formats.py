"""Our checkpoints against torch.distributed.checkpoint with safetensors storage: seconds, bytes, files, resharding.

    python -m benchmarks.checkpoint_formats [20M 130M]

A dense model with AdamW's state is saved and loaded by one process and by two (gloo, FSDP), the formats in turn, each
into a new folder; medians. Then what one process saved is read by two, saved by them, and read by one: is it equal?
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch import Tensor
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from routelaw.distributed.groups import process_groups
from routelaw.distributed.sharding import shard
from routelaw.distributed.tensor_shards import local_part
from routelaw.model.transformer import Transformer
from routelaw.specs.layout import Layout
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.optimizer import Optimizer
from routelaw.training.state import TrainState
from verification.layout_equality import free_ports


def flat(state: TrainState) -> dict[str, Tensor]:
    model = {f"model/{name}": tensor for name, tensor in state.model.state_dict().items()}
    return model | {f"optimizer/{name}": tensor for name, tensor in state.optimizer.state().items()}


FORMATS: dict[str, tuple[Callable[[TrainState, Path], Any], Callable[[TrainState, Path], Any]]] = {
    "routelaw": (lambda state, path: state.save(path, 1), lambda state, path: state.resume(path, str)),
    "DCP": (
        lambda state, path: dcp.save(flat(state), storage_writer=HuggingFaceStorageWriter(path, save_distributed=True)),
        lambda state, path: dcp.load(flat(state), storage_reader=HuggingFaceStorageReader(path)),
    ),
}


def built(size: str, parallel: Any, meshes: Any, filled: bool) -> TrainState:
    """A model with AdamW's state: random where it is to be saved, zero where it is to be loaded."""
    spec = RunSpec(ModelSpec(get_size(size), 32_000, 128), RouterSpec(), TrainSpec(steps=9, batch=8), "corpus")
    model = Transformer(spec, parallel)
    if meshes is not None:
        shard(model, meshes, torch.float32)
    state = TrainState(spec, model, Optimizer(model, spec.train), step=3)
    torch.manual_seed(parallel.rank)
    for name, master in state.optimizer.masters.items():
        for tensor in (local_part(master).detach(), *map(local_part, state.optimizer._statistics(name).values())):
            tensor.normal_().abs_() if filled else tensor.zero_()
    return state


def work(rank: int, world: int, port: int, size: str, jobs: list[tuple[str, str, Path]], told: Any) -> None:
    """Jobs are (format, save or load, folder), done in turn by `world` processes that keep one state."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with process_groups(Layout(world), torch.device("cpu"), 600.0) as (parallel, meshes):
        state = built(size, parallel, meshes, filled=jobs[0][1] == "save")
        for kind, action, folder in jobs:
            parallel.gather(0)
            begun = time.perf_counter()
            FORMATS[kind][action == "load"](state, folder)
            parallel.gather(0)
            if rank == 0:
                told.append((kind, action, time.perf_counter() - begun))
        if world == 1:
            hashes = {name: hashlib.sha256(tensor.numpy()).hexdigest() for name, tensor in flat(state).items()}
            told.append(("", "hashes", hashes))


def done(world: int, size: str, jobs: Iterable[tuple[str, str, Path]]) -> list[Any]:
    with torch.multiprocessing.Manager() as manager:
        told = manager.list()
        torch.multiprocessing.spawn(work, (world, free_ports(1)[0], size, list(jobs), told), nprocs=world)
        return list(told)


def measure(size: str, world: int, place: Path) -> None:
    folders = [(kind, place / kind / str(n)) for n in range(5) for kind in FORMATS]
    found = done(world, size, [(kind, "save", folder) for kind, folder in folders])
    found += done(world, size, [(kind, "load", folder) for kind, folder in folders])
    for kind in FORMATS:
        for action in ("save", "load"):
            times = [seconds for name, what, seconds in found if (name, what) == (kind, action)]
            print(f"{size}, {world} processes, {kind}: {action} {statistics.median(times):.2f} s of {sorted(times)}")
        files = [file.stat().st_size for file in (place / kind / "0").rglob("*") if file.is_file()]
        print(f"{size}, {world} processes, {kind}: {len(files)} files, {sum(files):,} bytes", flush=True)


def main() -> None:
    for size in sys.argv[1:] or ("20M", "130M"):
        for world in (1, 2):
            with tempfile.TemporaryDirectory() as place:
                measure(size, world, Path(place))
        for kind in FORMATS:
            with tempfile.TemporaryDirectory() as place:
                one, two = Path(place, "one"), Path(place, "two")
                before = done(1, size, [(kind, "save", one)])[-1]
                done(2, size, [(kind, "load", one), (kind, "save", two)])
                equal = done(1, size, [(kind, "load", two)])[-1] == before
                print(f"{size}, {kind}, 1 → 2 → 1: {'equal' if equal else 'differs'}", flush=True)


if __name__ == "__main__":
    main()
