"""The work of one core: a chunk of text in, its tokens out. Stateless, so the number of workers changes nothing."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from pathlib import Path

import numpy as np

from routelaw.corpus.fragments import Chunk, decode, document_hash
from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError

FEW_CHUNKS = 4
"""A corpus of no more than this is encoded here: starting processes would take longer."""


@dataclass(frozen=True)
class Encoded:
    """Tokens of a chunk, an end-of-text after each document, and per fragment: tokens, bytes of text, end, hash."""

    tokens: np.ndarray
    counts: np.ndarray
    sizes: np.ndarray
    ends: np.ndarray
    hashes: np.ndarray


def encode_chunk(tokenizer: Tokenizer, chunk: Chunk, errors: str) -> Encoded:
    end = np.array([tokenizer.end_of_text], tokenizer.dtype).tobytes()
    packed, hashes = [], []
    for fragment in chunk.fragments():
        packed.append(tokenizer.encode_packed(decode(fragment, errors)) + (end if fragment.ends else b""))
        hashes.append(document_hash(fragment.data))
    return Encoded(
        tokens=np.frombuffer(b"".join(packed), tokenizer.dtype),
        counts=np.array([len(p) for p in packed], dtype=np.int64) // tokenizer.dtype.itemsize,
        sizes=chunk.sizes,
        ends=chunk.ends,
        hashes=np.array(hashes, dtype=np.uint64),
    )


def encode_chunks(tokenizer: Tokenizer, chunks: Iterator[Chunk], errors: str, workers: int) -> Iterator[Encoded]:
    """All chunks in order. Reading and unpacking happen here while the workers encode a few chunks ahead."""
    first = list(islice(chunks, FEW_CHUNKS + 1))
    chunks = chain(first, chunks)
    if workers == 1 or len(first) <= FEW_CHUNKS:
        yield from (encode_chunk(tokenizer, chunk, errors) for chunk in chunks)
        return
    # By its path: a process that ends before it has read what it was started with hangs its parent, if that was more
    # than a pipe holds.
    with tempfile.NamedTemporaryFile(suffix=".model") as model:
        model.write(tokenizer.model)
        model.flush()
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (model.name, errors))
        try:
            under_way: deque[Future[Encoded]] = deque()
            for chunk in chunks:
                under_way.append(pool.submit(_work, chunk))
                if len(under_way) > 2 * workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool:
            raise InputError(
                "a process that encodes text ended unexpectedly (out of memory, perhaps, or a script that builds a "
                "corpus outside `if __name__ == '__main__'` or comes from standard input): try --workers 1."
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


_worker: tuple[Tokenizer, str] | None = None


def _start_worker(model: str, errors: str) -> None:
    global _worker
    # Ctrl-C reaches the whole group; the parent alone answers. A parent that was killed takes its workers along.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _worker = (Tokenizer(Path(model).read_bytes()), errors)


def _leave_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


def _work(chunk: Chunk) -> Encoded:
    if _worker is None:
        raise RuntimeError("the worker was not started")
    return encode_chunk(_worker[0], chunk, _worker[1])
