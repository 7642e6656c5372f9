"""Our checkpoints against torch.distributed.checkpoint with safetensors storage: seconds, bytes, files, resharding.

    python benchmarks/checkpoint_formats.py [--sizes 20M 130M] [--repeats 5]

A dense model with AdamW's state is saved and loaded by one process and by two (gloo, FSDP), the formats in turn, each
into a new folder; medians. Then what one process saved is read by two, saved by them, and read by one: is it equal?
docs/log/2026-11-19-checkpoint-format.md has what came of it.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import sys
import tempfile
import time
import warnings
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "training"))
from layout_cases import free_ports


def flat(state: TrainState) -> dict[str, Tensor]:
    model = {f"model/{name}": tensor for name, tensor in state.model.state_dict().items()}
    return model | {f"optimizer/{name}": tensor for name, tensor in state.optimizer.state().items()}


def save_dcp(state: TrainState, folder: Path, consolidated: bool = False) -> None:
    dcp.save(flat(state), storage_writer=HuggingFaceStorageWriter(str(folder), None, 1, True, consolidated))


def load_dcp(state: TrainState, folder: Path) -> None:
    dcp.load(flat(state), storage_reader=HuggingFaceStorageReader(str(folder)))


Format = tuple[Callable[[TrainState, Path], Any], Callable[[TrainState, Path], Any]]
FORMATS: dict[str, Format] = {
    "routelaw": (lambda state, folder: state.save(folder, 1), lambda state, folder: state.resume(folder, str)),
    "DCP": (save_dcp, load_dcp),
    "DCP, consolidated": (lambda state, folder: save_dcp(state, folder, True), load_dcp),
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
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in known.items()})
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
        given = (world, free_ports(1)[0], size, list(jobs), told)
        torch.multiprocessing.start_processes(work, given, nprocs=world, start_method="spawn")
        return list(told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=["20M", "130M"])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    for size in asked.sizes:
        for world in (1, 2):
            with tempfile.TemporaryDirectory() as place:
                folders = [(kind, Path(place, kind, str(n))) for n in range(asked.repeats) for kind in FORMATS]
                seconds: dict[tuple[str, str], list[float]] = {}
                for action in ("save", "load"):
                    for kind, what, taken in done(world, size, [(kind, action, path) for kind, path in folders]):
                        seconds.setdefault((kind, what), []).append(taken)
                for kind in FORMATS:
                    files = [file for file in Path(place, kind, "0").rglob("*") if file.is_file()]
                    both = (seconds[kind, action] for action in ("save", "load"))
                    times = ", ".join(f"{statistics.median(s):.2f} s ({min(s):.2f} to {max(s):.2f})" for s in both)
                    size_in_bytes = sum(file.stat().st_size for file in files)
                    print(f"{size}, {world} processes, {kind}: save and load {times}; {len(files)} files", end=", ")
                    print(f"{size_in_bytes:,} bytes", flush=True)
        for kind in FORMATS:
            with tempfile.TemporaryDirectory() as place:
                one, two = Path(place, "one"), Path(place, "two")
                before = done(1, size, [(kind, "save", one)])[-1]
                done(2, size, [(kind, "load", one), (kind, "save", two)])
                after = done(1, size, [(kind, "load", two)])[-1]
                print(f"{size}, {kind}, 1 → 2 → 1: {'equal' if before == after else 'differs'}", flush=True)


if __name__ == "__main__":
    main()
