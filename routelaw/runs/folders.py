"""The folder of a trained run as the analysis half reads it, and the run table of many of them.

Evaluations are lines of JSON, one row of the run table each. A store of a thousand runs is read in one go: all lines
are parsed together, and only if that fails are they looked at one by one to name the damaged one.

The columns of the run table that a spec fixes are named here (`columns_of`); those of other texts come from
`runs/text_results.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from routelaw.errors import InputError
from routelaw.files import open_regular, parse_json, read_bytes, without_collection
from routelaw.formatting import shortened
from routelaw.runs.text_results import LOSS_NAME, with_texts
from routelaw.specs.run import RunSpec, meaning_of, named_settings
from routelaw.specs.sizes import size_label

if TYPE_CHECKING:
    import pandas as pd

    from routelaw.runs.table import RunTable


VALIDATION = "validation"
OWN_COLUMNS = ("steps", "batch", "learning_rate", "seed")
"""Settings of training that have columns of their own, or make one."""


def columns_of(spec: RunSpec) -> dict[str, Any]:
    """`recipe` has the recipe's name, if it says more of the router than the defaults do, and the settings of training
    that differ from the defaults and have no column of their own: with it, `learning_rate`, `batch_tokens` and
    `corpus`, runs that differ in more than their seed can be told apart."""
    counts = spec.counts
    recipe = {name: value for name, value in meaning_of(spec.train).items() if name not in OWN_COLUMNS}
    return {
        "run_id": spec.run_id,
        "router": spec.router.name,
        "variant": spec.variant,
        "size": size_label(counts.active_params),
        "experts": spec.router.experts,
        "k": spec.router.k,
        "routing_frequency": spec.routing_frequency,
        "seed": spec.train.seed,
        "tokens_planned": spec.tokens_after(spec.train.steps),
        **asdict(counts),
        "learning_rate": spec.train.learning_rate,
        "batch_tokens": spec.tokens_after(1),
        "recipe": ",".join(filter(None, (spec.recipe, named_settings(recipe)))),
        "corpus": spec.corpus[:12],
    }


def check_loss_name(name: str, where: str) -> None:
    """The name of a text becomes the column loss_NAME of a table."""
    if not LOSS_NAME.fullmatch(name):
        raise InputError(f"{where}: a text is named in letters, digits, _, . and -, not {shortened(name)!r}.")
    if name == VALIDATION:
        raise InputError(f"{where}: the name {name!r} is that of the corpus's own held-out text; choose another.")


EVALUATIONS, LOG, SPEC, RESULT = "evaluations.jsonl", "log.jsonl", "spec.json", "result.json"
MOST_LOG_BYTES = 512 << 20
"""Bound for a file of JSON lines that is read whole."""
LONGEST_LINE = 16 << 20
"""Most bytes of a row of a log: with 512 experts in each of 32 blocks a row takes 300 kB."""


def table_of(folders: Sequence[Path], source: str) -> RunTable:
    """Every evaluation of the runs in these folders, in their order."""
    return table_of_lines({folder: _whole_lines(folder / EVALUATIONS) for folder in folders}, source)


def table_of_lines(lines: Mapping[Path, bytes], source: str) -> RunTable:
    """The same from the lines of each folder, as `read_evaluations` finds them."""
    folders, contents = list(lines), list(lines.values())
    if not any(contents):
        raise InputError(f"{source}: no run has been evaluated yet.")
    from routelaw.runs.table import RunTable

    with without_collection():
        frame = _parsed([folder / EVALUATIONS for folder in folders], contents)
    homes = _homes(frame, folders, contents)
    with without_collection():
        frame, notes, warnings = with_texts(frame, homes)
    table = RunTable.from_frame(frame, source)
    return replace(table, notes=(*table.notes, *notes), warnings=(*table.warnings, *warnings))


def read_evaluations(folders: Iterable[Path]) -> dict[Path, bytes]:
    """The whole lines of each folder's evaluations, read once; folders without a line are left out. What is there and
    cannot be read is an error."""
    found = {}
    for folder in folders:
        file = f"{folder}/{EVALUATIONS}"
        if os.path.lexists(file) and (content := _whole_lines(file)):
            found[folder] = content
    return found


def _homes(frame: pd.DataFrame, folders: Sequence[Path], contents: Sequence[bytes]) -> dict[str, Path]:
    """The folder of each run: a run has one folder, and a folder one run."""
    if "run_id" not in frame:
        return {}  # the table will say so
    import pandas as pd

    home = np.repeat(np.arange(len(folders)), [content.count(b"\n") for content in contents])
    pairs = pd.DataFrame({"run_id": frame["run_id"], "home": home}).drop_duplicates()
    mixed = pairs[pairs["home"].duplicated(keep=False)]
    if len(mixed):
        folder = folders[mixed["home"].iloc[0]]
        raise InputError(f"{folder / EVALUATIONS} is damaged: it has rows of several runs; train the run again.")
    twice = pairs[pairs["run_id"].duplicated(keep=False)]
    if len(twice):
        first, second = (folders[i] for i in twice["home"].iloc[:2])
        raise InputError(f"{first} and {second} hold the same run {twice['run_id'].iloc[0]}; keep one of them.")
    return {str(run): folders[i] for run, i in zip(pairs["run_id"], pairs["home"], strict=True)}


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines; none where there is no file."""
    content = _whole_lines(file) if file.is_file() else b""
    return [_row(line, file, number) for number, line in enumerate(content.splitlines(), start=1)]


def last_row(file: Path, tail: int = 1 << 16) -> dict[str, Any]:
    """The newest whole row of a log, found from its end; empty if there is none."""
    return log_row(_last_line(file, tail))


def last_evaluation(folder: Path) -> dict[str, Any]:
    """The newest whole row of a run's evaluations, whatever it holds; empty if there is none."""
    try:
        row = parse_json(_last_line(folder / EVALUATIONS), "")
    except InputError:
        return {}
    return row if isinstance(row, dict) else {}


def _last_line(file: Path, tail: int = 1 << 16) -> bytes:
    try:
        with open_regular(file) as opened:
            size = opened.seek(0, 2)
            while True:
                opened.seek(max(0, size - tail))
                lines = opened.read(tail).split(b"\n")[:-1]  # the last piece is a line being written, or nothing
                if len(lines) > 1 or tail >= size or tail > LONGEST_LINE:
                    break
                tail *= 4
        return lines[-1] if lines else b""
    except (OSError, InputError):
        return b""


def log_row(line: bytes) -> dict[str, Any]:
    """One line of a log as far as it is what training writes; empty for what is no row of one.

    Logs are for people to look at: a number that is none is left out of the row, and does not end a listing.
    """
    try:
        row = parse_json(line, "")
    except InputError:
        return {}
    if not isinstance(row, dict) or not _is_count(row.get("step")):
        return {}
    layers = row.pop("layers", None)
    kept: dict[str, Any] = {key: value for key, value in row.items() if type(value) is float or type(value) is int}
    if isinstance(layers, list) and all(_is_layer(layer) for layer in layers):
        kept["layers"] = layers
    return kept


def _is_layer(layer: Any) -> bool:
    return (
        isinstance(layer, dict)
        and _is_count(layer.get("block"))
        and _is_number(layer.get("dropped", 0.0))
        and isinstance(layer.get("load"), list)
        and set(map(type, layer["load"])) <= {int, float}
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole_lines(file: str | Path) -> bytes:
    """A last line without its end is being written, or was when the run was killed: it is not a row yet."""
    content = read_bytes(file, MOST_LOG_BYTES)
    return content[: content.rfind(b"\n") + 1]


def _parsed(files: Sequence[Path], contents: Sequence[bytes]) -> pd.DataFrame:
    """All lines as one JSON array, which is as quick as it gets; line by line where that is not what they are.

    Arrow reads JSON lines faster still, and ends the process where a line is `[]` or a number.
    """
    import pandas as pd

    lines = b"".join(contents).split(b"\n")[:-1]
    array = b"[" + b",".join(lines) + b"]"
    try:
        if b"\\ud" in array or b"\\uD" in array:
            raise ValueError("half a surrogate pair, perhaps")
        rows = json.loads(array, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        rows = []
    # One brace to a row leaves none for nested values.
    flat = array.count(b"{") == len(lines) and array.count(b"[") == 1
    if len(rows) != len(lines) or not all(type(row) is dict for row in rows) or not (flat or all(map(_is_row, rows))):
        flat = False
        rows = [
            _row(line, file, number, of_table=True)
            for file, content in zip(files, contents, strict=True)
            for number, line in enumerate(content.split(b"\n")[:-1], start=1)
        ]
    names = rows[0].keys()
    if flat and all(row.keys() == names for row in rows):
        return pd.DataFrame({name: [row[name] for row in rows] for name in names})
    return pd.DataFrame([{k: v for k, v in row.items() if not isinstance(v, (list, dict))} for row in rows])


def _is_row(row: Any) -> bool:
    """Nested values may stand beside a row of the table, and not in place of its own."""
    from routelaw.runs.table import DESCRIPTION, LOSS_PREFIX

    return isinstance(row, dict) and not any(
        isinstance(value, (list, dict)) and (key in DESCRIPTION or key.startswith(LOSS_PREFIX))
        for key, value in row.items()
    )


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _row(line: bytes, file: Path, number: int, *, of_table: bool = False) -> dict[str, Any]:
    try:
        row = parse_json(line, str(file))
    except InputError:
        row = None
    if not isinstance(row, dict) or (of_table and not _is_row(row)):
        raise InputError(f"{file}: line {number} is damaged; training the run again with the same command mends it.")
    return row
