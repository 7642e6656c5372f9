import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelaw.errors import InputError
from routelaw.evaluation.texts import batched, strided_windows

FILL = -1


@given(
    sizes=st.lists(st.integers(0, 23), min_size=1, max_size=12),
    length=st.integers(1, 17),
    stride=st.integers(1, 17),
)
def test_each_token_counts_once_and_with_enough_before_it(sizes: list[int], length: int, stride: int) -> None:
    stride = min(stride, length)
    tokens = np.arange(sum(sizes))
    pieces = np.split(tokens, np.cumsum(sizes)[:-1])
    counted: list[int] = []
    for number, (row, mask) in enumerate(strided_windows(pieces, length, stride, FILL)):
        assert row.shape == (length + 1,)
        real = row[row != FILL]
        assert real.tolist() == list(range(number * stride, number * stride + len(real)))
        assert (row[len(real) :] == FILL).all()
        wanted = np.flatnonzero(mask)
        assert (row[wanted + 1] != FILL).all()
        if number:
            assert wanted.min() >= length - stride
        counted += row[wanted + 1].tolist()
    assert counted == tokens[1:].tolist()


def test_no_overlap_is_plain_chunks() -> None:
    rows = list(strided_windows([np.arange(9)], 4, 4, FILL))
    assert [row.tolist() for row, _ in rows] == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]
    assert all(mask.all() for _, mask in rows)


def test_batches_hold_the_same_rows() -> None:
    rows = list(strided_windows([np.arange(5000)], 1024, 300, FILL))
    stacked = list(batched(rows, 1024))
    assert [len(tokens) for tokens, _ in stacked] == [8, len(rows) - 8]
    assert np.array_equal(np.concatenate([tokens for tokens, _ in stacked]), np.stack([row for row, _ in rows]))


@pytest.mark.parametrize("stride", [0, -1, 5])
def test_a_stride_beyond_the_sequence_is_refused(stride: int) -> None:
    with pytest.raises(InputError, match="between 1 and the sequence length 4"):
        list(strided_windows([np.arange(9)], 4, stride, FILL))
