"""Logs of runs, read for pictures: rows at even distances, however long the run was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ROWS_READ = 240
"""Enough for the bins of curves and heat maps; with 512 experts a line may have 100 kB, and reading all takes long."""


def sampled_log(file: Path, most: int = ROWS_READ) -> list[dict[str, Any]]:
    """First and last row among them. A line that is damaged or being written is no row."""
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError:
        return []
    rows = []
    for i in evenly(len(lines), most):
        try:
            row = json.loads(lines[i])
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def evenly(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, evenly spread, with both ends."""
    return list(range(count)) if count <= most else [round(i) for i in np.linspace(0, count - 1, most)]
