from itertools import pairwise

import pytest

from routelaw.errors import InputError
from routelaw.specs.counting import Architecture, dense_params
from routelaw.specs.sizes import (
    MINIATURE_SIZES,
    NAMED_SIZES,
    PAPER_SIZES,
    fine_ladder,
    get_size,
    size_label,
)

PRINTED = {
    "15M": 16_527_360,
    "25M": 27_279_360,
    "55M": 57_369_600,
    "130M": 132_163_584,
    "370M": 368_123_904,
    "870M": 872_546_304,
    "1.3B": 1_308_819_456,
}


@pytest.mark.parametrize(("name", "parameters"), PRINTED.items())
def test_counts_of_the_papers_table(name: str, parameters: int) -> None:
    assert dense_params(get_size(name)) == parameters


def test_the_seven_billion_model() -> None:
    assert dense_params(get_size("7b")) == 6_979_846_144


def test_names_ignore_case_and_space() -> None:
    assert get_size(" 1.3b ") == PAPER_SIZES["1.3B"]


def test_unknown_size_names_the_nearest_and_all() -> None:
    with pytest.raises(InputError, match=r"Unknown size '371M' \(did you mean '370M'\?\)") as caught:
        get_size("371M")
    assert all(name in str(caught.value) for name in NAMED_SIZES)


def test_an_architecture_is_positive() -> None:
    with pytest.raises(InputError, match="heads must be at least 1"):
        Architecture(d_model=512, blocks=6, heads=0, kv_size=64)


def test_ladder_is_fine_sorted_and_proportioned() -> None:
    ladder = fine_ladder(10e6, 20e9)
    counts = [dense_params(rung) for rung in ladder.values()]
    assert counts == sorted(counts)
    assert counts[0] < 13e6
    assert counts[-1] > 19e9
    steps = [above / below for below, above in pairwise(counts)]
    assert max(steps) < 1.37
    assert max(step for step, count in zip(steps, counts, strict=False) if count > 200e6) < 1.13
    for rung in ladder.values():
        assert rung.d_model % 64 == 0
        assert rung.heads * rung.kv_size == rung.d_model
        assert rung.blocks % 2 == 0
        assert 50 < rung.d_model / rung.blocks < 220


def test_ladder_reaches_beyond_the_named_sizes() -> None:
    largest = list(fine_ladder(1e6, 1e15).values())[-1]
    assert dense_params(largest) > 10 * dense_params(PAPER_SIZES["7B"])


def test_rungs_keep_their_name_in_any_range_and_are_found_by_it() -> None:
    narrow, wide = fine_ladder(150e6, 300e6), fine_ladder(1e6, 1e10)
    assert narrow.items() <= wide.items()
    for name, rung in narrow.items():
        assert get_size(name) == rung
        assert size_label(dense_params(rung)) == name


def test_no_rung_borrows_a_name() -> None:
    assert not fine_ladder(1, 1e12).keys() & NAMED_SIZES.keys()


def test_ladder_refuses_an_empty_range() -> None:
    with pytest.raises(InputError, match="lowest"):
        fine_ladder(2e8, 1e8)


@pytest.mark.parametrize(
    ("parameters", "label"),
    [(368_123_904, "370M"), (16_527_360, "15M"), (205_123_456, "205M"), (999_700, "1M"), (1.0e9, "1B"), (850, "850")],
)
def test_labels(parameters: float, label: str) -> None:
    assert size_label(parameters) == label


MINIATURE = {
    "0.05M": 53_760,
    "0.12M": 120_576,
    "0.2M": 214_016,
    "0.5M": 480_768,
    "0.8M": 854_016,
    "2M": 1_920_000,
    "3M": 3_411_968,
    "5M": 5_117_952,
    "8M": 7_994_880,
    "12M": 11_510_784,
    "20M": 20_887_552,
}


def test_miniature_sizes_are_named_after_their_count_and_found_by_it() -> None:
    assert MINIATURE.keys() == MINIATURE_SIZES.keys()
    assert not MINIATURE_SIZES.keys() & PAPER_SIZES.keys()
    for name, parameters in MINIATURE.items():
        assert dense_params(get_size(name.lower())) == parameters
        assert abs(float(name[:-1]) * 1e6 / parameters - 1) < 0.13
        assert size_label(parameters) == name
    assert len({dense_params(architecture) for architecture in NAMED_SIZES.values()}) == len(NAMED_SIZES)


def test_miniature_sizes_have_the_papers_proportions() -> None:
    assert list(MINIATURE.values()) == sorted(MINIATURE.values())
    for architecture in MINIATURE_SIZES.values():
        assert architecture.heads * architecture.kv_size == architecture.d_model
        assert architecture.blocks % 2 == 0
        assert architecture.d_model % 8 == 0  # the value network of rl-r is d/8 wide
        assert architecture.kv_size in (16, 32, 64)


def test_a_misspelt_miniature_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean '0.8M'\?"):
        get_size("08M")
