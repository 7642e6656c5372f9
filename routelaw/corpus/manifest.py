"""What a corpus says of itself: one JSON file with the size and hash of every other, and a checksum of its own.

Whether the parts of a corpus agree is checked here, too: no checksum tells, since a wrong file can be written with a
right one.

Shapes: D documents, V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError
from routelaw.files import open_regular, read_json, sha256_of
from routelaw.specs.files import from_mapping
from routelaw.whole_folder import UNFINISHED

MAGIC = b"routelaw-numbers"
HEADER_BYTES = 64
INDEX_TYPE = np.dtype("<u8")
"""What the index of documents is stored as."""
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


MANIFEST = "manifest.json"
FORMAT = "routelaw corpus 1"
TRAIN, VALIDATION = "train", "validation"
LARGEST_VOCABULARY = 10_000_000
"""The largest in use have a quarter of a million tokens."""


@dataclass(frozen=True)
class SplitRecord:
    """What the manifest says of a split."""

    documents: int
    tokens: int
    bytes: int
    """UTF-8 bytes of text, without the ends of documents: for bits per byte."""
    shards: tuple[FileRecord, ...]
    index: FileRecord
    """For each document the tokens and the bytes up to its end, two numbers."""
    frequencies: FileRecord
    """How often each token of the vocabulary occurs."""


@dataclass(frozen=True)
class Manifest:
    """What a corpus is, as stored. Neither dates nor places: the same text gives the same manifest."""

    vocabulary: int
    end_of_text: int
    tokenizer: FileRecord
    splits: dict[str, SplitRecord]
    validation_share: float
    documents_from: str
    """How documents were told apart in .txt files."""

    @property
    def id(self) -> str:
        """Content hash: over the hashes of tokenizer and shards alone; how the text was stored plays no part."""
        parts = [f"tokenizer {self.tokenizer.sha256}"]
        parts += [f"{name} {shard.sha256}" for name, split in self.splits.items() for shard in split.shards]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def files(self) -> list[FileRecord]:
        return [self.tokenizer, *(f for s in self.splits.values() for f in (*s.shards, s.index, s.frequencies))]


def write_manifest(manifest: Manifest) -> bytes:
    content = {"format": FORMAT, "id": manifest.id, **asdict(manifest)}
    return json.dumps({**content, "sha256": _digest(content)}, indent=1).encode() + b"\n"


def read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    if path.name.endswith(UNFINISHED):
        raise InputError(f"{path}: an unfinished build, left by a process that was killed; delete it and build again.")
    if not file.exists():
        raise InputError(f"{path}: not a corpus (no {MANIFEST} in it); make one with `routelaw corpus build`.")
    content = read_json(file)
    if not isinstance(content, dict) or content.pop("sha256", None) != _digest(content):
        raise InputError(
            f"{file}: the manifest is damaged (it does not match its own checksum); build the corpus again."
        )
    if (made_as := content.pop("format", None)) != FORMAT:
        raise InputError(f"{file}: made by another version ({made_as!r}, not {FORMAT!r}); build the corpus again.")
    stored_id = content.pop("id", None)
    manifest = from_mapping(Manifest, content, str(file))
    _check(manifest, stored_id, file)
    return manifest


def _check(manifest: Manifest, stored_id: object, file: Path) -> None:
    """What types cannot say. A manifest is a file like any other: its checksum shows damage, and no intention."""
    counts = [n for s in manifest.splits.values() for n in (s.documents, s.tokens, s.bytes)]
    counts += [n for record in manifest.files for n in (record.bytes, record.count)]
    wrong = {
        "its id": stored_id != manifest.id,
        "the vocabulary": not 1 <= manifest.vocabulary <= LARGEST_VOCABULARY,
        "the end of text": not 0 <= manifest.end_of_text < manifest.vocabulary,
        "the splits": set(manifest.splits) != {TRAIN, VALIDATION},
        "a count": min(counts, default=0) < 0,
        "the name of a file": not all(_is_file_name(record.file) for record in manifest.files),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise InputError(
                f"{file}: the manifest is damaged ({what} cannot be what it says); build the corpus again."
            )


def _is_file_name(name: str) -> bool:
    """Whether it names a file of the corpus's own folder, and can be printed."""
    return Path(name).name == name and name not in ("", "..") and name.isprintable()


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


SLICE = 1 << 20
"""Rows or tokens looked at together: an index may be longer than memory."""


def check_split(
    where: str, record: SplitRecord, tokens: int, index: np.ndarray, frequencies_V: np.ndarray, vocabulary: int
) -> np.ndarray:
    """The index in rows, after what can be checked without reading the tokens."""
    if index.size != 2 * record.documents:
        raise _damaged(
            where, f"the index has {index.size:,} numbers, not two for each of {record.documents:,} documents"
        )
    index_D2 = index.reshape(-1, 2)
    _check_order(where, index_D2)
    if frequencies_V.size != vocabulary or frequencies_V.min(initial=0) < 0:
        raise _damaged(where, f"the token frequencies are not counts of {vocabulary:,} tokens")
    last = tuple(index_D2[-1].tolist()) if len(index_D2) else (0, 0)
    if last != (record.tokens, record.bytes) or not tokens == record.tokens == int(frequencies_V.sum()):
        raise _damaged(where, "index, token frequencies and shards do not agree")
    return index_D2


def _check_order(where: str, index_D2: np.ndarray) -> None:
    """A document has at least its end-of-text; its text may be empty. With the last row checked, none is out of
    bounds."""
    before = np.zeros((1, 2), index_D2.dtype)
    for rows in _slices(index_D2):
        rows = np.concatenate([before, rows])
        if (rows[1:, 0] <= rows[:-1, 0]).any() or (rows[1:, 1] < rows[:-1, 1]).any():
            raise _damaged(where, "the documents of the index are out of order")
        before = rows[-1:]


def check_tokens(
    where: str, shards: Sequence[np.ndarray], index_D2: np.ndarray, frequencies_V: np.ndarray, end_of_text: int
) -> None:
    """Read every token: is it of the vocabulary, is it as frequent as counted, does each document end where it says."""
    counts_V = np.zeros(len(frequencies_V), np.int64)
    for tokens in (part for shard in shards for part in _slices(shard)):
        if tokens.max() >= len(counts_V):
            raise _damaged(where, f"token {tokens.max()} is beyond the vocabulary of {len(counts_V):,}")
        counts_V += np.bincount(tokens, minlength=len(counts_V))
    if not np.array_equal(counts_V, frequencies_V):
        raise _damaged(where, "the token frequencies are not those of the tokens")
    starts = np.cumsum([0, *(shard.size for shard in shards)])
    for rows in _slices(index_D2):
        last = rows[:, 0].astype(np.int64) - 1
        shard_of = np.searchsorted(starts, last, side="right") - 1
        for number in np.unique(shard_of).tolist():
            if (shards[number][last[shard_of == number] - starts[number]] != end_of_text).any():
                raise _damaged(where, "a document of the index does not end with an end-of-text")


def check_tokenizer(path: Path, manifest: Manifest, tokenizer: Tokenizer) -> None:
    if (tokenizer.vocabulary, tokenizer.end_of_text) != (manifest.vocabulary, manifest.end_of_text):
        raise _damaged(
            f"{path}: {manifest.tokenizer.file}",
            f"the tokenizer has {tokenizer.vocabulary:,} tokens and ends texts with {tokenizer.end_of_text}, not "
            f"{manifest.vocabulary:,} and {manifest.end_of_text} as the manifest says",
        )


def _slices(values: np.ndarray) -> Iterator[np.ndarray]:
    return (values[at : at + SLICE] for at in range(0, len(values), SLICE))


def _damaged(where: str, why: str) -> InputError:
    return InputError(f"{where}: {why}: damaged; build again.")
