"""Logs of runs, read for pictures: rows at even distances, however long the run was."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np

from routelaw.errors import InputError
from routelaw.files import open_regular
from routelaw.laws.law import Array
from routelaw.runs.folders import LONGEST_LINE, log_row

ROWS_READ = 240
"""Enough for the bins of curves and heat maps; with 512 experts a line may have 100 kB, and reading all takes long."""


def sampled_log(file: Path, most: int = ROWS_READ) -> list[dict[str, Any]]:
    """First and last row among them. A line that is damaged or being written is no row."""
    try:
        with open_regular(file) as opened:
            starts = _line_starts(opened)
            return [row for i in evenly(len(starts), most) if (row := log_row(_line_at(opened, starts[i])))]
    except (InputError, OSError):
        return []


def _line_starts(file: IO[bytes]) -> list[int]:
    """Where the whole lines of a file begin; found block by block, since a log may be larger than memory."""
    starts, at = [0], 0
    while block := file.read(1 << 20):
        found = block.find(b"\n")
        while found >= 0:
            starts.append(at + found + 1)
            found = block.find(b"\n", found + 1)
        at += len(block)
    return starts[:-1]  # what follows the last end of a line is being written


def _line_at(file: IO[bytes], start: int) -> bytes:
    file.seek(start)
    return file.readline(LONGEST_LINE).rstrip(b"\n")


def binned_means(values_SX: Array, most: int) -> Array:
    """Means over at most so many stretches of neighbouring rows, as even as can be: (bins, …)."""
    starts = bin_starts(len(values_SX), most)
    counts = np.diff(np.append(starts, len(values_SX)))
    return np.add.reduceat(values_SX, starts) / counts.reshape(-1, *[1] * (values_SX.ndim - 1))


def bin_starts(count: int, most: int) -> Array:
    """Where each stretch begins; the first ones are longer by one where they cannot all be equal."""
    bins = min(count, most)
    return np.arange(bins) * (count // bins) + np.minimum(np.arange(bins), count % bins)


def evenly(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, evenly spread, with both ends."""
    return list(range(count)) if count <= most else [round(i) for i in np.linspace(0, count - 1, most)]
