"""Checkpoints of a run that several processes hold together: each writes its boxes, any layout reads them.

The first process makes the folder, all write their files into it, the first adds `state.json` with the index of all
boxes and renames: as with one process there is a whole checkpoint or none. What fails on one process fails on all, with
the same sentence, so that none waits for another.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from safetensors import SafetensorError

from routelaw.errors import InputError, unwritable
from routelaw.specs.files import to_mapping
from routelaw.specs.run import RunSpec
from routelaw.training.boxes import Piece, index_of, merged
from routelaw.training.checkpoint import (
    STATE,
    CheckpointReader,
    Damaged,
    flush,
    list_checkpoints,
    prune,
    remove,
    rendered,
    step_folder,
    system_error,
    write_tensors,
)
from routelaw.training.optimizer import MASTER, Optimizer, local_part
from routelaw.training.pieces import STEP, model_pieces

T = TypeVar("T")
Pieces = Mapping[str, Mapping[str, Piece]]
"""Kind (model, optimizer) -> name -> piece."""


def save_parts(folder: Path, spec: RunSpec, step: int, counters: dict[str, Any], pieces: Pieces, keep: int) -> Path:
    """Called by every process of the run."""
    final = step_folder(folder, step)
    unfinished = folder / f".{final.name}.parts"
    try:
        together(lambda: _begin(unfinished), unfinished, only_first=True)
        written = together(lambda: _write(unfinished, pieces), unfinished)
        state = {
            "step": step,
            "counters": counters,
            "spec": to_mapping(spec),
            "sha256": {file: sha for hashes, _ in written for file, sha in hashes.items()},
            "index": {kind: merged(index[kind] for _, index in written) for kind in pieces},
        }
        together(lambda: _conclude(unfinished, final, state, keep), final, only_first=True)
    finally:
        if dist.get_rank() == 0:
            shutil.rmtree(unfinished, ignore_errors=True)
    return final


def _begin(unfinished: Path) -> None:
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)


def _write(folder: Path, pieces: Pieces) -> tuple[dict[str, str], dict[str, Any]]:
    """This process's files, as their hashes and the index of what is in them."""
    hashes, index = {}, {}
    for kind, own in pieces.items():
        file = f"{kind}-{dist.get_rank():05d}.safetensors"
        index[kind] = index_of(own, file)
        tensors = {name: piece.tensor for name, piece in own.items() if piece.written}
        if tensors:
            hashes[file] = write_tensors(tensors, folder / file)
    return hashes, index


def _conclude(unfinished: Path, final: Path, state: dict[str, Any], keep: int) -> None:
    (unfinished / STATE).write_bytes(rendered(state))
    flush(unfinished / STATE)
    flush(unfinished)
    remove(final)  # only ever a damaged one of the same step
    unfinished.rename(final)
    flush(final.parent)
    prune(final.parent, state["step"], keep)


def together(action: Callable[[], T], path: Path, *, only_first: bool = False) -> list[T]:
    """Every process acts (or the first alone), and all hear how it went: results by rank, or one error for all."""
    outcome: tuple[T | None, str, int] = (None, "", 0)
    if not only_first or dist.get_rank() == 0:
        try:
            outcome = (action(), "", 0)
        except (OSError, SafetensorError) as error:
            known = system_error(error)
            outcome = (None, known.strerror or str(known), known.errno or 0)
    heard: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(heard, outcome)
    for rank, (_, words, number) in enumerate(heard):
        if words:
            raise unwritable(path, OSError(number, f"{words}, on process {rank}"))
    return [result for result, _, _ in heard]


def resume_parts(
    folder: Path, spec: RunSpec, model: Any, optimizer: Optimizer, notice: Callable[[str], None]
) -> dict[str, Any]:
    """Continue from the newest checkpoint that every process finds whole, whatever layout wrote it; its state, or an
    empty one. Called by every process."""
    for path in reversed(list_checkpoints(folder)):
        state: dict[str, Any] = {}
        try:
            reader = CheckpointReader(path, spec)
            reader.verify()
            state = reader.state
            problem = ""
        except Damaged as damage:
            problem = str(damage)
        whole = torch.tensor(0 if problem else 1, device=next(model.parameters()).device)
        dist.all_reduce(whole, op=dist.ReduceOp.MIN)
        if whole:
            try:
                _fill(CheckpointReader(path, spec), model, optimizer)
            except KeyError as error:
                raise InputError(f"{path} was written by another version of the model ({error}).") from None
            notice(f"continuing after step {state['step']} from {path}.")
            return state
        notice(f"checkpoint {path} is damaged ({problem or 'as another process found'}) and left aside.")
    return {}


@torch.no_grad()
def _fill(reader: CheckpointReader, model: Any, optimizer: Optimizer) -> None:
    """The widest copy of a parameter is the one that counts."""
    for name, piece in model_pieces(model).items():
        kind, key = (
            ("optimizer", f"{MASTER}/{name}") if reader.has("optimizer", f"{MASTER}/{name}") else ("model", name)
        )
        piece.tensor.copy_(reader.read(kind, key, piece.start, piece.length))
        master = optimizer.masters.get(name)
        if master is None:
            continue
        if master is not optimizer.parameters[name]:
            local_part(master).copy_(reader.read(kind, key, piece.start, piece.length))
        known = {}
        for moment in ("exp_avg", "exp_avg_sq"):
            if reader.has("optimizer", f"{moment}/{name}"):
                known[moment] = torch.zeros_like(master)
                local_part(known[moment]).copy_(reader.read("optimizer", f"{moment}/{name}", piece.start, piece.length))
        if known:
            known[STEP] = reader.read("optimizer", f"{STEP}/{name}").to(master.device)
            optimizer.statistics[name] = known
