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
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from routelaw.errors import InputError, unwritable
from routelaw.files import parse_json, read_bytes, sha256_of
from routelaw.runs.store import DIVERGED, FINISHED, RUNNING
from routelaw.specs.files import from_stored, require_same_run, to_mapping
from routelaw.specs.run import RunSpec
from routelaw.training.boxes import BoxReader, Index, check_index

STATE, MODEL, OPTIMIZER = "state.json", "model", "optimizer"
NAME = re.compile(r"step-([0-9]{8,12})", re.ASCII)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


COUNTERS: dict[str, Callable[[Any], bool]] = {
    "status": lambda value: value in (RUNNING, FINISHED, DIVERGED),
    "skipped": _is_count,
    "skipped_in_a_row": _is_count,
    "loss_validation": lambda value: isinstance(value, float | None),
}
"""What a run knows of itself besides its tensors (training/state.py), and what each may be."""


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
    final = step_folder(folder, checkpoint.step)
    unfinished = folder / f".{final.name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        _write(unfinished, spec, checkpoint)
        remove(final)  # only ever a damaged one of the same step
        unfinished.rename(final)
        flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        last = list_checkpoints(folder)
        left = f"the one before, {last[-1].name}, is intact" if last else "there is none before it"
        advice = f"; {left}. Make room and run the same command again to go on from there"
        raise unwritable(final, system_error(error), advice) from None
    prune(folder, checkpoint.step, keep)
    return final


def step_folder(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def system_error(error: OSError | SafetensorError) -> OSError:
    """safetensors has the system's number in words only."""
    if isinstance(error, OSError):
        return error
    return OSError(errno.ENOSPC if f"os error {errno.ENOSPC}" in str(error) else errno.EIO, str(error))


def _write(folder: Path, spec: RunSpec, checkpoint: Checkpoint) -> None:
    hashes = {}
    for name, tensors in ((MODEL, checkpoint.model), (OPTIMIZER, checkpoint.optimizer)):
        hashes[name] = write_tensors(tensors, folder / f"{name}.safetensors")
    state = {"step": checkpoint.step, "counters": checkpoint.counters, "spec": to_mapping(spec), "sha256": hashes}
    (folder / STATE).write_bytes(rendered(state))
    flush(folder / STATE)
    flush(folder)


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> str:
    """Write a safetensors file through to the disk; its sha256."""
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)
    # safetensors leaves it readable by its owner alone; whoever may read the folder may read the file, too.
    path.chmod(0o666 & path.parent.stat().st_mode)
    flush(path)
    return sha256_of(path)


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
    except (RuntimeError, KeyError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InputError(f"{checkpoint.path} was written by another version of the model ({first}).") from None


def list_checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted((p for p in folder.glob("step-*") if NAME.fullmatch(p.name) and p.is_dir()), key=_step_of)


def load_checkpoint(
    path: Path, spec: RunSpec, device: torch.device | str = "cpu", parts: Sequence[str] = (MODEL, OPTIMIZER)
) -> Checkpoint:
    """The checkpoint, every byte of the parts asked for verified; raises Damaged. Written by several processes, it is
    put together here."""
    reader = CheckpointReader(path, spec)
    tensors = {kind: {name: reader.read(kind, name).to(device) for name in reader.names(kind)} for kind in parts}
    state = reader.state
    return Checkpoint(state["step"], tensors[MODEL], tensors.get(OPTIMIZER, {}), state["counters"], path)


class CheckpointReader:
    """A checkpoint of this run, by boxes, whichever layout wrote it; every file is verified when it is first needed."""

    def __init__(self, path: Path, spec: RunSpec) -> None:
        self.path, self.state = path, read_state(path)
        require_same_run(from_stored(self.state["spec"], str(path)), spec, f"{path} belongs to another run")
        step, steps = self.state["step"], spec.train.steps
        if step > steps or (step < steps and self.state["counters"].get("status") == FINISHED):
            raise Damaged(f"{STATE} says {self.state['counters'].get('status')} at step {step} of {steps}")
        self._boxes: dict[str, BoxReader] = {}

    def verify(self) -> None:
        """Every file of it, before anything is read into a model."""
        for name in self.state["sha256"]:
            file = self.path / name
            self._verify(file if file.suffix else file.with_suffix(".safetensors"))

    def names(self, kind: str) -> list[str]:
        return list(self._reader(kind).index)

    def has(self, kind: str, name: str) -> bool:
        return name in self._reader(kind).index

    def read(
        self, kind: str, name: str, start: Sequence[int] | None = None, length: Sequence[int] | None = None
    ) -> Tensor:
        try:
            tensor = self._reader(kind).read(name, start, length)
        except (SafetensorError, OSError, ValueError) as error:
            raise Damaged(f"{kind} cannot be read: {error}") from None
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise Damaged(f"{kind} holds numbers that are not finite")  # steps that would make them are skipped
        return tensor

    def _reader(self, kind: str) -> BoxReader:
        if kind not in self._boxes:
            index = self.state.get("index", {}).get(kind) or self._of_one_file(kind)
            try:
                check_index(index, {*self.state["sha256"], f"{kind}.safetensors"})
            except ValueError as error:
                raise Damaged(f"{STATE}: {error}") from None
            self._boxes[kind] = BoxReader(self.path, index, self._verify)
        return self._boxes[kind]

    def _of_one_file(self, kind: str) -> Index:
        """A single process writes whole tensors, and no index."""
        file = self.path / f"{kind}.safetensors"
        self._verify(file)
        try:
            with safe_open(str(file), framework="pt") as opened:
                shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise Damaged(f"{file.name} cannot be read: {error}") from None
        return {
            name: {"shape": shape, "parts": [{"file": file.name, "start": [0] * len(shape), "length": shape}]}
            for name, shape in shapes.items()
        }

    def _verify(self, file: Path) -> None:
        hashes = self.state["sha256"]
        if not file.is_file():
            raise Damaged(f"{file.name} is missing")
        if sha256_of(file) != hashes.get(file.name, hashes.get(file.stem)):
            raise Damaged(f"{file.name} does not match its sha256")


def read_state(path: Path) -> dict[str, Any]:
    """The verified content of a checkpoint's state file."""
    try:
        content = read_bytes(path / STATE)
        state = parse_json(content, STATE)["state"]
    except (InputError, KeyError, TypeError):
        raise Damaged(f"{STATE} is missing or cannot be read") from None
    if content != rendered(state):
        raise Damaged(f"{STATE} does not match its checksum")
    if wrong := _wrong_in(state, path):
        raise Damaged(f"{STATE} has no valid {wrong}")
    return state


def _wrong_in(state: Any, path: Path) -> str:
    """The first key of a state that does not hold what training writes there; empty where all do."""
    if not isinstance(state, dict):
        return "content"
    counters, hashes = state.get("counters"), state.get("sha256")
    sound = {
        "step": _is_count(state.get("step")) and step_folder(path.parent, state["step"]).name == path.name,
        "counters": isinstance(counters, dict)
        and all(name in COUNTERS and COUNTERS[name](value) for name, value in counters.items()),
        "spec": isinstance(state.get("spec"), dict),
        "sha256": isinstance(hashes, dict)
        and all(isinstance(sha, str) and Path(name).name == name for name, sha in hashes.items()),
        "index": isinstance(state.get("index", {}), dict),
    }
    return next((key for key, is_sound in sound.items() if not is_sound), "")


def rendered(state: Any) -> bytes:
    """One way to write a state, so that every byte of the file can be checked."""
    body = json.dumps(state, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f'{{"checksum":"{hashlib.sha256(body.encode()).hexdigest()}","state":{body}}}\n'.encode()


def prune(folder: Path, step: int, keep: int) -> None:
    """Newer ones than the one just written are damaged: the run went on from before them."""
    older = [path for path in list_checkpoints(folder) if _step_of(path) <= step]
    for path in list_checkpoints(folder):
        if path not in older[-max(keep, 1) :]:
            remove(path)
    for unfinished in folder.glob(".step-*"):
        shutil.rmtree(unfinished, ignore_errors=True)


def remove(path: Path) -> None:
    """Renamed first: a half-removed directory must not look like a checkpoint."""
    if path.exists():
        gone = path.with_name(f".{path.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _step_of(path: Path) -> int:
    return int(path.name[5:])


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
