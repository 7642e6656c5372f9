"""What sources are packed in, read in pieces, so that what is held does not grow with the file.

Bytes of a file, plain or compressed, come a block at a time; text of a Parquet column a few rows at a time, as few as
keeps memory bounded, whatever the cells are.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from routelaw.errors import InputError
from routelaw.files import open_regular
from routelaw.specs.names import nearest_hint

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


BLOCK_BYTES = 1 << 18
CODECS = (".gz", ".xz", ".zst")
LONGEST_LINE = 256 << 20
"""Bytes of what is held whole: a line that is a document, a cell of a table. A small file may unpack to any length."""

Advance = Callable[[int], None]
"""Told how many bytes of the file as stored were read since the last call."""


def read_blocks(path: Path, advance: Advance) -> Iterator[bytes]:
    """The content of a .gz, .xz or .zst file unpacked, of any other file as it is."""
    with open_regular(path) as raw:
        try:
            stream, seen = _unpack(raw, path.suffix.lower()), 0
            while block := stream.read(BLOCK_BYTES):
                yield block
                advance(raw.tell() - seen)
                seen = raw.tell()
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            # InputError is a ValueError: one thrown into this generator by its consumer passes through unchanged.
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: the file is damaged or cut short ({error}); fetch or write it again.") from None


def _unpack(raw: IO[bytes], suffix: str) -> Any:
    match suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=raw)
        case ".xz":
            return lzma.LZMAFile(raw)
        case ".zst":
            import pyarrow as pa

            return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
    return raw


def read_lines(blocks: Iterator[bytes], path: Path, longest: int | None = None) -> Iterator[bytes]:
    """Lines without their line ends; a last line needs none. One of more than `longest` bytes is refused."""
    longest = LONGEST_LINE if longest is None else longest
    begun: list[bytes] = []
    length, number = 0, 1
    for block in blocks:
        first, *more = block.split(b"\n")
        begun.append(first)
        length += len(first)
        if length > longest:
            raise InputError(
                f"{path}: line {number} is longer than {longest >> 20} MB, the most that is read; cut it, or give the "
                "text as a .txt with --documents separator or file, which may have any length."
            )
        for line in more:
            whole, begun = b"".join(begun), [line]  # the parts of a long one are not held beside it
            yield whole
            length, number = len(line), number + 1
    if last := b"".join(begun):
        begun.clear()
        yield last


ROWS = 64
BATCH_BYTES = 256 << 20
LARGEST_PAGE = 448 << 20
"""Unpacked. Most writers begin a new page after a mebibyte, but Arrow only after a thousand rows, which may be books.
Arrow takes four times as much: the page, a copy of a dictionary, the rows read, and room for them to grow."""
LONGEST_HEADER = 1 << 24
"""Bound for the header of a page, the one that Arrow has."""
INT32 = 5
DEEPEST = 8


def read_texts(path: Path, key: str, advance: Advance) -> Iterator[bytes]:
    """The cells of a column in order, as UTF-8."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            _check_column(path, file.schema_arrow, key)
            share, row = path.stat().st_size / max(1, file.metadata.num_rows), 0
            batches = file.iter_batches(batch_size=_rows_at_once(path, file, key), columns=[key])
            while (rows := next(batches, None)) is not None:
                count = rows.num_rows
                for cell in rows.column(0).cast(pa.large_string()).cast(pa.large_binary()):
                    row += 1
                    yield _text(cell, f"{path}: row {row}", key)
                rows = cell = None  # large ones are not held while the next are read
                advance(round(share * count))
    except (pa.ArrowException, OSError) as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{path}: cannot be read as Parquet with text in {key!r} ({first}).") from None


def _check_column(path: Path, schema: pa.Schema, key: str) -> None:
    from pyarrow import types

    if schema.names.count(key) != 1:
        what = "several columns" if key in schema.names else "no column"
        hint = "" if key in schema.names else nearest_hint(key, schema.names)
        raise InputError(f"{path}: {what} {key!r}{hint}; name the one that holds the text with --key.")
    kind = schema.field(schema.names.index(key)).type
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner)):
        raise InputError(f"{path}: the column {key!r} holds {kind!s:.60}, not text; name another with --key.")


def _text(cell: pa.LargeBinaryScalar, where: str, key: str) -> bytes:
    data = cell.as_buffer()
    if data is None:
        raise InputError(f"{where} has no {key}.")
    if data.size > LONGEST_LINE:
        raise InputError(f"{where} is longer than {LONGEST_LINE >> 20} MB, the most that is read; cut the text.")
    return data.to_pybytes()


def _rows_at_once(path: Path, file: pq.ParquetFile, key: str) -> int:
    """How many rows cannot take more than `BATCH_BYTES`, whatever they hold; one at least."""
    largest = 1
    leaves = [n for n in range(len(file.schema.names)) if file.schema.column(n).path == key]
    with open_regular(path) as raw:
        for group in range(file.metadata.num_row_groups):
            for chunk in (file.metadata.row_group(group).column(leaf) for leaf in leaves):
                start = min(chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset)
                for size in _pages(raw, start, chunk.total_compressed_size):
                    if size > LARGEST_PAGE:
                        raise InputError(
                            f"{path}: a page of {key!r} is {size >> 20:,} MB unpacked, too large to be read; write the "
                            "file again with smaller pages (data_page_size, write_batch_size) or cells."
                        )
                    largest = max(largest, size)
    return min(ROWS, max(1, BATCH_BYTES // largest))


def _pages(raw: IO[bytes], start: int, length: int) -> Iterator[int]:
    """Unpacked size of every page of a column chunk, without unpacking any."""
    at = start
    while at < start + length:
        size, packed, header = _page_header(raw, at)
        yield size
        at += header + packed


def _page_header(raw: IO[bytes], at: int) -> tuple[int, int, int]:
    """Unpacked size, packed size, and the length of the header itself, which only its end tells."""
    reach = 1 << 12
    while at >= 0 and reach <= LONGEST_HEADER:
        raw.seek(at)
        data = raw.read(reach)
        try:
            numbers, length = _Thrift(data).numbers()
        except IndexError:
            if len(data) < reach:
                break
            reach *= 4
            continue
        size, packed = (numbers.get(field, -1) for field in (2, 3))
        if min(size, packed) < 0:
            break
        return size, packed, length
    raise OSError("its pages are not where its footer says")


class _Thrift:
    """As much of Thrift's compact protocol as it takes to read the numbers of a struct and to skip the rest."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self, depth: int = 0) -> tuple[dict[int, int], int]:
        """The 32-bit integers of a struct by field, and where it ends. Past the data: IndexError."""
        if depth > DEEPEST:
            raise OSError("a page's header is nested too deeply")
        found: dict[int, int] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._integer()
            if head & 15 == INT32:
                found[field] = self._integer()
            else:
                self._skip(head & 15, depth)
        return found, self.at

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if shift > 63:
                raise OSError("a page's header is damaged")
        return value | byte << shift

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, depth: int) -> None:
        match kind:
            case 1 | 2:  # a truth value, which is its own type
                pass
            case 3:
                self.at += 1
            case 4 | 5 | 6:
                self._varint()
            case 7:
                self.at += 8
            case 8:
                length = self._varint()
                self.at += length
            case 12:
                self.numbers(depth + 1)
            case _:  # page headers have neither lists nor maps
                raise OSError("a page's header is damaged")
