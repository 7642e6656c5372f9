"""Compressed bytes and foreign files, recognised by how they begin."""

import bz2
import gzip
import io
import json
import lzma
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa

from routelaw.errors import InputError
from routelaw.files import read_bytes

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
