"""Documents on their way: cut where no token can lie across, and bundled into work for one core.

A document of any length passes through in fragments of at most `FRAGMENT_BYTES`. Where it is cut depends on its text
alone, neither on the file format nor on how the file was read, so every format of the same text gives the same corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from routelaw.errors import InputError

FRAGMENT_BYTES = 1 << 20
CHUNK_BYTES = 1 << 20


class Fragment(NamedTuple):
    data: bytes
    ends: bool
    """Whether the document ends here."""
    place: tuple[str, int]
    """File (and row), and the byte at which the fragment starts there: for messages."""


@dataclass(frozen=True)
class Chunk:
    """Some consecutive fragments, in columns: cheap to send to another process."""

    data: bytes
    sizes: np.ndarray
    ends: np.ndarray
    places: list[tuple[str, int]]

    def fragments(self) -> Iterator[Fragment]:
        start = 0
        for size, ends, place in zip(self.sizes.tolist(), self.ends.tolist(), self.places, strict=True):
            yield Fragment(self.data[start : start + size], ends, place)
            start += size


def cut(parts: Iterable[Fragment]) -> Iterator[Fragment]:
    """The same documents in fragments of canonical length."""
    buffer, begin = b"", ("", 0)
    for part in parts:
        if buffer:
            buffer += part.data
        else:
            buffer, begin = part.data, part.place
        start = 0
        while len(buffer) - start > FRAGMENT_BYTES:
            end = cut_point(buffer, start, FRAGMENT_BYTES)
            yield Fragment(buffer[start:end], False, (begin[0], begin[1] + start))
            start = end
        if part.ends:
            yield Fragment(buffer[start:], True, (begin[0], begin[1] + start))
            buffer = b""
        elif start:
            buffer, begin = buffer[start:], (begin[0], begin[1] + start)


def cut_point(data: bytes, start: int, limit: int) -> int:
    """The last position within `limit` bytes that no token crosses: after a newline, or else before a space.

    A text without either is cut between two characters; its tokens may then differ there from those of the whole text,
    but decode to the same.
    """
    end = start + limit
    if (at := data.rfind(b"\n", start, end)) >= 0:
        return at + 1
    at = end
    while (at := data.rfind(b" ", start + 1, at)) > 0:
        if data[at - 1] != ord(" "):
            return at
    at = end
    while at > end - 4 and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def bundle(fragments: Iterable[Fragment]) -> Iterator[Chunk]:
    """Chunks of about `CHUNK_BYTES`; documents of nothing but white space are left out."""
    held: list[Fragment] = []
    size, starts = 0, True
    for fragment in fragments:
        blank = starts and fragment.ends and (not fragment.data or fragment.data.isspace())
        starts = fragment.ends
        if blank:
            continue
        held.append(fragment)
        size += len(fragment.data) + 1
        if size >= CHUNK_BYTES:
            yield _chunk(held)
            held, size = [], 0
    if held:
        yield _chunk(held)


def _chunk(held: list[Fragment]) -> Chunk:
    return Chunk(
        data=b"".join(f.data for f in held),
        sizes=np.array([len(f.data) for f in held], dtype=np.int64),
        ends=np.array([f.ends for f in held], dtype=bool),
        places=[f.place for f in held],
    )


def decode(fragment: Fragment, errors: str) -> str:
    """Its text; `errors` is strict, or replace for U+FFFD in place of what is not UTF-8."""
    try:
        return fragment.data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        name, offset = fragment.place
        raise InputError(
            f"{name}: byte {offset + error.start} is not valid UTF-8; convert the file, or pass --errors replace."
        ) from None


def document_hash(start: bytes) -> int:
    """Which split a document falls into follows from this number in [0, 2^64): equal documents stay together.

    It is taken of the first fragment, the whole document unless that is longer than a mebibyte.
    """
    return int.from_bytes(hashlib.blake2b(start, digest_size=8).digest(), "little")
