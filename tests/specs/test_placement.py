"""Where routed blocks stand."""

import pytest

from routelaw.errors import InputError
from routelaw.specs.counting import canonical_placement, routed_positions


@pytest.mark.parametrize(
    ("blocks", "frequency", "placement", "expected"),
    [
        (8, 0.5, "even", (2, 4, 6, 8)),
        (12, 0.25, "even", (4, 8, 12)),
        (6, 1.0, "even", (1, 2, 3, 4, 5, 6)),
        (24, 1 / 24, "even", (23,)),
        (1, 1.0, "even", (1,)),
        (2, 0.5, "even", (1,)),
        (8, 1 / 8, "interior", (4,)),
        (12, 0.25, "interior", (3, 6, 9)),
        (4, 1.0, "interior", (1, 2, 3, 4)),
        (8, 0.5, "5,2", (2, 5)),
        (8, 0.5, "8", (8,)),
    ],
)
def test_positions(blocks: int, frequency: float, placement: str, expected: tuple[int, ...]) -> None:
    assert routed_positions(blocks, frequency, placement) == expected


@pytest.mark.parametrize("placement", ["even", "interior"])
def test_as_many_as_the_frequency_asks_for_at_any_depth(placement: str) -> None:
    for blocks in range(1, 49):
        for n in range(1, blocks + 1):
            placed = routed_positions(blocks, n / blocks, placement)
            assert len(placed) == len(set(placed)) == n
            assert 1 <= placed[0] <= placed[-1] <= blocks


@pytest.mark.parametrize(("one", "two"), [("4, 2", "2,4"), (" Even ", "even"), ("07", "7")])
def test_one_spelling(one: str, two: str) -> None:
    assert canonical_placement(one) == canonical_placement(two) == two


@pytest.mark.parametrize(
    ("frequency", "placement", "sentence"),
    [
        (0.5, "odd", "placement is even, interior, or block numbers such as '2,4,5', not 'odd'"),
        (0.5, "", "placement is even"),
        (0.5, "2,2", "distinct blocks between 1 and 8"),
        (0.5, "0,2", "distinct blocks between 1 and 8"),
        (0.5, "9", "distinct blocks between 1 and 8"),
        (0.01, "even", "routes none of the 8 blocks"),
        (0.01, "interior", "routes none of the 8 blocks"),
        (1.5, "even", "at most 1"),
    ],
)
def test_impossible_ones(frequency: float, placement: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        routed_positions(8, frequency, placement)
