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


def read_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines without their line ends; a last line needs none."""
    begun: list[bytes] = []
    for block in blocks:
        first, *more = block.split(b"\n")
        begun.append(first)
        for line in more:
            yield b"".join(begun)
            begun = [line]
    if last := b"".join(begun):
        yield last
