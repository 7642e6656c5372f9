"""Whether the parts of a corpus agree: what no checksum tells, since a wrong file can be written with a right one.

D documents, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from routelaw.corpus.manifest import Manifest, SplitRecord
from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError

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
