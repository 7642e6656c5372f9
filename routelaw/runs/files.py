"""Run tables in files: CSV (plain or compressed) and Parquet, told apart by content; and in folders of runs."""

import csv
import io
from pathlib import Path

import pandas as pd

from routelaw.errors import InputError
from routelaw.runs.clark2022 import import_release, is_release
from routelaw.runs.codecs import compress, decompress, foreign_format
from routelaw.runs.extras import typed_extra
from routelaw.runs.folders import EVALUATIONS, table_of
from routelaw.runs.store import Store
from routelaw.runs.table import DESCRIPTION, LOSS_PREFIX, RunTable
from routelaw.runs.writing import write_atomically

PARQUET_MAGIC = b"PAR1"


def read_runs(path: str | Path) -> RunTable:
    """The run table in a CSV or Parquet file, of a run's folder or of a store. The paper's release is recognised by its
    header and imported."""
    source = str(path)
    if (Path(path) / EVALUATIONS).is_file():
        return table_of([Path(path)], source)
    if Path(path).is_dir():
        return Store(path).table()
    content = decompress(_content(Path(path)), source)
    if not content.strip():
        raise InputError(f"{source}: the file is empty.")
    frame = _from_parquet(content, source) if content.startswith(PARQUET_MAGIC) else _from_csv(content, source)
    if is_release(frame.columns):
        return import_release(frame, source)
    return RunTable.from_frame(frame, source)


def write_runs(table: RunTable, path: str | Path, force: bool = False) -> None:
    """Write a table by the extension of `path`: .parquet, or .csv with an optional .gz, .xz or .zst.

    Every number is read back exactly. CSV knows no types: an extra column of text that looks like numbers throughout
    comes back as numbers, and Parquet is the format that keeps such things.
    """
    path = Path(path)
    match path.suffixes[-2:]:
        case [*_, ".parquet"]:
            buffer = io.BytesIO()
            table.frame.to_parquet(buffer, index=False)
            content = buffer.getvalue()
        case [*_, ".csv"]:
            content = _to_csv(table.frame)
        case [".csv", ".gz" | ".xz" | ".zst" as codec]:
            content = compress(_to_csv(table.frame), codec)
        case _:
            raise InputError(f"{path}: write run tables as .csv, .csv.gz, .csv.xz, .csv.zst or .parquet.")
    write_atomically(content, path, force=force)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except OSError as error:
        raise InputError(f"{path}: the file cannot be read ({error.strerror}).") from None


def _from_parquet(content: bytes, source: str) -> pd.DataFrame:
    from pyarrow import ArrowException

    try:
        return pd.read_parquet(io.BytesIO(content))
    except (ArrowException, OSError, ValueError):
        raise InputError(f"{source}: the Parquet file is damaged or cut short.") from None


def _from_csv(content: bytes, source: str) -> pd.DataFrame:
    """Read with the csv module: every cell stays the text it is, and a ragged line is named by its number."""
    header, rows = _rows(_decoded(content, source), source)
    cells = pd.DataFrame(rows, columns=pd.Index(header), dtype="str")
    if not cells.columns.is_unique or is_release(header):
        return cells
    for column in header:
        if column not in DESCRIPTION and not column.startswith(LOSS_PREFIX):
            cells[column] = typed_extra(cells[column])
    return cells


def _decoded(content: bytes, source: str) -> str:
    foreign = foreign_format(content)
    if foreign:
        raise InputError(f"{source}: this is {foreign}, not a table; give a CSV or Parquet file.")
    try:
        decoded = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{source}: line {line} is not UTF-8 text; save the table as UTF-8 CSV or as Parquet."
        ) from None
    if "\0" in decoded:
        raise InputError(f"{source}: this is binary data, not a table; give a CSV or Parquet file.")
    return decoded


def _rows(decoded: str, source: str) -> tuple[list[str], list[list[str]]]:
    first_line = decoded.lstrip().partition("\n")[0]
    delimiter = max(",\t;", key=first_line.count)
    reader = csv.reader(io.StringIO(decoded, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    try:
        for row in reader:
            if not row:
                continue
            if not header:
                header = [name.strip() for name in row]
                if len(header) < 2:
                    raise InputError(f"{source}: this is not a table; its first line has no columns.")
            elif len(row) != len(header):
                raise InputError(
                    f"{source}: line {reader.line_num} has {len(row)} fields where the header has {len(header)}."
                )
            else:
                rows.append(row)
    except csv.Error as error:
        raise InputError(f"{source}: line {reader.line_num} is not CSV ({error}).") from None
    return header, rows


def _to_csv(frame: pd.DataFrame) -> bytes:
    """Text is quoted where it must be. Python 3.11's csv module leaves a lone carriage return bare: then quote all."""
    content = frame.to_csv(index=False, lineterminator="\n")
    if "\r" in content:
        content = frame.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    return content.encode()
