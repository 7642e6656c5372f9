"""The run table of trained runs: a run's folder, or a folder of such folders, each with its evaluations."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.table import RunTable

EVALUATIONS = "evaluations.jsonl"
"""One row of the run table per line; entries that are lists or objects (loads of experts) are no part of it."""


def read_run_folders(path: Path) -> RunTable:
    """Every evaluation of every run found, runs in the order of their folders' names."""
    files = [path / EVALUATIONS] if (path / EVALUATIONS).is_file() else sorted(path.glob(f"*/{EVALUATIONS}"))
    if not files:
        raise InputError(
            f"{path}: this is a directory without runs (no {EVALUATIONS} in it or one below); "
            "give a run's folder, a folder of them, or a CSV or Parquet file."
        )
    rows, home = [], {}
    for file in files:
        found = _rows(file)
        for run_id in {row.get("run_id") for row in found}:
            if home.setdefault(run_id, file.parent) != file.parent:
                raise InputError(f"{home[run_id]} and {file.parent} hold the same run {run_id}; keep one of them.")
        rows += found
    if not rows:
        raise InputError(f"{path}: no run has been evaluated yet.")
    return RunTable.from_frame(pd.DataFrame(rows), str(path))


def _rows(file: Path) -> list[dict[str, Any]]:
    """A last line without its end is being written, or was when the run was killed: it is not a row yet."""
    lines = file.read_bytes().split(b"\n")[:-1]
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = dict(json.loads(line))
        except (ValueError, TypeError):
            raise InputError(
                f"{file}: line {number} is damaged; training the run again with the same command mends it."
            ) from None
        rows.append({key: value for key, value in row.items() if not isinstance(value, list | dict)})
    return rows
