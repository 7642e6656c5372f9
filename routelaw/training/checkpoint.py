"""Checkpoints: atomic, checksummed, the last few kept, no pickle.

A checkpoint is a directory `step-00001000` with `model.safetensors`, `optimizer.safetensors` and `state.json`, which
holds the sha256 of the other two, the run's spec and a checksum of itself. It is written beside its final name,
flushed to disk and renamed: a process killed at any instant leaves either a whole checkpoint or none. Reading
verifies; a damaged newest one is skipped with a notice and the one before is used.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from routelaw.errors import InputError, unwritable
from routelaw.specs.difference import refuse_another
from routelaw.specs.files import from_stored, to_mapping
from routelaw.specs.run import RunSpec

STATE, MODEL, OPTIMIZER = "state.json", "model", "optimizer"


class Damaged(Exception):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Checkpoint:
    step: int
    """Steps taken so far: the next step to take has this number."""
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None


def save_checkpoint(folder: Path, spec: RunSpec, checkpoint: Checkpoint, keep: int) -> Path:
    """Write it whole or not at all, then remove what is older than the last `keep`."""
    final = folder / f"step-{checkpoint.step:08d}"
    unfinished = folder / f".{final.name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _write(unfinished, spec, checkpoint)
        _remove(final)  # only ever a damaged one of the same step
        unfinished.rename(final)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        last = list_checkpoints(folder)
        left = f"the one before, {last[-1].name}, is intact" if last else "there is none before it"
        if not isinstance(error, OSError):  # safetensors has the system's number in words only
            error = OSError(errno.ENOSPC if f"os error {errno.ENOSPC}" in str(error) else errno.EIO, str(error))
        advice = f"; {left}. Make room and run the same command again to go on from there"
        raise unwritable(final, error, advice) from None
    _prune(folder, checkpoint.step, keep)
    return final


def _write(folder: Path, spec: RunSpec, checkpoint: Checkpoint) -> None:
    hashes = {}
    for name, tensors in ((MODEL, checkpoint.model), (OPTIMIZER, checkpoint.optimizer)):
        path = folder / f"{name}.safetensors"
        save_file({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, path)
        hashes[name] = _sha256(path)
        _flush(path)
    state = {"step": checkpoint.step, "counters": checkpoint.counters, "spec": to_mapping(spec), "sha256": hashes}
    (folder / STATE).write_bytes(_rendered(state))
    _flush(folder / STATE)
    _flush(folder)


def latest_checkpoint(
    folder: Path,
    spec: RunSpec,
    notice: Callable[[str], None],
    device: torch.device | str = "cpu",
    parts: Sequence[str] = (MODEL, OPTIMIZER),
) -> Checkpoint | None:
    """The newest whole checkpoint of this run, or None. One of another meaning is refused with the difference shown."""
    paths = list_checkpoints(folder)
    for path in reversed(paths):
        try:
            return load_checkpoint(path, spec, device, parts)
        except Damaged as damage:
            notice(f"checkpoint {path} is damaged ({damage}) and left aside.")
    if paths:
        notice(f"no whole checkpoint is left in {folder}.")
    return None


@contextmanager
def fitting_tensors(checkpoint: Checkpoint) -> Iterator[None]:
    """Around loading its tensors: those of another version of the model are one sentence, not a traceback."""
    try:
        yield
    except (RuntimeError, KeyError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InputError(f"{checkpoint.path} was written by another version of the model ({first}).") from None


def list_checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted((p for p in folder.glob("step-*") if p.is_dir() and p.name[5:].isdigit()), key=_step_of)


def load_checkpoint(
    path: Path, spec: RunSpec, device: torch.device | str = "cpu", parts: Sequence[str] = (MODEL, OPTIMIZER)
) -> Checkpoint:
    """The checkpoint, every byte of the parts asked for verified; raises Damaged."""
    state = read_state(path)
    refuse_another(from_stored(state["spec"], str(path)), spec, f"{path} belongs to another run")
    tensors: dict[str, dict[str, Tensor]] = {}
    for name in parts:
        file = path / f"{name}.safetensors"
        if not file.is_file():
            raise Damaged(f"{file.name} is missing")
        try:
            if _sha256(file) != state["sha256"][name]:
                raise Damaged(f"{file.name} does not match its sha256")
            tensors[name] = load_file(file, device=str(device))
        except (SafetensorError, OSError) as error:
            raise Damaged(f"{file.name} cannot be read: {error}") from None
    return Checkpoint(state["step"], tensors[MODEL], tensors.get(OPTIMIZER, {}), state["counters"], path)


def read_state(path: Path) -> dict[str, Any]:
    """The verified content of a checkpoint's state file."""
    try:
        content = (path / STATE).read_bytes()
        state = json.loads(content)["state"]
    except (OSError, ValueError, KeyError, TypeError):
        raise Damaged(f"{STATE} is missing or cannot be read") from None
    if content != _rendered(state):
        raise Damaged(f"{STATE} does not match its checksum")
    return state


def _rendered(state: Any) -> bytes:
    """One way to write a state, so that every byte of the file can be checked."""
    body = json.dumps(state, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f'{{"checksum":"{hashlib.sha256(body.encode()).hexdigest()}","state":{body}}}\n'.encode()


def _prune(folder: Path, step: int, keep: int) -> None:
    """Newer ones than the one just written are damaged: the run went on from before them."""
    older = [path for path in list_checkpoints(folder) if _step_of(path) <= step]
    for path in list_checkpoints(folder):
        if path not in older[-max(keep, 1) :]:
            _remove(path)
    for unfinished in folder.glob(".step-*"):
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove(path: Path) -> None:
    """Renamed first: a half-removed directory must not look like a checkpoint."""
    if path.exists():
        gone = path.with_name(f".{path.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _step_of(path: Path) -> int:
    return int(path.name[5:])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
