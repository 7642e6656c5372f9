"""Writing: a split's tokens go to shards, the ends of its documents to an index, both as they come.

A small corpus may leave a split without a document by chance: then one changes sides, and both are written anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from routelaw.corpus.arrays import INDEX_TYPE, ArrayWriter, FileRecord, open_array
from routelaw.corpus.encode import Encoded
from routelaw.corpus.manifest import TRAIN, VALIDATION, SplitRecord
from routelaw.corpus.shards import Tokens

SHARD_TOKENS = 1 << 27


class SplitWriter:
    """One split on its way to disk. A document may lie across shards."""

    def __init__(self, directory: Path, name: str, dtype: np.dtype, vocabulary: int, shard_tokens: int) -> None:
        self.directory, self.name, self.dtype, self.shard_tokens = directory, name, dtype, shard_tokens
        self.documents = self.tokens = self.bytes = 0
        self._frequencies = np.zeros(vocabulary, np.int64)
        self._index = ArrayWriter(directory / f"{name}.index", "documents", INDEX_TYPE)
        self._shard: ArrayWriter | None = None
        self._shards: list[FileRecord] = []

    def append(self, tokens: np.ndarray, counts: np.ndarray, sizes: np.ndarray, ends: np.ndarray) -> None:
        """Fragments: their tokens one after another, and per fragment its tokens, bytes and whether a document ends."""
        rows = np.stack([self.tokens + np.cumsum(counts), self.bytes + np.cumsum(sizes)], axis=1)[ends]
        self._index.append(rows.reshape(-1).astype(INDEX_TYPE))
        self.documents += len(rows)
        self.tokens += int(counts.sum())
        self.bytes += int(sizes.sum())
        self._frequencies += np.bincount(tokens, minlength=len(self._frequencies))
        while tokens.size:
            if self._shard is None:
                path = self.directory / f"{self.name}-{len(self._shards):05d}.tokens"
                self._shard = ArrayWriter(path, "tokens", self.dtype)
            room = self.shard_tokens - self._shard.count
            self._shard.append(tokens[:room])
            tokens = tokens[room:]
            if self._shard.count == self.shard_tokens:
                self._close_shard()

    def _close_shard(self) -> None:
        if self._shard is not None:
            self._shards.append(self._shard.close())
            self._shard = None

    def close(self) -> SplitRecord:
        self._close_shard()
        path = self.directory / f"{self.name}.frequencies"
        with ArrayWriter(path, "frequencies", np.dtype(np.int64)) as frequencies:
            frequencies.append(self._frequencies)
            frequencies_record = frequencies.close()
        return SplitRecord(
            documents=self.documents,
            tokens=self.tokens,
            bytes=self.bytes,
            shards=tuple(self._shards),
            index=self._index.close(),
            frequencies=frequencies_record,
        )

    def discard(self) -> None:
        """Let go of the files: a build that failed. Nothing to do for one that was closed."""
        self._index.discard()
        if self._shard is not None:
            self._shard.discard()


class Division:
    """Deals documents to the splits: held out are those whose hash lies below the share asked for."""

    def __init__(self, train: SplitWriter, validation: SplitWriter, share: float) -> None:
        self.writers = (train, validation)
        self.share = share
        self._held_out = False
        """Whether the document under way is."""
        self._under_way = False
        self._begun = [0, 0]
        self.lowest = (np.uint64(2**64 - 1), 0)
        """Smallest hash among the documents of train, and which document: the next to be held out."""
        self.highest = (np.uint64(0), 0)
        """Largest among those held out: the next to be given to train."""

    def append(self, encoded: Encoded) -> None:
        starts = np.concatenate([[not self._under_way], encoded.ends[:-1]])
        hashes = encoded.hashes[starts]
        document_held = is_held_out(hashes, self.share)
        held = np.concatenate([[self._held_out], document_held])[np.cumsum(starts)]
        for held_out, writer in enumerate(self.writers):
            self._note_extreme(held_out, hashes[document_held == bool(held_out)])
            of_split = held == bool(held_out)
            if of_split.any():
                tokens = encoded.tokens[np.repeat(of_split, encoded.counts)]
                writer.append(tokens, encoded.counts[of_split], encoded.sizes[of_split], encoded.ends[of_split])
        self._held_out, self._under_way = bool(held[-1]), not encoded.ends[-1]

    def _note_extreme(self, held_out: int, hashes: np.ndarray) -> None:
        if not hashes.size:
            return
        if held_out:
            at = int(hashes.argmax())
            if hashes[at] >= self.highest[0]:
                self.highest = (hashes[at], self._begun[1] + at)
        else:
            at = int(hashes.argmin())
            if hashes[at] < self.lowest[0]:
                self.lowest = (hashes[at], self._begun[0] + at)
        self._begun[held_out] += hashes.size


def is_held_out(hashes: np.ndarray, share: float) -> np.ndarray:
    return hashes < np.uint64(min(int(share * 2**64), 2**64 - 1))


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
