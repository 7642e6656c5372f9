"""Batches as a pure function of (corpus, seed, step): nothing to save, nothing to lose, any step at once.

A split is a ring of n tokens. An epoch cuts it into W = n // S windows of S tokens from a point of its own on, and
visits each once, in an order of its own; the n mod S tokens left over are others in the next epoch. A window lies
across the ends of documents, which the end-of-text token marks. Sequences are numbered through all epochs, so they come
in the same order whatever the batch size, and a device may make just its own rows.

The order is a permutation that is computed, not stored: where the i-th of n goes costs the same for any n. A Feistel
network permutes the numbers of an even count of bits whatever its round function; numbers that fall outside [0, n) go
through it again until they are inside (cycle walking), which leaves a permutation of [0, n). No cryptographic strength
is claimed or needed: six rounds of a 64-bit mixer pass the tests of uniformity kept with it.

B sequences of the batch, S tokens of a sequence; each row has one token more, the target of the last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from routelaw.corpus.manifest import TRAIN, VALIDATION
from routelaw.corpus.shards import Corpus, Split
from routelaw.errors import InputError

ROUNDS = 6


def permute(numbers: np.ndarray, n: int, key: str) -> np.ndarray:
    """Images of `numbers`, all in [0, n), under the permutation named by `key`."""
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    keys = np.frombuffer(hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS).digest(), "<u8")
    images = _network(numbers.astype(np.uint64), half, keys)
    while (outside := images >= n).any():
        images[outside] = _network(images[outside], half, keys)
    return images.astype(np.int64)


def draw(n: int, key: str) -> int:
    """A number in [0, n) named by `key`. Its bias is below n·2^-64."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little") % n


def _network(x: np.ndarray, half: np.uint64, keys: np.ndarray) -> np.ndarray:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = x >> half, x & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << half) | right


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014); products wrap at 64 bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def batch(corpus: Corpus, split: str, seed: int, step: int, batch: int, sequence_length: int) -> np.ndarray:
    """Tokens (B, S+1), int64, of one step."""
    if step < 0 or batch < 1:
        raise InputError(f"a batch has at least one sequence and a step is not negative: not {batch} and {step}.")
    available = windows(corpus, sequence_length, split)
    if available < batch:
        raise InputError(
            f"{corpus.path}: {split} has {len(corpus.split(split).tokens):,} tokens, {available} sequences of "
            f"{sequence_length}, fewer than the {batch} of a batch: give more text, or shorten batch or sequences."
        )
    return sequences(corpus, split, seed, np.arange(step * batch, (step + 1) * batch), sequence_length)


def sequences(corpus: Corpus, split: str, seed: int, numbers_B: np.ndarray, sequence_length: int) -> np.ndarray:
    """Tokens (B, S+1), int64, of the sequences with these numbers: those of step t are t·B to (t+1)·B − 1."""
    source, available = corpus.split(split), windows(corpus, sequence_length, split)
    if not available:
        raise InputError(
            f"{corpus.path}: {split} has {len(source.tokens):,} tokens, fewer than one sequence of {sequence_length}."
        )
    starts_B = np.empty(len(numbers_B), np.int64)
    for epoch in np.unique(numbers_B // available).tolist():
        rows = numbers_B // available == epoch
        key = f"{seed}/{epoch}/{split}/{sequence_length}"
        window = permute(numbers_B[rows] % available, available, f"{key}/order")
        starts_B[rows] = draw(len(source.tokens), f"{key}/offset") + window * sequence_length
    return _read(corpus, source, starts_B, sequence_length)


def windows(corpus: Corpus, sequence_length: int, split: str = TRAIN) -> int:
    """Sequences in an epoch."""
    if sequence_length < 1:
        raise InputError(f"a sequence has at least one token, not {sequence_length}.")
    return len(corpus.split(split).tokens) // sequence_length


def validation_windows(
    corpus: Corpus, sequence_length: int, batch: int, *, tokens: int | None = None, split: str = VALIDATION
) -> Iterator[np.ndarray]:
    """Batches (≤ B, S+1), int64, of a split's windows in order, the same every time; the last may hold fewer rows.

    Each token but the first is a target at most once; fewer than S at the end are left out. `tokens` bounds the work:
    then that many targets (rounded down to windows, at least one) from windows spread evenly over the split.
    """
    source = corpus.split(split)
    count = (len(source.tokens) - 1) // max(1, sequence_length)
    if sequence_length < 1 or batch < 1 or count < 1:
        raise InputError(
            f"{corpus.path}: {split} has {len(source.tokens):,} tokens, too few for one sequence of {sequence_length} "
            "and its targets: build with a larger --validation, or shorten the sequences."
        )
    used = count if tokens is None else max(1, min(count, tokens // sequence_length))
    starts = np.arange(used, dtype=np.int64) * count // used * sequence_length
    return (_read(corpus, source, starts[at : at + batch], sequence_length) for at in range(0, used, batch))


def _read(corpus: Corpus, source: Split, starts_B: np.ndarray, sequence_length: int) -> np.ndarray:
    tokens_BS = np.empty((len(starts_B), sequence_length + 1), np.int64)
    for row, start in zip(tokens_BS, starts_B.tolist(), strict=True):
        row[:] = source.tokens.read(start, sequence_length + 1)
    if tokens_BS.size and tokens_BS.max() >= corpus.vocabulary:
        raise InputError(
            f"{corpus.path}: a token beyond the vocabulary: a shard is damaged; run `routelaw corpus show --verify`."
        )
    return tokens_BS
