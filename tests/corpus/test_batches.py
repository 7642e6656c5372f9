import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routelaw.corpus import Corpus, Split, batch, sequences, validation_windows, windows
from routelaw.corpus.batches import draw, permute
from routelaw.corpus.manifest import FileRecord, Manifest
from routelaw.corpus.shards import Tokens
from routelaw.errors import InputError


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 3000), st.text(max_size=5))
def test_permutations_are(n: int, key: str) -> None:
    assert np.array_equal(np.sort(permute(np.arange(n), n, key)), np.arange(n))


def test_permutations_scatter() -> None:
    """Over many keys every place is as likely for a thing, and neighbours part: chi-square within 5 sigma."""
    n, keys = 11, 4000
    images = np.array([permute(np.arange(n), n, str(key)) for key in range(keys)])
    table = np.array([np.bincount(images[:, i], minlength=n) for i in range(n)])
    chi_square = ((table - keys / n) ** 2 / (keys / n)).sum()
    freedom = (n - 1) ** 2
    assert abs(chi_square - freedom) < 5 * (2 * freedom) ** 0.5
    steps = np.diff(permute(np.arange(1000), 100_000_000, "k"))
    assert abs(np.corrcoef(steps[:-1], steps[1:])[0, 1] + 0.5) < 0.15
    assert {draw(3, str(k)) for k in range(50)} == {0, 1, 2}


def test_large_numbers() -> None:
    far = np.array([0, 2**40, 2**45 - 2])
    images = permute(far, 2**45 - 1, "key")
    assert len(set(images.tolist())) == 3
    assert images.max() < 2**45


def positions(n: int) -> Corpus:
    """A corpus whose tokens are their own positions."""
    tokens = Tokens([np.arange(n, dtype=np.uint32)])
    split = Split("train", 1, n, tokens, np.array([[n, n]]), np.ones(n, np.int64))
    return Corpus(Path("positions"), Manifest(n, 1, FileRecord("", 0, ""), {}, 0.0, ""), {"train": split})


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 200), st.integers(0, 2**40), st.integers(0, 9))
def test_an_epoch_visits_every_window_once(n: int, length: int, seed: int, epoch: int) -> None:
    """The sequences of an epoch lie side by side on the ring: all but n mod S positions are an input exactly once."""
    length = min(n, length)
    corpus = positions(n)
    count = windows(corpus, length)
    rows = sequences(corpus, "train", seed, np.arange(epoch * count, (epoch + 1) * count), length)
    assert np.array_equal(np.diff(rows, axis=1) % n, np.ones((count, length)) % n)
    assert np.unique(rows[:, :-1]).size == rows[:, :-1].size == n - n % length
    starts = (rows[:, 0] - rows[:, 0].min()) % n
    assert n % length or (starts % length == 0).all()


def test_batches_partition_an_epoch(corpus: Corpus) -> None:
    n, length, size = 12_000, 100, 8
    assert n // length % size == 0
    made = [batch(positions(n), "train", 7, step, size, length) for step in range(n // length // size)]
    assert np.array_equal(np.sort(np.concatenate(made)[:, :-1].ravel()), np.arange(n))
    assert windows(corpus, length) == len(corpus.train.tokens) // length


def test_shape_targets_and_order(corpus: Corpus) -> None:
    four = batch(corpus, "train", 0, 3, 4, 32)
    assert four.shape == (4, 33)
    assert four.dtype == np.int64
    assert np.array_equal(np.concatenate([batch(corpus, "train", 0, s, 2, 32) for s in (6, 7)]), four)
    assert not np.array_equal(four, batch(corpus, "train", 1, 3, 4, 32))
    epoch = windows(corpus, 32)
    assert not np.array_equal(
        sequences(corpus, "train", 0, np.arange(5), 32), sequences(corpus, "train", 0, np.arange(5) + epoch, 32)
    )


def test_any_process_makes_the_same(corpus: Corpus) -> None:
    program = (
        "import sys, hashlib; from routelaw.corpus import batch, open_corpus\n"
        "made = batch(open_corpus(sys.argv[1]), 'train', 5, 123_456, 3, 50)\n"
        "print(hashlib.sha256(made.tobytes()).hexdigest(), 'torch' in sys.modules, 'sentencepiece' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, corpus.path], capture_output=True, text=True, check=True)
    here = batch(corpus, "train", 5, 123_456, 3, 50)
    assert done.stdout.split() == [hashlib.sha256(here.tobytes()).hexdigest(), "False", "False"]


def test_validation_windows_are_fixed_and_apart(corpus: Corpus) -> None:
    made = list(validation_windows(corpus, 16, 4))
    rows = np.concatenate(made)
    n = len(corpus.validation.tokens)
    assert all(len(b) == 4 for b in made[:-1])
    assert len(rows) == (n - 1) // 16
    assert np.array_equal(rows[:, :-1].ravel(), corpus.validation.tokens.read(0, len(rows) * 16))
    assert np.array_equal(rows[:-1, -1], rows[1:, 0])
    some = np.concatenate(list(validation_windows(corpus, 16, 4, tokens=100)))
    assert len(some) == 6
    assert len({row.tobytes() for row in some} & {row.tobytes() for row in rows}) == 6
    assert np.array_equal(some[0], rows[0])
    assert len(next(validation_windows(corpus, 16, 4, tokens=1))) == 1


def test_too_little_text_is_one_sentence(corpus: Corpus) -> None:
    n = len(corpus.train.tokens)
    with pytest.raises(InputError, match="fewer than the 8 of a batch: give more text, or shorten"):
        batch(corpus, "train", 0, 0, 8, n // 7)
    assert batch(corpus, "train", 0, 0, 7, n // 7).shape == (7, n // 7 + 1)
    with pytest.raises(InputError, match="fewer than one sequence"):
        sequences(corpus, "train", 0, np.arange(1), n + 1)
    with pytest.raises(InputError, match="build with a larger --validation"):
        validation_windows(corpus, n, 1)
    with pytest.raises(InputError, match="at least one token"):
        batch(corpus, "train", 0, 0, 1, 0)
    with pytest.raises(InputError, match="step is not negative"):
        batch(corpus, "train", 0, -1, 1, 8)
