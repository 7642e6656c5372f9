"""Parts of tensors in files: what a process holds of a tensor is a box, and any box can be read from any others.

A checkpoint of several processes has one file per process and kind, and an index: for every tensor its whole shape and
the boxes in which it lies, each with its file. A process that reads asks for its own box, whatever boxes were written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

Index = dict[str, dict[str, Any]]
"""Name -> {"shape", "parts": [{"file", "start", "length"}]}, as JSON has it."""


@dataclass(frozen=True)
class Piece:
    tensor: Tensor
    """What this process holds."""
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    start: tuple[int, ...]
    first: bool = True
    """Whether this process is the first of those that hold this box: the one that writes it."""

    @property
    def length(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def written(self) -> bool:
        return self.first and (self.tensor.numel() > 0)


def index_of(pieces: Mapping[str, Piece], file: str) -> Index:
    """The boxes that one process writes into a file."""
    return {
        name: {"shape": list(p.shape), "parts": [{"file": file, "start": list(p.start), "length": list(p.length)}]}
        for name, p in pieces.items()
        if p.written
    }


def merged(indices: Iterable[Index]) -> Index:
    whole: Index = {}
    for index in indices:
        for name, entry in index.items():
            whole.setdefault(name, {"shape": entry["shape"], "parts": []})["parts"] += entry["parts"]
    return whole


def check_index(index: Any, files: Collection[str]) -> None:
    """Raise ValueError unless every part lies within its tensor and in one of the files."""
    if not isinstance(index, dict):
        raise ValueError("the index is no table of tensors")
    for name, entry in index.items():
        try:
            shape, parts = entry["shape"], entry["parts"]
            sound = _are_counts(shape) and all(
                part["file"] in files
                and _are_counts(part["start"])
                and _are_counts(part["length"])
                and len(part["start"]) == len(part["length"]) == len(shape)
                and all(a + n <= whole for a, n, whole in zip(part["start"], part["length"], shape, strict=True))
                for part in parts
            )
        except (TypeError, KeyError):
            sound = False
        if not sound:
            raise ValueError(f"the index of tensor {name} is not one that was written")


def _are_counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(isinstance(n, int) and n >= 0 for n in numbers)


class BoxReader:
    """Reads boxes out of a checkpoint's files. A file is opened, and checked by `check`, when it is first needed."""

    def __init__(self, folder: Path, index: Index, check: Callable[[Path], None]) -> None:
        self.folder, self.index, self.check = folder, index, check
        self._open: dict[str, Any] = {}

    def read(self, name: str, start: Sequence[int] | None = None, length: Sequence[int] | None = None) -> Tensor:
        """The box of a tensor, put together from those it lies in; the whole of it unless told otherwise."""
        shape = self.index[name]["shape"]
        start = [0] * len(shape) if start is None else start
        length = shape if length is None else length
        pieces = [
            (at, piece) for part in self.index[name]["parts"] for at, piece in self._overlap(name, part, start, length)
        ]
        if sum(piece.numel() for _, piece in pieces) != math.prod(length):
            raise ValueError(f"{name}: the boxes in the checkpoint do not make up the whole")
        if not pieces:
            return torch.empty(tuple(length))
        if len(pieces) == 1 and pieces[0][1].shape == tuple(length):
            return pieces[0][1]
        out = torch.empty(tuple(length), dtype=pieces[0][1].dtype)
        for at, piece in pieces:
            out[at] = piece
        return out

    def _overlap(
        self, name: str, part: Mapping[str, Any], start: Sequence[int], length: Sequence[int]
    ) -> Iterable[tuple[tuple[slice, ...], Tensor]]:
        """Where in the box asked for, and what, if a stored part has some of it."""
        asked = zip(start, length, part["start"], part["length"], strict=True)
        ends = [(max(a, b), min(a + n, b + m)) for a, n, b, m in asked]
        if all(low < high for low, high in ends):
            inside = tuple(slice(low - b, high - b) for (low, high), b in zip(ends, part["start"], strict=True))
            at = tuple(slice(low - a, high - a) for (low, high), a in zip(ends, start, strict=True))
            yield at, self._slice(part["file"], name, inside)

    def _slice(self, file: str, name: str, box: tuple[slice, ...]) -> Tensor:
        if file not in self._open:
            self.check(self.folder / file)
            self._open[file] = safe_open(str(self.folder / file), framework="pt")
        opened = self._open[file]
        return opened.get_slice(name)[box] if box else opened.get_tensor(name)
