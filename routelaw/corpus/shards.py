"""Reading: a corpus as memory-mapped shards, checked on opening, and more thoroughly on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from routelaw.corpus.manifest import (
    INDEX_TYPE,
    TRAIN,
    VALIDATION,
    Manifest,
    SplitRecord,
    check_content,
    check_split,
    check_tokenizer,
    check_tokens,
    open_array,
    read_manifest,
)
from routelaw.corpus.tokenizer import Tokenizer, token_type
from routelaw.errors import InputError
from routelaw.files import read_bytes


class Tokens:
    """Consecutive shards as one sequence of numbers."""

    def __init__(self, shards: Sequence[np.ndarray]) -> None:
        self.shards = shards
        self._ends = np.cumsum([0, *(s.size for s in shards)])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, start: int, count: int) -> np.ndarray:
        """`count` numbers from `start` on, copied out of however many shards they lie in; around the end if need be."""
        parts = []
        while count:
            start %= len(self)
            shard = int(np.searchsorted(self._ends, start, side="right")) - 1
            at = start - int(self._ends[shard])
            parts.append(self.shards[shard][at : at + count])
            start, count = start + parts[-1].size, count - parts[-1].size
        return np.concatenate(parts) if parts else np.empty(0, INDEX_TYPE)


@dataclass(frozen=True)
class Split:
    """Token stream of one split; every document is followed by an end-of-text."""

    name: str
    documents: int
    bytes: int
    tokens: Tokens
    index_D2: np.ndarray
    """Per document, the tokens (end-of-text included) and the bytes up to its end."""
    frequencies_V: np.ndarray

    def document(self, number: int) -> np.ndarray:
        """Tokens of a document, its end-of-text included."""
        if not 0 <= number < self.documents:
            raise InputError(f"{self.name} has documents 0 to {self.documents - 1}, not {number}.")
        start = int(self.index_D2[number - 1, 0]) if number else 0
        return self.tokens.read(start, int(self.index_D2[number, 0]) - start)


@dataclass(frozen=True)
class Corpus:
    """Text as tokens on disk, memory-mapped, in a training and a validation split.

    >>> corpus = rl.open_corpus("corpus")
    >>> corpus.vocabulary, corpus.validation.documents > 0
    (320, True)
    """

    path: Path
    manifest: Manifest
    splits: dict[str, Split]

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def vocabulary(self) -> int:
        return self.manifest.vocabulary

    @property
    def end_of_text(self) -> int:
        return self.manifest.end_of_text

    @property
    def train(self) -> Split:
        return self.splits[TRAIN]

    @property
    def validation(self) -> Split:
        return self.splits[VALIDATION]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(read_bytes(self.path / self.manifest.tokenizer.file), str(self.path))

    def split(self, name: str) -> Split:
        if name not in self.splits:
            raise InputError(f"a corpus has the splits {' and '.join(self.splits)}, not {name!r}.")
        return self.splits[name]

    def __reduce__(self) -> tuple[Any, ...]:
        # A memory map would be sent as its whole content.
        return open_corpus, (self.path,)


def open_corpus(path: str | Path, verify: bool = False) -> Corpus:
    """The corpus in a directory. Manifest, tokenizer, headers, sizes and index are checked; with `verify` every byte,
    and whether tokens, index, frequencies and tokenizer agree (which needs SentencePiece).

    >>> len(rl.open_corpus("corpus", verify=True).train.tokens) > 1000
    True
    """
    path = Path(path)
    manifest = read_manifest(path)
    check_content(path, manifest.tokenizer)
    if verify:
        for record in manifest.files:
            check_content(path, record)
    dtype = np.dtype(token_type(manifest.vocabulary))
    splits = {
        name: _open_split(path, name, record, dtype, manifest.vocabulary) for name, record in manifest.splits.items()
    }
    corpus = Corpus(path, manifest, splits)
    if verify:
        check_tokenizer(path, manifest, corpus.tokenizer)
        for split in splits.values():
            where = f"{path}: {split.name}"
            check_tokens(where, split.tokens.shards, split.index_D2, split.frequencies_V, manifest.end_of_text)
    return corpus


def _open_split(path: Path, name: str, record: SplitRecord, dtype: np.dtype, vocabulary: int) -> Split:
    tokens = Tokens([open_array(path, shard, "tokens", dtype) for shard in record.shards])
    index = open_array(path, record.index, "documents", INDEX_TYPE)
    frequencies_V = open_array(path, record.frequencies, "frequencies", np.dtype(np.int64))
    index_D2 = check_split(f"{path}: {name}", record, len(tokens), index, frequencies_V, vocabulary)
    return Split(name, record.documents, record.bytes, tokens, index_D2, frequencies_V)
