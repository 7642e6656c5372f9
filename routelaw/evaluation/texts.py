"""What is to be evaluated, as tokens: a corpus, or text in any format that the corpus package reads.

Text is tokenised as the model's. A stream is an end-of-text, then the documents, each followed by an end-of-text: as in
training. So the first word of the first document is predicted too, and every byte of the text counts.

A stream is read in windows of the length that the model was trained on, each token counted once. Windows overlap: every
one after the first begins `stride` tokens later and counts only what the one before has not seen. So each token is
predicted from at least S − stride tokens before it (the first S excepted), and a smaller stride costs more and tells
more.

Shapes: B rows, S sequence; a row has one token more, the successor of the last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from routelaw.corpus.fragments import decode
from routelaw.corpus.manifest import MANIFEST
from routelaw.corpus.shards import Corpus, Split, open_corpus
from routelaw.corpus.sources import Reading, find_files, read_documents
from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError

SLICE_TOKENS = 1 << 16
LONGEST_PASSAGE = 16 << 20
"""Bytes. A passage is held whole; those of LAMBADA have some hundred."""


class TokenStream:
    """Iterate once; afterwards `documents`, `bytes` and `hash` say what text it was."""

    def __init__(self, path: Path, tokenizer: Tokenizer, reading: Reading, limit: int | None = None) -> None:
        self.path, self.tokenizer, self.reading, self.limit = path, tokenizer, reading, limit
        self.documents = self.bytes = 0
        self.hash = TextHash()
        """The hash of the text, complete once it has been read."""

    def __iter__(self) -> Iterator[np.ndarray]:
        yield np.array([self.tokenizer.end_of_text])
        if (self.path / MANIFEST).is_file():
            # A flipped bit would be another loss, and nobody would know.
            corpus = open_corpus(self.path, verify=True)
            yield from self._stored(corpus, held_out(corpus, self.tokenizer.sha256))
        else:
            yield from self._encoded()
        if not self.documents:
            raise InputError(f"there is no text in {self.path}.")

    def _stored(self, corpus: Corpus, split: Split) -> Iterator[np.ndarray]:
        self.documents = min(split.documents, self.limit or split.documents)
        tokens, self.bytes = (int(n) for n in split.index_D2[self.documents - 1])
        self.hash.add_split(corpus, split, self.documents)
        for at in range(0, tokens, SLICE_TOKENS):
            yield split.tokens.read(at, min(SLICE_TOKENS, tokens - at))

    def _encoded(self) -> Iterator[np.ndarray]:
        for text, ends in self.hash.following(_texts(self.path, self.reading)):
            self.bytes += len(text.encode())
            self.documents += ends
            ids = self.tokenizer.encode(text).astype(np.int64)
            yield np.append(ids, self.tokenizer.end_of_text) if ends else ids
            if self.documents == self.limit:
                return


def held_out(corpus: Corpus, tokenizer_sha256: str) -> Split:
    """What of a corpus a model is evaluated on: the split held out, or everything where none was."""
    if corpus.manifest.tokenizer.sha256 != tokenizer_sha256:
        raise InputError(
            f"{corpus.path} was made with another tokenizer than the model's: build it with `--tokenizer` and that of "
            "the model, or name the text itself."
        )
    return evaluated_split(corpus)


def evaluated_split(corpus: Corpus) -> Split:
    return corpus.validation if corpus.validation.documents else corpus.train


class TextHash:
    """A hash of documents, the same whatever format and packing they were read from; of a corpus, by its id."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()

    def following(self, texts: Iterable[tuple[str, bool]]) -> Iterator[tuple[str, bool]]:
        """The same fragments, each with whether a document ends there."""
        for text, ends in texts:
            self._sha256.update(text.encode())
            if ends:
                self._sha256.update(b"\xff")  # which no UTF-8 has
            yield text, ends

    def add_split(self, corpus: Corpus, split: Split, documents: int) -> None:
        self._sha256.update(f"corpus {corpus.id} {split.name} {documents}".encode())

    def __str__(self) -> str:
        return self._sha256.hexdigest()


def hash_text(path: Path, reading: Reading, limit: int | None = None) -> str:
    """The hash of a text as an evaluation reads it: all of it is read once, so that what is wrong with it shows before
    anything is measured."""
    found, documents = TextHash(), 0
    if (path / MANIFEST).is_file():
        corpus = open_corpus(path)
        split = evaluated_split(corpus)
        documents = min(split.documents, limit or split.documents)
        found.add_split(corpus, split, documents)
    else:
        for _, ends in found.following(_texts(path, reading)):
            documents += ends
            if documents == limit:
                break
    if not documents:
        raise InputError(f"there is no text in {path}.")
    return str(found)


def read_passages(
    path: Path, reading: Reading, limit: int | None = None, found: TextHash | None = None
) -> Iterator[str]:
    """Whole documents, one at a time; `found` becomes their hash."""
    parts: list[str] = []
    count = size = 0
    texts = _texts(path, reading)
    for text, ends in texts if found is None else found.following(texts):
        parts.append(text)
        size = len(text) if len(parts) == 1 else size + len(text)
        if size > LONGEST_PASSAGE:
            raise InputError(
                f"{path}: passage {count + 1} is longer than {LONGEST_PASSAGE >> 20} MB; is each passage a document of "
                "its own (--documents)?"
            )
        if ends:
            yield "".join(parts)
            parts, count = [], count + 1
            if count == limit:
                return


def _texts(path: Path, reading: Reading) -> Iterator[tuple[str, bool]]:
    """Documents in fragments, and whether one ends; those of nothing but white space are left out, as in a corpus."""
    starts = True
    for fragment in read_documents(find_files([path]), reading, lambda _: None):
        blank = starts and fragment.ends and not fragment.data.strip()
        starts = fragment.ends
        if not blank:
            yield decode(fragment, reading.errors), fragment.ends


BATCH_TOKENS = 8192

Masked = tuple[np.ndarray, np.ndarray]
"""Tokens (…, S+1) and which successors count (…, S)."""


def strided_windows(pieces: Iterable[np.ndarray], sequence_length: int, stride: int, fill: int) -> Iterator[Masked]:
    """Rows (S+1) and masks (S) over the concatenated pieces, of which no more than one and a window is held.

    Every token but the first is a successor that counts in exactly one window. The last window is filled up with
    `fill`, which does not count and, attention being causal, changes nothing.
    """
    if not 1 <= stride <= sequence_length:
        raise InputError(f"the stride must lie between 1 and the sequence length {sequence_length}, not {stride}.")
    held, seen = np.empty(0, np.int64), 0
    for piece in pieces:
        held = np.concatenate([held, piece.astype(np.int64)])
        while len(held) > sequence_length + 1:
            yield _window(held, seen, sequence_length, fill)
            held, seen = held[stride:], sequence_length - stride
    if len(held) > 1:
        yield _window(held, seen, sequence_length, fill)


def _window(held: np.ndarray, seen: int, sequence_length: int, fill: int) -> Masked:
    row = np.full(sequence_length + 1, fill, np.int64)
    piece = held[: sequence_length + 1]
    row[: len(piece)] = piece
    mask = np.zeros(sequence_length, bool)
    mask[seen : len(piece) - 1] = True
    return row, mask


def batched(windows: Iterable[Masked], sequence_length: int) -> Iterator[Masked]:
    """Rows stacked to (B, S+1) and (B, S), about as many tokens at a time whatever their length."""
    windows = iter(windows)
    while rows := list(islice(windows, max(1, BATCH_TOKENS // sequence_length))):
        yield np.stack([row for row, _ in rows]), np.stack([mask for _, mask in rows])
