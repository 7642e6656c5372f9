"""Columns of a foreign table turned into typed ones, with an error that points at the first cell that will not do."""

import re

import numpy as np
import pandas as pd

from routelaw.errors import InputError

INTEGER = re.compile(r"[-+]?\d+", re.ASCII)
MISSING_NUMBER = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>"})


def numbers(frame: pd.DataFrame, column: str, source: str) -> pd.Series:
    """float64, missing cells as NaN. Python's float parses the text: it returns the very number that was printed."""
    cells = frame[column]
    if pd.api.types.is_numeric_dtype(cells) and not pd.api.types.is_complex_dtype(cells):
        return cells.astype("float64")
    parsed = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells.tolist()):
        try:
            if not is_missing(cell):
                parsed[row] = float(cell)
        except (TypeError, ValueError):
            raise InputError(f"{where(frame, column, row, source)} holds {cell!r}, which is not a number.") from None
    return pd.Series(parsed, index=frame.index, name=column)


def integers(frame: pd.DataFrame, column: str, source: str, *, lowest: int | None = None) -> pd.Series:
    """Int64, missing cells as NA; anything with a fraction, not finite, or below `lowest` is an error."""
    cells = frame[column]
    if not pd.api.types.is_integer_dtype(cells):
        parsed: list[int | None] = []
        for row, cell in enumerate(cells.tolist()):
            try:
                parsed.append(None if is_missing(cell) else _whole(cell))
            except (TypeError, ValueError, OverflowError):
                place = where(frame, column, row, source)
                raise InputError(f"{place} holds {cell!r}, which is not a whole number.") from None
        cells = pd.Series(parsed, index=frame.index, name=column, dtype="Int64")
    cells = cells.astype("Int64")
    if lowest is not None:
        reject_first((cells < lowest).fillna(False), frame, column, source, f"must be at least {lowest}")
    return cells


def _whole(cell: str | float) -> int:
    """Digits are read as they stand, since a float would bend integers past 2⁵³."""
    value = int(cell) if isinstance(cell, str) and INTEGER.fullmatch(cell.strip()) else float(cell)
    if value != int(value) or abs(value) >= 2**63:
        raise ValueError(f"{value} is not a 64-bit integer")
    return int(value)


def text(frame: pd.DataFrame, column: str) -> pd.Series:
    """Text as it stands; only a truly absent cell becomes the empty string, so a variant may be called `NA`."""
    if isinstance(frame[column].dtype, pd.StringDtype):
        return frame[column].fillna("").astype("str")
    cells = ["" if cell is None or cell is pd.NA or cell != cell else str(cell) for cell in frame[column]]
    return pd.Series(cells, index=frame.index, name=column, dtype="str")


def reject_first(bad: pd.Series, frame: pd.DataFrame, column: str, source: str, rule: str) -> None:
    """Raise for the first row where `bad` holds: where it is, what it holds and the `rule` it breaks."""
    if bad.any():
        row = int(np.argmax(bad.to_numpy(dtype=bool)))
        raise InputError(f"{where(frame, column, row, source)} holds {frame[column].iloc[row]}: {column} {rule}.")


def where(frame: pd.DataFrame, column: str, row: int, source: str) -> str:
    """`losses.csv: column loss_c4, data row 3 (run abc)`; data rows count from 1, after the header."""
    run = f" (run {frame['run_id'].iloc[row]})" if "run_id" in frame else ""
    return f"{source}: column {column}, data row {row + 1}{run}"


def is_missing(cell: object) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING_NUMBER
    return cell is None or cell is pd.NA or cell != cell
