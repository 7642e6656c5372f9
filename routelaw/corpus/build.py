"""Text to a corpus on disk: read, train a tokenizer, encode on all cores, hold out, write, and only then appear.

Everything is written into a hidden directory beside the target, which takes its name at the very end; an error or a
kill leaves no directory that opens as a corpus. What is held in memory is bounded: a few chunks of text under way, the
tokenizer's sample, and buffers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from routelaw.corpus.appearing import appearing
from routelaw.corpus.arrays import record_of
from routelaw.corpus.encode import encode_chunks
from routelaw.corpus.fragments import Fragment, bundle, document_hash
from routelaw.corpus.manifest import (
    LARGEST_VOCABULARY,
    MANIFEST,
    TRAIN,
    VALIDATION,
    Manifest,
    SplitRecord,
    read_manifest,
    write_manifest,
)
from routelaw.corpus.shards import Corpus, open_corpus
from routelaw.corpus.sources import PYTHON, Reading, find_files, read_documents
from routelaw.corpus.splits import SHARD_TOKENS, Division, SplitWriter, is_held_out, move_document
from routelaw.corpus.tokenizer import Tokenizer, read_tokenizer, train_tokenizer
from routelaw.errors import InputError

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
    with appearing(out, lambda target: _check_target(target, force)) as directory:
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
