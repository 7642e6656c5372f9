"""Bytes of a file, plain or packed, a block at a time: what is held does not grow with the file."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from routelaw.errors import InputError
from routelaw.files import open_regular

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
