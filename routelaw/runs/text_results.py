"""What `routelaw eval` measured on other texts, in a run's eval.jsonl, and the columns that it makes of a run table.

A line is one text on one run after one number of steps. Lines are only ever added, under a lock, so that evaluations at
the same time lose nothing of each other; of several with one name and one step the last counts.

One name is one measurement. A line says what was measured (`Measurement`), and where the runs of a table differ in it
under one name, the column has those that most runs agree in, and a warning names the others.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from routelaw.errors import InputError, unwritable
from routelaw.files import parse_json, read_bytes
from routelaw.runs.locks import lock

if TYPE_CHECKING:
    import pandas as pd

EVALUATED = "eval.jsonl"
LOSS_NAME = re.compile(r"[A-Za-z0-9_.-]+")
LOSS, BITS_PER_BYTE, ACCURACY = "loss_", "bpb_", "acc_"
"""Prefixes of the columns of a text."""
TEXT_HASH, EVALUATE_TOKENS = "text_", "evaluate_tokens"
"""What an evaluation of training says of how it measured, beside its losses: the hash of each text, and the most tokens
of it that were read. No columns of a run table."""
MOST_BYTES = 512 << 20
LOCK_SECONDS = 60.0
"""Adding lines takes milliseconds; whoever cannot within this time is told."""
NAMED = 3
"""Runs that a warning names."""


class Measurement(NamedTuple):
    """What a loss is of. Losses of one name are comparable if these are equal."""

    metric: str
    """text: the likelihood of all of it; training's windows: that of a bounded number of tokens of a corpus, as it is
    measured in training; last word: that of the last word of each passage; training: see `TRAINING`."""
    text: str
    """Hash of the text as it was read, in hexadecimal."""
    stride: int | None
    """Tokens by which windows moved on; None for half a sequence, and where there are no windows."""


TEXT, LAST_WORD, WINDOWS = "text", "last word", "training's windows"
TRAINING = Measurement("training", "", None)
"""Evaluated while training, by a version that did not say on what text."""


@dataclass(frozen=True)
class TextResult:
    run_id: str
    name: str
    step: int
    measurement: Measurement | None
    """None in lines of versions that did not say it."""
    loss: float | None
    """Nats per token: of the whole text, or of the last words."""
    bits_per_byte: float | None
    accuracy: float | None


def read_results(folder: Path) -> dict[tuple[str, int], TextResult]:
    """What a run's folder has, by name and step. A last line without its end is being written: it is no result yet."""
    file = folder / EVALUATED
    if not os.path.lexists(file):
        return {}
    content = read_bytes(file, MOST_BYTES)
    found = {}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        result = _result(line)
        if result is None:
            raise InputError(f"{file}: line {number} is damaged; remove that line, or the file, and evaluate again.")
        found[result.name, result.step] = result
    return found


def add_results(folder: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add lines, all or none. What a killed process left of a line is taken away first."""
    content = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
    path = folder / EVALUATED
    try:
        file = lock(path, LOCK_SECONDS)
        if file is None:
            raise InputError(f"{path}: another process has kept it locked for a minute; try again.")
        with file:
            before = read_bytes(path, MOST_BYTES)
            whole = before.rfind(b"\n") + 1
            if whole < len(before):
                os.ftruncate(file.fileno(), whole)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), whole)
                raise
    except OSError as error:
        raise unwritable(path, error) from None


def _result(line: bytes) -> TextResult | None:
    """None for what is no result."""
    try:
        row = parse_json(line, "")
        name, step, run_id = row["name"], row["step"], row["run_id"]
        sound = type(step) is int and isinstance(run_id, str) and LOSS_NAME.fullmatch(name)
        values = [_number(row.get(key)) for key in ("nats_per_token", "bits_per_byte", "accuracy")]
        measurement = None
        if "metric" in row:
            measurement = Measurement(str(row["metric"]), str(row["text"]), row["options"]["stride"])
    except (InputError, KeyError, TypeError, ValueError):
        return None
    return TextResult(run_id, name, step, measurement, *values) if sound else None


def _number(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return float(value)


def with_texts(frame: pd.DataFrame, folders: Mapping[str, Path]) -> tuple[pd.DataFrame, list[str], list[str]]:
    """A run table's frame with `loss_NAME`, `bpb_NAME` and `acc_NAME` of every text that was measured on its runs, in
    the rows of the steps that were measured; notes, and warnings. `folders`: where each run lies."""
    results = {run_id: found for run_id, folder in folders.items() if (found := read_results(folder))}
    if "step" not in frame or "run_id" not in frame:
        return frame, [], []
    said = frame[[column for column in map(str, frame) if column.startswith(TEXT_HASH)]]
    frame = frame.drop(columns=[*said.columns, *({EVALUATE_TOKENS} & set(frame.columns))])
    several = {column.removeprefix(TEXT_HASH) for column in map(str, said) if said[column].nunique() > 1}
    if not results and not several:
        return frame, [], []
    for run_id, found in results.items():
        for result in found.values():
            if result.run_id != run_id:
                file = folders[run_id] / EVALUATED
                raise InputError(f"{file} is damaged: it has results of run {result.run_id}; remove it.")
    keys = list(zip(frame["run_id"], frame["step"], strict=True))
    there = set(keys)
    notes, warnings = _left_out(results, there), []
    columns: dict[str, list[float | None]] = {}
    for name in sorted({name for found in results.values() for name, _ in found} | several):
        evaluated = {
            (run_id, step): result
            for run_id, found in results.items()
            for (of, step), result in found.items()
            if of == name and result.measurement is not None and (run_id, step) in there
        }
        trained, note = _trained(frame, said.get(TEXT_HASH + name), name)
        notes += [note] if note else []
        chosen, sentence = _one_measurement(LOSS + name, [*trained.values(), *evaluated.values()])
        warnings += [sentence] if sentence else []
        if chosen is None:
            continue
        of_key = {k: r for found in (evaluated, trained) for k, r in found.items() if r.measurement == chosen}
        kept = [of_key.get(key) for key in keys]
        columns[LOSS + name] = [None if r is None else r.loss for r in kept]
        for prefix, figure in ((BITS_PER_BYTE, "bits_per_byte"), (ACCURACY, "accuracy")):
            values = [None if r is None else getattr(r, figure) for r in kept]
            if prefix + name in frame or any(value is not None for value in values):
                columns[prefix + name] = values
    import pandas as pd

    added = pd.DataFrame({n: pd.array(v, dtype="float64") for n, v in columns.items()}, index=frame.index)
    return pd.concat([frame.drop(columns=frame.columns.intersection(added.columns)), added], axis=1), notes, warnings


def trained_measurement(text: Any) -> Measurement:
    """The measurement behind a loss that training recorded beside the hash of this text."""
    return Measurement(WINDOWS, text, None) if isinstance(text, str) else TRAINING


def _trained(frame: pd.DataFrame, texts: pd.Series | None, name: str) -> tuple[dict[tuple[str, int], TextResult], str]:
    """What training measured under a name, by run and step, and a note. Runs whose version did not say on what text
    are taken to have had that of the others."""
    if LOSS + name not in frame:
        return {}, ""
    nothing = [None] * len(frame)
    bits = frame.get(BITS_PER_BYTE + name, nothing)
    usual = None if texts is None else next(iter(texts.value_counts().index), None)
    found, unsaid = {}, set()
    rows = zip(
        frame["run_id"], frame["step"], frame[LOSS + name], bits, nothing if texts is None else texts, strict=True
    )
    for run_id, step, loss, per_byte, text in rows:
        if loss is None or loss != loss:
            continue
        if usual is not None and not isinstance(text, str):
            unsaid.add(run_id)
            text = usual
        per_byte = None if per_byte is None or per_byte != per_byte else per_byte
        found[run_id, step] = TextResult(run_id, name, step, trained_measurement(text), loss, per_byte, None)
    note = f"{len(unsaid)} runs do not say on what text {LOSS}{name} was measured while they were trained: taken as on "
    return found, note + "that of the other runs." if unsaid else ""


def _left_out(results: Mapping[str, Mapping[tuple[str, int], TextResult]], there: set[tuple[str, int]]) -> list[str]:
    """Results that no row of the table can take, in sentences."""
    unsaid = sum(r.measurement is None for found in results.values() for r in found.values())
    apart = sum((run, step) not in there for run, found in results.items() for _, step in found)
    notes = []
    if unsaid:
        notes.append(f"{unsaid} results in {EVALUATED} do not say what text they are of: not taken; evaluate again.")
    if apart:
        notes.append(f"{apart} results in {EVALUATED} are of steps that have no row of the table: not taken.")
    return notes


def _one_measurement(column: str, results: Iterable[TextResult]) -> tuple[Measurement | None, str]:
    """The measurement of most runs, and a warning where there are others."""
    runs: dict[Measurement, set[str]] = {}
    for result in results:
        assert result.measurement is not None
        runs.setdefault(result.measurement, set()).add(result.run_id)
    if not runs:
        return None, ""
    counts = Counter({measurement: len(of) for measurement, of in runs.items()})
    # Equally many: that of training, which every further run will have; then any, the same every time.
    order = (TRAINING.metric, WINDOWS)
    chosen = max(
        counts,
        key=lambda m: (counts[m], order.index(m.metric) if m.metric in order else -1, m.metric, m.text, m.stride or 0),
    )
    others = sorted(set().union(*(of for m, of in runs.items() if m != chosen)) - runs[chosen])
    if not others:
        return chosen, ""
    named = ", ".join(others[:NAMED]) + (", …" if len(others) > NAMED else "")
    return chosen, (
        f"{column} was measured in {len(runs)} ways (another text, excerpt, metric or stride): it is empty for "
        f"{len(others)} run{'s' if len(others) > 1 else ''} ({named}) that differ from most; `routelaw eval` "
        "measures them alike, with --replace or under another name."
    )
