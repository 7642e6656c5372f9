"""A text in windows of the length the model was trained on, each token counted once.

Windows overlap: every one after the first begins `stride` tokens later and counts only what the one before has not
seen. So each token is predicted from at least S − stride tokens before it (the first S excepted), and a smaller stride
costs more and tells more.

Shapes: B rows, S sequence; a row has one token more, the successor of the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from routelaw.errors import InputError

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
