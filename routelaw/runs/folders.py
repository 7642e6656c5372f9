"""The folder of a trained run as the analysis half reads it, and the run table of many of them.

Evaluations are lines of JSON, one row of the run table each. A store of a thousand runs is read in one go: all lines
are parsed together, and only if that fails are they looked at one by one to name the damaged one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.table import RunTable

EVALUATIONS, LOG, SPEC, RESULT = "evaluations.jsonl", "log.jsonl", "spec.json", "result.json"


def table_of(folders: Sequence[Path], source: str) -> RunTable:
    """Every evaluation of the runs in these folders, in their order."""
    files = [folder / EVALUATIONS for folder in folders]
    contents = [_whole_lines(file) for file in files]
    if not any(contents):
        raise InputError(f"{source}: no run has been evaluated yet.")
    frame = _parsed(files, contents)
    _check_homes(frame, folders, contents)
    return RunTable.from_frame(frame, source)


def _check_homes(frame: pd.DataFrame, folders: Sequence[Path], contents: Sequence[bytes]) -> None:
    """A run has one folder."""
    if "run_id" not in frame:
        return  # the table will say so
    home = np.repeat(np.arange(len(folders)), [content.count(b"\n") for content in contents])
    pairs = pd.DataFrame({"run_id": frame["run_id"], "home": home}).drop_duplicates()
    twice = pairs[pairs["run_id"].duplicated(keep=False)]
    if len(twice):
        first, second = (folders[i] for i in twice["home"].iloc[:2])
        raise InputError(f"{first} and {second} hold the same run {twice['run_id'].iloc[0]}; keep one of them.")


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines; none where there is no file."""
    content = _whole_lines(file) if file.is_file() else b""
    return [_row(line, file, number) for number, line in enumerate(content.splitlines(), start=1)]


def last_row(file: Path, tail: int = 1 << 16) -> dict[str, Any]:
    """The newest whole row of a file of JSON lines, found from its end; empty if there is none."""
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            while True:
                opened.seek(max(0, size - tail))
                lines = opened.read(tail).split(b"\n")[:-1]  # the last piece is a line being written, or nothing
                if len(lines) > 1 or tail >= size:
                    break
                tail *= 4
        return dict(json.loads(lines[-1])) if lines else {}
    except (OSError, ValueError, TypeError):
        return {}


def _whole_lines(file: Path) -> bytes:
    """A last line without its end is being written, or was when the run was killed: it is not a row yet."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}).") from None
    return content[: content.rfind(b"\n") + 1]


def _parsed(files: Sequence[Path], contents: Sequence[bytes]) -> pd.DataFrame:
    from pyarrow import ArrowException
    from pyarrow import json as arrow_json

    together = b"".join(contents)
    try:
        options = arrow_json.ReadOptions(block_size=len(together) + 1)
        table = arrow_json.read_json(io.BytesIO(together), read_options=options)
        return table.select([f.name for f in table.schema if not f.type.num_fields]).to_pandas()
    except (ArrowException, OverflowError):  # damaged, a column of several types, or gigabytes
        rows = [
            _row(line, file, number)
            for file, content in zip(files, contents, strict=True)
            for number, line in enumerate(content.splitlines(), start=1)
        ]
        flat = [{key: v for key, v in row.items() if not isinstance(v, list | dict)} for row in rows]
        return pd.DataFrame(flat)


def _row(line: bytes, file: Path, number: int) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except (ValueError, TypeError):
        raise InputError(
            f"{file}: line {number} is damaged; training the run again with the same command mends it."
        ) from None
