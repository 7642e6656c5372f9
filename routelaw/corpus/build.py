"""Text to a corpus on disk: read, train a tokenizer, encode on all cores, hold out, write, and only then appear.

Everything is written into a hidden directory beside the target, which takes its name at the very end; an error or a
kill leaves no directory that opens as a corpus. What is held in memory is bounded: a few chunks of text under way, the
tokenizer's sample, and buffers.

A split's tokens go to shards, the ends of its documents to an index, both as they come. A small corpus may leave a
split without a document by chance: then one changes sides, and both are written anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from routelaw.corpus.encode import Encoded, encode_chunks
from routelaw.corpus.fragments import Fragment, bundle, document_hash
from routelaw.corpus.manifest import (
    INDEX_TYPE,
    LARGEST_VOCABULARY,
    MANIFEST,
    TRAIN,
    VALIDATION,
    ArrayWriter,
    FileRecord,
    Manifest,
    SplitRecord,
    open_array,
    read_manifest,
    record_of,
    write_manifest,
)
from routelaw.corpus.shards import Corpus, Tokens, open_corpus
from routelaw.corpus.sources import PYTHON, Reading, find_files, read_documents
from routelaw.corpus.tokenizer import Tokenizer, read_tokenizer, train_tokenizer
from routelaw.errors import InputError
from routelaw.files import reason_of
from routelaw.whole_folder import whole_folder

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


TOKENIZER = "tokenizer.model"

USUAL_SHARE, SMALL_SHARE = 0.005, 0.05
"""Share of documents held out: usually, and of the Python library, where the first would hold out two or three."""

Progress = Callable[[str, int, int], None]
"""Told the phase, the bytes of the sources read in it, and all there are."""


def build_corpus(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    vocabulary: int = 32_000,
    tokenizer: str | Path | None = None,
    validation: float | None = None,
    reading: Reading | None = None,
    workers: int | None = None,
    shard_tokens: int = SHARD_TOKENS,
    force: bool = False,
    progress: Progress = lambda phase, done, total: None,
) -> Corpus:
    """Build a corpus at `out` and open it. The result does not depend on `workers`.

    `validation` is the share of documents held out, chosen by the hash of their text; above 0 it holds out at least
    one document (that with the smallest hash), and leaves at least one. Unless given it is 0.005; of the Python
    library, which has some hundred documents, 0.05. With several workers a script must call this
    under `if __name__ == "__main__"`, for they are started afresh.

    >>> reading = rl.Reading(documents="line")
    >>> rl.build_corpus(["texts.txt"], "small", vocabulary=300, reading=reading, workers=1, validation=0.1).vocabulary
    300
    """
    out, reading = Path(out), reading or Reading()
    workers = workers or available_cores()
    if validation is None:
        validation = SMALL_SHARE if [str(source) for source in sources] == [PYTHON] else USUAL_SHARE
    if not 0 <= validation <= 0.5:
        raise InputError(f"--validation is a share between 0 and 0.5, not {validation:g}.")
    if workers < 1 or shard_tokens < 1 or vocabulary < 1:
        raise InputError("--workers, --vocabulary and the tokens of a shard must be at least 1.")
    if vocabulary > LARGEST_VOCABULARY:
        raise InputError(f"--vocabulary must be at most {LARGEST_VOCABULARY:,}, not {vocabulary:,}.")
    files = find_files(sources)
    with whole_folder(_resolved(out), lambda target: _check_target(target, force)) as directory:
        text = _Text(files, reading, progress)
        if tokenizer:
            encoder = read_tokenizer(Path(tokenizer))
        else:
            model = train_tokenizer(_trainable(text.read("sampling"), validation), vocabulary, errors=reading.errors)
            encoder = Tokenizer(model)
        (directory / TOKENIZER).write_bytes(encoder.model)
        with _dividing(directory, encoder, validation, shard_tokens) as division:
            for encoded in encode_chunks(encoder, bundle(text.read("encoding")), reading.errors, workers):
                division.append(encoded)
            splits = _finish(directory, division, encoder, shard_tokens, sources)
        manifest = Manifest(
            vocabulary=encoder.vocabulary,
            end_of_text=encoder.end_of_text,
            tokenizer=record_of(directory / TOKENIZER),
            splits=splits,
            validation_share=validation,
            documents_from=reading.documents,
        )
        (directory / MANIFEST).write_bytes(write_manifest(manifest))
    return open_corpus(out)


class _Text:
    """The sources, to be read once or twice, with progress in bytes as stored."""

    def __init__(self, files: list[tuple[Path, str]], reading: Reading, progress: Progress) -> None:
        self.files, self.reading, self.progress = files, reading, progress
        self.total = sum(path.stat().st_size for path, _ in files)

    def read(self, phase: str) -> Iterator[Fragment]:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.progress(phase, done, self.total)

        return read_documents(self.files, self.reading, advance)


def available_cores() -> int:
    """Cores this process may run on, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _trainable(fragments: Iterator[Fragment], validation: float) -> Iterator[Fragment]:
    """Without the documents that will be held out: the tokenizer is fitted to training text."""
    starts, held = True, False
    for fragment in fragments:
        if starts:
            held = bool(is_held_out(np.array([document_hash(fragment.data)], np.uint64), validation)[0])
        starts = fragment.ends
        if not held:
            yield fragment


@contextmanager
def _dividing(directory: Path, encoder: Tokenizer, validation: float, shard_tokens: int) -> Iterator[Division]:
    train, held_out = (
        SplitWriter(directory, name, encoder.dtype, encoder.vocabulary, shard_tokens) for name in (TRAIN, VALIDATION)
    )
    try:
        yield Division(train, held_out, validation)
    finally:
        train.discard()
        held_out.discard()


def _finish(
    directory: Path, division: Division, encoder: Tokenizer, shard_tokens: int, sources: Sequence[str | Path]
) -> dict[str, SplitRecord]:
    """Close both splits; where one would be empty, a document changes sides."""
    train, held_out = division.writers
    documents = train.documents + held_out.documents
    if not documents:
        raise InputError(f"there is no text in {', '.join(map(str, sources))}.")
    if documents == 1 and division.share:
        raise InputError(
            "the text is a single document, and one must be held out: pass --documents line, or --validation 0."
        )
    splits = {writer.name: writer.close() for writer in division.writers}
    layout = (encoder.dtype, encoder.vocabulary, shard_tokens)
    if train.documents == 0:
        return move_document(directory, splits[VALIDATION], VALIDATION, division.highest[1], *layout)
    if held_out.documents == 0 and division.share:
        return move_document(directory, splits[TRAIN], TRAIN, division.lowest[1], *layout)
    return splits


def _check_target(out: Path, force: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise InputError(f"{out}: exists already; choose another name, or pass --force to replace a corpus.")
    try:
        read_manifest(out)
    except InputError:
        # A damaged corpus may be replaced; what never was one is not ours to delete.
        if not (out / MANIFEST).is_file() or not (out / TOKENIZER).is_file():
            raise InputError(
                f"{out}: exists and is not a corpus, so --force does not replace it; delete it yourself."
            ) from None


def _resolved(out: Path) -> Path:
    try:
        resolved, here = out.resolve(), Path.cwd()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that lead in a circle
        raise InputError(
            f"{str(out)!r:.200} cannot be written to ({reason_of(error)}); choose another --out."
        ) from None
    if here.is_relative_to(resolved):
        raise InputError(f"{resolved}: this is the working directory or one around it; give --out a name of its own.")
    return resolved
