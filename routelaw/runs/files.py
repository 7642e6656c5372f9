"""Run tables in files: CSV (plain or compressed) and Parquet, told apart by content; and in folders of runs.

Compressed bytes and files of other formats are recognised by how they begin.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import zlib
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from routelaw.errors import InputError
from routelaw.files import read_bytes, write_atomically
from routelaw.runs.cells import typed_extra
from routelaw.runs.clark2022 import import_release, is_release
from routelaw.runs.folders import EVALUATIONS, table_of
from routelaw.runs.public import recognised
from routelaw.runs.store import Store
from routelaw.runs.table import DESCRIPTION, LOSS_PREFIX, RunTable

PARQUET_MAGIC = b"PAR1"
MOST_COLUMNS, MOST_ROWS, MOST_CELLS = 2_000, 2_000_000, 20_000_000
"""Ten thousand runs of a hundred evaluations, with twenty columns. Packed files can hold far more than they seem to."""
LINES_AT_ONCE = 20_000


def read_runs(path: str | Path) -> RunTable:
    """The run table in a CSV, Parquet or JSON-lines file, of a run's folder or of a store. The paper's release and
    other public tables (`routelaw data list`) are recognised by their headers and imported.

    >>> rl.read_runs("losses.csv")
    RunTable(losses.csv: 36 runs of dense, s-base, hash; loss_validation)
    """
    source = str(path)
    if (Path(path) / EVALUATIONS).is_file():
        return table_of([Path(path)], source)
    if Path(path).is_dir():
        return Store(path).table()
    content = read_packed(path)
    if not content.strip():
        raise InputError(f"{source}: the file is empty.")
    if content.startswith(PARQUET_MAGIC):
        frame = _from_parquet(content, source)
    else:
        frame = _from_json_lines(content, source) if content.lstrip()[:1] == b"{" else _from_csv(content, source)
    if is_release(frame.columns):
        return import_release(frame, source)
    if public := recognised(frame.columns):
        return public.read(frame, source)
    return RunTable.from_frame(frame, source)


def write_runs(table: RunTable, path: str | Path, force: bool = False) -> None:
    """Write a table by the extension of `path`: .parquet, or .csv with an optional .gz, .xz or .zst.

    Every number is read back exactly. CSV knows no types: an extra column of text that looks like numbers throughout
    comes back as numbers, and Parquet is the format that keeps such things.

    >>> rl.write_runs(table, "copy.parquet", force=True)
    >>> rl.read_runs("copy.parquet").routers == table.routers
    True
    """
    path = Path(path)
    match path.suffixes[-2:]:
        case [*_, ".parquet"]:
            buffer = io.BytesIO()
            table.frame.to_parquet(buffer, index=False, write_page_checksum=True)
            content = buffer.getvalue()
        case [*_, ".csv"]:
            content = _to_csv(table.frame)
        case [".csv", ".gz" | ".xz" | ".zst" as codec]:
            content = compress(_to_csv(table.frame), codec)
        case _:
            raise InputError(f"{path}: write run tables as .csv, .csv.gz, .csv.xz, .csv.zst or .parquet.")
    write_atomically(content, path, force=force)


def _from_parquet(content: bytes, source: str) -> pd.DataFrame:
    """Read by the file's own description first: a few kilobytes of Parquet can stand for a hundred million rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        described = pq.ParquetFile(pa.BufferReader(content)).schema_arrow
        # Text stays a dictionary until it is known how long it is in all.
        words = [f.name for f in described if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=words, page_checksum_verification=True)
        _check_extent(file.metadata.num_rows, file.metadata.num_columns, source)
        table = file.read().replace_schema_metadata(None)  # pandas' own description of the table is not needed
        columns = {name: _plain_column(table.column(i), name, source) for i, name in enumerate(table.column_names)}
        if len(columns) < table.num_columns:
            raise InputError(f"{source}: two columns have the same name; keep one.")
        columns.pop("__index_level_0__", None)  # what pandas calls an index without a name
        return pd.DataFrame({name: _to_pandas(column, name, source) for name, column in columns.items()})
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{source}: the Parquet file is damaged or cut short.") from None


def _from_json_lines(content: bytes, source: str) -> pd.DataFrame:
    """One flat object a line."""
    rows = []
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise InputError(f"{source}: line {number} is not a JSON object; one run stands on each line.") from None
        if not isinstance(row, dict) or any(isinstance(cell, dict | list) for cell in row.values()):
            raise InputError(f"{source}: line {number} is not a flat JSON object of numbers and texts.")
        rows.append(row)
        if len(rows) > MOST_ROWS:
            break
    columns = {name: None for row in rows for name in row}
    _check_extent(len(rows), len(columns), source)
    return pd.DataFrame(rows, columns=list(columns))


def _plain_column(column: Any, name: str, source: str) -> Any:
    """A column of numbers, truth values, dates or text; dictionaries of text written out, if that is not too much."""
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute  # its functions are made at run time, where no type checker sees them

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    known = (
        pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_temporal,
        pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null,
    )  # fmt: skip
    if not any(is_kind(kind) for is_kind in known):
        raise InputError(f"{source}: column {name} holds {kind} values, which a table of runs cannot; leave it out.")
    if not pa.types.is_dictionary(column.type):
        return column
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        length = sum(
            pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0 for chunk in column.chunks
        )
        if length > MOST_TABLE_BYTES:
            raise InputError(
                f"{source}: the text of column {name} has {length:,} bytes; {MOST_TABLE_BYTES:,} is the most."
            )
    return column.cast(kind)


def _to_pandas(column: Any, name: str, source: str) -> pd.Series:
    """Whole numbers stay whole where some are missing: as floats those past 2⁵³ would change."""
    import pyarrow as pa

    whole = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype(), pa.int32(): pd.Int32Dtype()}
    try:
        return column.to_pandas(types_mapper=whole.get if column.null_count else None)
    except (pa.ArrowException, ArithmeticError, LookupError, ValueError):  # a year past 9999, an unknown time zone
        raise InputError(
            f"{source}: column {name} holds {column.type} values that cannot be read; leave it out."
        ) from None


def _check_extent(rows: int, columns: int, source: str) -> None:
    if columns > MOST_COLUMNS:
        raise InputError(f"{source}: the table has {columns:,} columns; {MOST_COLUMNS:,} is the most that is read.")
    if rows > MOST_ROWS or rows * columns > MOST_CELLS:
        raise InputError(
            f"{source}: the table has {rows:,} or more rows of {columns:,} columns; {MOST_ROWS:,} rows and "
            f"{MOST_CELLS:,} cells are the most that is read."
        )


def _from_csv(content: bytes, source: str) -> pd.DataFrame:
    """Read with the csv module: every cell stays the text it is, and a ragged line is named by its number."""
    header, cells = _rows(_decoded(content, source), source)
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


def _rows(decoded: str, source: str) -> tuple[list[str], pd.DataFrame]:
    """The header and a table of text. Lines are packed by the thousand: a list of cells takes ten times the memory."""
    first_line = decoded.lstrip().partition("\n")[0]
    delimiter = max(",\t;", key=first_line.count)
    reader = csv.reader(io.StringIO(decoded, newline=""), delimiter=delimiter, strict=True)
    header: list[str] = []
    rows: list[list[str]] = []
    parts: list[pd.DataFrame] = []
    count = 0
    try:
        for row in reader:
            if not row:
                continue
            if not header:
                header = [name.strip() for name in row]
                if len(header) < 2:
                    raise InputError(f"{source}: this is not a table; its first line has no columns.")
                _check_extent(0, len(header), source)
            elif len(row) != len(header):
                raise InputError(
                    f"{source}: line {reader.line_num} has {len(row)} fields where the header has {len(header)}."
                )
            else:
                rows.append(row)
                if len(rows) == LINES_AT_ONCE:
                    count += len(rows)
                    _check_extent(count, len(header), source)
                    parts.append(_text_frame(rows, header))
                    rows = []
    except csv.Error as error:
        raise InputError(f"{source}: line {reader.line_num} is not CSV ({error}).") from None
    parts.append(_text_frame(rows, header))
    return header, parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _text_frame(rows: list[list[str]], header: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=pd.Index(header), dtype="str")


def _to_csv(frame: pd.DataFrame) -> bytes:
    """Text is quoted where it must be. Python 3.11's csv module leaves a lone carriage return bare: then quote all."""
    content = frame.to_csv(index=False, lineterminator="\n")
    if "\r" in content:
        content = frame.to_csv(index=False, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    return content.encode()


MOST_TABLE_BYTES = 256 << 20
"""Bound for an unpacked table: millions of rows. What is larger is refused before it fills the memory."""
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
FOREIGN = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive or a spreadsheet",
    b"\x7fELF": "a program",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"version https://git-lfs": "a Git LFS pointer",
}


def read_packed(path: str | Path) -> bytes:
    """The content of a table's file, unpacked if it is packed."""
    return decompress(read_bytes(path, MOST_TABLE_BYTES), str(path))


def decompress(content: bytes, source: str, most: int = MOST_TABLE_BYTES) -> bytes:
    """Content of a gzip, xz, bzip2 or Zstandard file; anything else as it is. The file's name plays no part.

    At most so many bytes are unpacked: a few packed megabytes can hold gigabytes of nothing.
    """
    opened = _unpacking(content)
    if opened is None:
        return content
    try:
        with opened as stream:
            unpacked = stream.read(most + 1)
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
        raise InputError(f"{source}: the compressed file is damaged or cut short; fetch or write it again.") from None
    if len(unpacked) > most:
        raise InputError(f"{source}: unpacked it is larger than {most:,} bytes, the most that is read of a table.")
    return unpacked


def _unpacking(content: bytes) -> Any:
    if content.startswith(b"\x1f\x8b"):
        return gzip.open(io.BytesIO(content))
    if content.startswith(b"\xfd7zXZ\0"):
        return lzma.open(io.BytesIO(content))
    if content.startswith(b"BZh"):
        return bz2.open(io.BytesIO(content))
    if content.startswith(ZSTD_MAGIC):
        return pa.input_stream(pa.py_buffer(content), compression="zstd")
    return None


def compress(content: bytes, extension: str) -> bytes:
    """The same bytes for the same table: no time stamp goes in."""
    match extension:
        case ".gz":
            return gzip.compress(content, mtime=0)
        case ".xz":
            return lzma.compress(content)
        case ".zst":
            sink = pa.BufferOutputStream()
            with pa.CompressedOutputStream(sink, "zstd") as stream:
                stream.write(content)
            return sink.getvalue().to_pybytes()
    raise ValueError(f"no codec for {extension}")


def foreign_format(content: bytes) -> str | None:
    """What a file that is no table is, in words; None when it may be CSV."""
    for magic, name in FOREIGN.items():
        if content.startswith(magic):
            return name
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"<"):
        return "HTML or XML (perhaps the web page of the file instead of the file)"
    return "JSON" if start.startswith((b"{", b"[")) and _is_json(start) else None


def _is_json(content: bytes) -> bool:
    """Whole, or one document a line."""
    for candidate in (content, content.partition(b"\n")[0]):
        try:
            json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        return True
    return False
