"""Columns of a foreign table turned into typed ones, with an error that points at the first cell that will not do.

Columns that the run table does not know are read as numbers where every cell is one (`typed_extra`).
"""

import decimal
import re
from typing import Any

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.formatting import shortened

INTEGER = re.compile(r"[-+]?\d+", re.ASCII)
DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(inf|infinity)", re.ASCII | re.IGNORECASE)
MISSING_NUMBER = frozenset({"", "na", "n/a", "nan", "null", "none", "<na>"})
LONGEST_NUMBER = 60
"""Characters of a number in text; more are not one that anybody measured."""


def numbers(frame: pd.DataFrame, column: str, source: str) -> pd.Series:
    """float64, missing cells as NaN. Python's float parses the text: it returns the very number that was printed.

    Only decimal notation is a number: Python itself would also take `1_0.5` and digits of other scripts.
    """
    cells = frame[column]
    if _is_plain_number(cells):
        return cells.astype("float64")
    if (quickly := _parsed(cells, DECIMAL, "float64")) is not None:
        return quickly
    parsed = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells.tolist()):
        try:
            if not is_missing(cell):
                parsed[row] = _real(cell)
        except (TypeError, ValueError, OverflowError):
            place = where(frame, column, row, source)
            raise InputError(f"{place} holds {shortened(cell)!r}, which is not a number.") from None
    return pd.Series(parsed, index=frame.index, name=column)


def integers(frame: pd.DataFrame, column: str, source: str, *, lowest: int | None = None) -> pd.Series:
    """Int64, missing cells as NA; anything with a fraction, not finite, or below `lowest` is an error."""
    cells = frame[column]
    if not (_is_plain_number(cells) and pd.api.types.is_signed_integer_dtype(cells)):
        if (quickly := _parsed(cells, INTEGER, "Int64")) is not None:
            cells = quickly
        else:
            cells = pd.Series(_wholes(frame, column, source), index=frame.index, name=column, dtype="Int64")
    cells = cells.astype("Int64")
    if lowest is not None:
        reject_first((cells < lowest).fillna(False), frame, column, source, f"must be at least {lowest}")
    return cells


def _wholes(frame: pd.DataFrame, column: str, source: str) -> list[int | None]:
    parsed: list[int | None] = []
    for row, cell in enumerate(frame[column].tolist()):
        try:
            parsed.append(None if is_missing(cell) else _whole(cell))
        except (TypeError, ValueError, OverflowError):
            place = where(frame, column, row, source)
            raise InputError(f"{place} holds {shortened(cell)!r}, which is not a whole number.") from None
    return parsed


def _parsed(cells: pd.Series, pattern: re.Pattern[str], dtype: str) -> pd.Series | None:
    """A column of text parsed all at once, some twenty times as fast as cell by cell; None where a cell is no such
    number, which the slow way then names. Arrow rounds as Python does: to the nearest float."""
    if not isinstance(cells.dtype, pd.StringDtype):
        return None
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its functions are made at run time, where no type checker sees them

    text = pc.utf8_trim_whitespace(pa.array(cells, pa.large_string()))
    missing = pc.is_in(pc.utf8_lower(text), pa.array(sorted(MISSING_NUMBER), pa.large_string()))
    text = pc.if_else(missing, pa.scalar(None, pa.large_string()), text)
    given = text.drop_null()
    fits = pc.match_substring_regex(given, rf"^(?i:{pattern.pattern})$")
    if len(given) and not pc.all(pc.and_(fits, pc.less_equal(pc.binary_length(given), LONGEST_NUMBER))).as_py():
        return None
    kind = pa.int64() if dtype == "Int64" else pa.float64()
    try:
        parsed = pc.cast(pc.replace_substring_regex(text, r"^\+", ""), kind)
    except pa.ArrowInvalid:  # beyond 64 bits, say
        return None
    mapped = parsed.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    return mapped.set_axis(cells.index).rename(cells.name)


def _is_plain_number(cells: pd.Series) -> bool:
    """Whether every cell of a column is a real number by its type: truth values and complex numbers are not."""
    kind = cells.dtype
    return pd.api.types.is_numeric_dtype(kind) and not (
        pd.api.types.is_bool_dtype(kind) or pd.api.types.is_complex_dtype(kind)
    )


def _real(cell: object) -> float:
    if isinstance(cell, str):
        text = cell.strip()
        if len(text) > LONGEST_NUMBER or not DECIMAL.fullmatch(text):
            raise ValueError("not a number in decimal notation")
        return float(text)
    if isinstance(cell, bool | np.bool_) or not isinstance(cell, int | float | np.number | decimal.Decimal):
        raise TypeError("not a number")
    return float(cell)  # pyrefly: ignore


def _whole(cell: object) -> int:
    """Digits are read as they stand, since a float would bend integers past 2⁵³."""
    digits = isinstance(cell, str) and len(cell) <= LONGEST_NUMBER and INTEGER.fullmatch(cell.strip())
    exact = isinstance(cell, int) and not isinstance(cell, bool)
    value = int(cell) if digits or exact else _real(cell)  # pyrefly: ignore
    if value != int(value) or abs(value) >= 2**63:
        raise ValueError("not a 64-bit integer")
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
        cell = shortened(frame[column].iloc[row])
        raise InputError(f"{where(frame, column, row, source)} holds {cell}: {column} {rule}.")


def warn_of(bad: pd.Series, frame: pd.DataFrame, column: str, doubt: str) -> list[str]:
    """A warning that names the first row where `bad` holds, with how many there are, and the `doubt`, a sentence."""
    if not bad.any():
        return []
    row, count = int(np.argmax(bad.to_numpy(dtype=bool))), int(bad.sum())
    more = f" (and in {count - 1} other rows)" if count > 2 else " (and in one other row)" if count == 2 else ""
    cell = shortened(frame[column].iloc[row])
    return [f"{column} is {cell} in data row {row + 1} (run {shortened(frame['run_id'].iloc[row])}){more}: {doubt}"]


def where(frame: pd.DataFrame, column: str, row: int, source: str) -> str:
    """`losses.csv: column loss_c4, data row 3 (run abc)`; data rows count from 1, after the header."""
    run = f" (run {shortened(frame['run_id'].iloc[row])})" if "run_id" in frame else ""
    return f"{source}: column {column}, data row {row + 1}{run}"


def is_missing(cell: object) -> bool:
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING_NUMBER
    return cell is None or cell is pd.NA or (isinstance(cell, float | np.floating) and cell != cell) or cell is pd.NaT


PLAIN_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
REAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?|-?inf|nan", re.ASCII)


def typed_extra(cells: pd.Series) -> pd.Series:
    """Numbers or truth values where every cell is one, else the text unchanged (`007` is a name, not seven)."""
    given = [cell for cell in cells if cell != ""]
    if not given:
        return cells
    if max(map(len, given)) > LONGEST_NUMBER:
        return cells
    complete = len(given) == len(cells)
    if all(PLAIN_INTEGER.fullmatch(cell) and abs(int(cell)) < 2**63 for cell in given):
        whole = pd.Series([int(cell) if cell else None for cell in cells], index=cells.index, dtype="Int64")
        return whole.astype("int64") if complete else whole
    if all(REAL.fullmatch(cell) for cell in given):
        return pd.Series([float(cell or "nan") for cell in cells], index=cells.index, dtype="float64")
    if complete and set(given) <= {"True", "False"}:
        return cells == "True"
    return cells
