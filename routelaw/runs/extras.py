"""Columns the run table does not know, read from text."""

import re

import pandas as pd

INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
LONGEST_NUMBER = 60
"""Characters; more are a name made of digits, and Python itself refuses to read thousands of them as a number."""
REAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?|-?inf|nan", re.ASCII)


def typed_extra(cells: pd.Series) -> pd.Series:
    """Numbers or truth values where every cell is one, else the text unchanged (`007` is a name, not seven)."""
    given = [cell for cell in cells if cell != ""]
    if not given:
        return cells
    if max(map(len, given)) > LONGEST_NUMBER:
        return cells
    complete = len(given) == len(cells)
    if all(INTEGER.fullmatch(cell) and abs(int(cell)) < 2**63 for cell in given):
        whole = pd.Series([int(cell) if cell else None for cell in cells], index=cells.index, dtype="Int64")
        return whole.astype("int64") if complete else whole
    if all(REAL.fullmatch(cell) for cell in given):
        return pd.Series([float(cell or "nan") for cell in cells], index=cells.index, dtype="float64")
    if complete and set(given) <= {"True", "False"}:
        return cells == "True"
    return cells
