"""Logs of runs, read for pictures: rows at even distances, however long the run was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from routelaw.errors import InputError
from routelaw.files import read_bytes
from routelaw.runs.folders import MOST_LOG_BYTES, log_row

ROWS_READ = 240
"""Enough for the bins of curves and heat maps; with 512 experts a line may have 100 kB, and reading all takes long."""


def sampled_log(file: Path, most: int = ROWS_READ) -> list[dict[str, Any]]:
    """First and last row among them. A line that is damaged or being written is no row."""
    try:
        lines = read_bytes(file, MOST_LOG_BYTES).split(b"\n")[:-1]
    except InputError:
        return []
    return [row for i in evenly(len(lines), most) if (row := log_row(lines[i]))]


def evenly(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, evenly spread, with both ends."""
    return list(range(count)) if count <= most else [round(i) for i in np.linspace(0, count - 1, most)]
