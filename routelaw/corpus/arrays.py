"""Files of numbers that know what they are: a header of 64 bytes, then the numbers, little-endian, to be memory-mapped.

The header (magic, kind, type, count, checksum of itself) and the file's size are checked whenever one is opened, the
sha256 of the whole when asked: a cut file is always noticed, a flipped bit in the header too, one elsewhere on request.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from routelaw.errors import InputError
from routelaw.files import open_regular, sha256_of

MAGIC = b"routelaw-numbers"
HEADER_BYTES = 64
INDEX_TYPE = np.dtype("<u8")
"""Of the index of documents."""
_HEADER = struct.Struct("<16s16s8sQ")


@dataclass(frozen=True)
class FileRecord:
    """What the manifest says of one file."""

    file: str
    bytes: int
    sha256: str
    count: int = 0
    """Numbers in it; 0 for a file that holds none."""


class ArrayWriter:
    """Numbers appended to a new file; `close` completes the header and makes the file durable."""

    def __init__(self, path: Path, kind: str, dtype: np.dtype) -> None:
        self.path, self.kind, self.dtype, self.count = path, kind, dtype.newbyteorder("<"), 0
        self._file = path.open("xb")
        self._file.write(bytes(HEADER_BYTES))

    def append(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.count += values.size

    def close(self) -> FileRecord:
        with self._file:
            self._file.seek(0)
            self._file.write(_header(self.kind, self.dtype, self.count))
            self._file.flush()
            os.fsync(self._file.fileno())
        return record_of(self.path, self.count)

    def discard(self) -> None:
        # A full disk refuses the last bytes once more.
        with suppress(OSError):
            self._file.close()

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()


def record_of(path: Path, count: int = 0) -> FileRecord:
    return FileRecord(path.name, path.stat().st_size, sha256_of(path), count)


def open_array(directory: Path, record: FileRecord, kind: str, dtype: np.dtype) -> np.ndarray:
    """The numbers, memory-mapped and read-only, after the checks that cost nothing."""
    path, dtype = check_size(directory, record), dtype.newbyteorder("<")
    with open_regular(path) as file:
        header = file.read(HEADER_BYTES)
    if record.bytes != HEADER_BYTES + record.count * dtype.itemsize or header != _header(kind, dtype, record.count):
        raise InputError(
            f"{path}: the header is damaged, or the file is not the one that the manifest names; build again."
        )
    if not record.count:
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=HEADER_BYTES, shape=(record.count,))


def check_size(directory: Path, record: FileRecord) -> Path:
    path = directory / record.file
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: part of the corpus cannot be read ({error.strerror}); build it again.") from None
    if size != record.bytes:
        raise InputError(
            f"{path}: {size:,} bytes where the manifest says {record.bytes:,}: cut short or overwritten; build again."
        )
    return path


def check_content(directory: Path, record: FileRecord) -> None:
    path = check_size(directory, record)
    if sha256_of(path) != record.sha256:
        raise InputError(f"{path}: the content is damaged (its sha256 is not the manifest's); build again.")


def _header(kind: str, dtype: np.dtype, count: int) -> bytes:
    fields = _HEADER.pack(MAGIC, kind.encode(), dtype.str.encode(), count)
    return (fields + struct.pack("<I", zlib.crc32(fields))).ljust(HEADER_BYTES, b"\0")
