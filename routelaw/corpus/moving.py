"""A small corpus may leave a split without a document by chance: then one changes sides, and both are written anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from routelaw.corpus.arrays import open_array
from routelaw.corpus.manifest import TRAIN, VALIDATION, SplitRecord
from routelaw.corpus.shards import Tokens
from routelaw.corpus.splits import INDEX_TYPE, SplitWriter

SLICE_TOKENS = 1 << 20


def move_document(
    directory: Path, record: SplitRecord, origin: str, number: int, dtype: np.dtype, vocabulary: int, shard_tokens: int
) -> dict[str, SplitRecord]:
    """Write both splits again, with document `number` of `origin` in the other one, which was empty."""
    tokens = Tokens([open_array(directory, shard, "tokens", dtype) for shard in record.shards])
    index_D2 = open_array(directory, record.index, "documents", INDEX_TYPE).reshape(-1, 2)
    again = directory / "again"
    again.mkdir()
    writers = {name: SplitWriter(again, name, dtype, vocabulary, shard_tokens) for name in (TRAIN, VALIDATION)}
    try:
        start, bytes_before = 0, 0
        for at, (end, bytes_end) in enumerate(index_D2.tolist()):
            stays = at != number
            writer = next(writer for name, writer in writers.items() if (name == origin) == stays)
            _copy(tokens, start, end, bytes_end - bytes_before, writer)
            start, bytes_before = end, bytes_end
        moved = {name: writer.close() for name, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.discard()
    for path in directory.glob("*-*.tokens"):
        path.unlink()
    for path in again.iterdir():
        path.replace(directory / path.name)
    again.rmdir()
    return moved


def _copy(tokens: Tokens, start: int, end: int, size: int, writer: SplitWriter) -> None:
    """One document, in slices: it may be longer than memory."""
    for at in range(start, end, SLICE_TOKENS):
        count = min(SLICE_TOKENS, end - at)
        last = at + count == end
        writer.append(tokens.read(at, count), np.array([count]), np.array([size if last else 0]), np.array([last]))
