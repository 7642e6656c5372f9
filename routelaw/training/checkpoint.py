"""Checkpoints: atomic, checksummed, the last few kept, no pickle; of any layout of processes, read by any other.

A checkpoint is a directory `step-00001000`. Every process writes the tensor shards that it holds to files of its own,
`model-00000.safetensors` and `optimizer-00000.safetensors`; a single process is a layout of one. The first adds
`state.json`: the sha256 of every file, an index (which shard of which tensor lies in which file), the run's spec, and a
checksum of itself. All of it is written beside its final name, flushed to disk and renamed: processes killed at any
instant leave either a whole checkpoint or none. Reading verifies; a damaged newest one is skipped with a notice and the
one before is used. What fails on one process fails on all, with one sentence, so that none waits for another.
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
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from routelaw.distributed.groups import ALONE, Parallel
from routelaw.distributed.tensor_shards import TensorShard
from routelaw.errors import InputError, unwritable
from routelaw.files import parse_json, read_bytes, sha256_of
from routelaw.runs.store import DIVERGED, FINISHED, RUNNING
from routelaw.specs.files import from_stored, require_same_run, to_mapping
from routelaw.specs.run import RunSpec

T = TypeVar("T")
STATE, MODEL, OPTIMIZER = "state.json", "model", "optimizer"
NAME = re.compile(r"step-([0-9]{8,12})", re.ASCII)
Shards = Mapping[str, Mapping[str, tuple[Tensor, TensorShard]]]
"""Kind (model, optimizer) -> name -> what a process holds of it, and where that lies in the whole."""


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
    """A checkpoint with its tensors whole."""

    step: int
    """Steps taken so far: the next step to take has this number."""
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)
    path: Path | None = None


def save_checkpoint(
    folder: Path,
    spec: RunSpec,
    step: int,
    counters: Mapping[str, Any],
    shards: Shards,
    keep: int,
    parallel: Parallel = ALONE,
) -> Path:
    """Write it whole or not at all, then remove what is older than the last `keep`. Called by every process."""
    final = step_folder(folder, step)
    unfinished = folder / f".{final.name}.unfinished"
    try:
        _together(lambda: _begin(unfinished), final, parallel, only_first=True)
        written = _together(lambda: _write(unfinished, shards, parallel.rank), final, parallel)
        index: dict[str, dict[str, Any]] = {kind: {} for kind in shards}
        for _, own in written:
            for kind, name, shape, part in own:
                index[kind].setdefault(name, {"shape": shape, "parts": []})["parts"].append(part)
        state = {
            "step": step,
            "counters": counters,
            "spec": to_mapping(spec),
            "sha256": {file: sha for hashes, _ in written for file, sha in hashes.items()},
            "index": index,
        }
        _together(lambda: _finish(unfinished, final, state, keep), final, parallel, only_first=True)
    finally:
        if parallel.rank == 0:
            shutil.rmtree(unfinished, ignore_errors=True)
    return final


def _begin(unfinished: Path) -> None:
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)


def _write(folder: Path, shards: Shards, rank: int) -> tuple[dict[str, str], list[tuple[str, str, Sequence[int], Any]]]:
    """This process's files with their hashes, and what is in them: kind, name, shape of the whole, and the part."""
    hashes, parts = {}, []
    for kind, named in shards.items():
        file = f"{kind}-{rank:05d}.safetensors"
        own = {name: held for name, held in named.items() if held[1].replica == 0 and held[1].elements}
        for name, (_, shard) in own.items():
            part = {"file": file, "start": list(shard.offset), "length": list(shard.shape)}
            parts.append((kind, name, list(shard.global_shape), part))
        if own:
            hashes[file] = _write_tensors({name: tensor for name, (tensor, _) in own.items()}, folder / file)
    return hashes, parts


def _write_tensors(tensors: Mapping[str, Tensor], path: Path) -> str:
    """Write a safetensors file through to the disk; its sha256."""
    save_file({name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}, path)
    # safetensors leaves it readable by its owner alone; whoever may read the folder may read the file, too.
    path.chmod(0o666 & path.parent.stat().st_mode)
    _flush(path)
    return sha256_of(path)


def _finish(unfinished: Path, final: Path, state: dict[str, Any], keep: int) -> None:
    (unfinished / STATE).write_bytes(rendered(state))
    _flush(unfinished / STATE)
    _flush(unfinished)
    _remove(final)  # only ever a damaged one of the same step
    unfinished.rename(final)
    _flush(final.parent)  # the rename itself, which a power cut could undo
    _prune(final.parent, state["step"], keep)


def _together(action: Callable[[], T], path: Path, parallel: Parallel, *, only_first: bool = False) -> list[T]:
    """Every process acts (or the first alone), and all hear how it went: results by rank, or one error for all."""
    result, problem = None, None
    if not only_first or parallel.rank == 0:
        try:
            result = action()
        except OSError as error:
            problem = error
        except SafetensorError as error:  # has the system's number in words only
            full = f"os error {errno.ENOSPC}" in str(error)
            problem = OSError(errno.ENOSPC if full else errno.EIO, str(error))
    # An error is sent as any other result: a process that raised at once would leave the others in this collective.
    outcomes = parallel.gather((result, problem))
    for rank, (_, error) in enumerate(outcomes):
        if error is not None:
            words = (error.strerror or str(error)) + ("" if parallel.alone else f", on process {rank}")
            last = list_checkpoints(path.parent)
            left = f"the one before, {last[-1].name}, is intact" if last else "there is none before it"
            advice = f"; {left}. Make room and run the same command again to go on from there"
            raise unwritable(path, OSError(error.errno or 0, words), advice)
    return [result for result, _ in outcomes]  # pyrefly: ignore


def whole_tensors(reader: CheckpointReader) -> Checkpoint:
    tensors = {kind: {name: reader.read(kind, name) for name in names} for kind, names in reader.index.items()}
    state = reader.state
    return Checkpoint(state["step"], tensors[MODEL], tensors.get(OPTIMIZER, {}), state["counters"], reader.path)


def latest_checkpoint(
    folder: Path,
    spec: RunSpec,
    notice: Callable[[str], None],
    kinds: Sequence[str] = (MODEL, OPTIMIZER),
    read: Callable[[CheckpointReader], Any] = whole_tensors,
    parallel: Parallel = ALONE,
) -> Any:
    """What `read` makes of the newest checkpoint of this run that every process finds whole; None where there is none.
    One of another meaning is refused with the difference shown. Called by every process."""
    paths = list_checkpoints(folder)
    for path in reversed(paths):
        found, problem = None, ""
        try:
            found = read(CheckpointReader(path, spec, kinds))
        except Damaged as damage:
            problem = str(damage)
        # All use the same one: had each fallen back on its own, they would go on from different steps.
        problem = next(filter(None, parallel.gather(problem)), "")
        if not problem:
            return found
        notice(f"checkpoint {path} is damaged ({problem}) and left aside.")
    if paths:
        notice(f"no whole checkpoint is left in {folder}.")
    return None


def load_checkpoint(path: Path, spec: RunSpec, kinds: Sequence[str] = (MODEL, OPTIMIZER)) -> Checkpoint:
    """The checkpoint, every byte of the kinds asked for verified; raises Damaged."""
    return whole_tensors(CheckpointReader(path, spec, kinds))


@contextmanager
def fitting_tensors(path: Path | None) -> Iterator[None]:
    """Around loading tensors: those of another version of the model are one sentence, not a traceback."""
    try:
        yield
    except (RuntimeError, KeyError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise InputError(f"{path} was written by another version of the model ({first}).") from None


def list_checkpoints(folder: Path) -> list[Path]:
    """Oldest first."""
    return sorted((p for p in folder.glob("step-*") if NAME.fullmatch(p.name) and p.is_dir()), key=_step_of)


class CheckpointReader:
    """A checkpoint of this run, whichever layout wrote it.

    Every file is verified when something is first read from it. Of several processes each checks what it needs, and
    together (`latest_checkpoint`) they check all.
    """

    def __init__(self, path: Path, spec: RunSpec, kinds: Sequence[str] = (MODEL, OPTIMIZER)) -> None:
        self.path, self.state = path, read_state(path)
        require_same_run(from_stored(self.state["spec"], str(path)), spec, f"{path} belongs to another run")
        step, steps = self.state["step"], spec.train.steps
        if step > steps or (step < steps and self.state["counters"].get("status") == FINISHED):
            raise Damaged(f"{STATE} says {self.state['counters'].get('status')} at step {step} of {steps}")
        # Until November 2026 a single process wrote whole tensors, to `model.safetensors`, and no index.
        stored, ending = self.state.get("index"), "" if "index" in self.state else ".safetensors"
        self._hashes: dict[str, str] = {name + ending: sha for name, sha in self.state["sha256"].items()}
        self._files: dict[str, Any] = {}
        self.index: dict[str, dict[str, list[tuple[str, TensorShard]]]] = {}
        """Kind -> name -> the shards in which a tensor is stored, each with its file."""
        if stored is None:
            stored = {kind: self._index_of_whole_tensors(f"{kind}.safetensors") for kind in kinds}
        self.index = {kind: _parsed_index(stored.get(kind), self._hashes) for kind in kinds}
        for file in self._hashes:
            if file.partition("-")[0] in self.index and not self._names_in(file):
                raise Damaged(f"{STATE}: its index names nothing in {file}")

    def read(self, kind: str, name: str, shard: TensorShard | None = None) -> Tensor:
        """A shard of a tensor, put together from those that are stored; the whole of it unless told otherwise."""
        stored = self.index[kind][name]
        whole = TensorShard.whole(stored[0][1].global_shape)
        shard = shard or whole
        if shard.global_shape != whole.global_shape:
            raise ValueError(f"{name} has shape {whole.global_shape} there and {shard.global_shape} here")
        common = [(file, part, shard.intersection(part)) for file, part in stored]
        common = [(file, part, both) for file, part, both in common if both.elements]
        if sum(both.elements for _, _, both in common) != shard.elements:
            raise Damaged(f"{kind}: what is stored of {name} does not make up the whole")
        found = [(both.within(shard), self._slice(file, name, part, both)) for file, part, both in common]
        if len(found) == 1:
            tensor = found[0][1]
        else:
            tensor = torch.empty(shard.shape, dtype=found[0][1].dtype if found else None)
            for place, piece in found:
                tensor[place] = piece
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise Damaged(f"{kind} holds values that are not finite")  # steps that would make them are skipped
        return tensor

    def _slice(self, file: str, name: str, part: TensorShard, wanted: TensorShard) -> Tensor:
        try:
            place = wanted.within(part)  # a scalar has no dimension to slice
            tensor = self._file(file).get_slice(name)[place] if place else self._file(file).get_tensor(name)
        except (SafetensorError, OSError, ValueError, IndexError) as error:
            raise Damaged(f"{file} cannot be read: {error}") from None
        if tuple(tensor.shape) != wanted.shape:
            raise Damaged(f"{file} holds another shape of {name} than {STATE} says")
        return tensor

    def _file(self, name: str) -> Any:
        if name not in self._files:
            path = self.path / name
            if not path.is_file():
                raise Damaged(f"{name} is missing")
            if sha256_of(path) != self._hashes[name]:
                raise Damaged(f"{name} does not match its sha256")
            try:
                self._files[name] = safe_open(str(path), framework="pt")
            except (SafetensorError, OSError) as error:
                raise Damaged(f"{name} cannot be read: {error}") from None
            # A tensor that the index does not name would be missed later, or never: from the optimizer's it may be.
            if self.index and set(self._files[name].keys()) != self._names_in(name):
                raise Damaged(f"{name} holds other tensors than {STATE} says")
        return self._files[name]

    def _names_in(self, file: str) -> set[str]:
        return {
            name for named in self.index.values() for name, parts in named.items() if any(f == file for f, _ in parts)
        }

    def _index_of_whole_tensors(self, file: str) -> dict[str, Any]:
        opened = self._file(file) if file in self._hashes else None
        shapes = {name: opened.get_slice(name).get_shape() for name in opened.keys()} if opened else {}  # noqa: SIM118
        return {
            name: {"shape": shape, "parts": [{"file": file, "start": [0] * len(shape), "length": shape}]}
            for name, shape in shapes.items()
        }


def _parsed_index(index: Any, files: Mapping[str, Any]) -> dict[str, list[tuple[str, TensorShard]]]:
    """The index of a kind; raises Damaged unless every part lies within its tensor and in one of the files."""
    if not isinstance(index, dict):
        raise Damaged(f"{STATE}: the index is no table of tensors")
    parsed = {}
    for name, entry in index.items():
        try:
            parsed[name] = [
                (part["file"], TensorShard(tuple(entry["shape"]), tuple(part["start"]), tuple(part["length"])))
                for part in entry["parts"]
            ]
            sound = bool(parsed[name]) and all(file in files and shard.is_sound for file, shard in parsed[name])
        except (TypeError, KeyError):
            sound = False
        if not sound:
            raise Damaged(f"{STATE}: the index of tensor {name} is not one that was written")
    return parsed


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
    # What was parsed is rendered again and compared, so no byte may be free: not a space, not the order of keys.
    body = json.dumps(state, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f'{{"checksum":"{hashlib.sha256(body.encode()).hexdigest()}","state":{body}}}\n'.encode()


def step_folder(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


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


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
