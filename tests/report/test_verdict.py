"""The one rule that says what matches."""

import math

import pytest

from routelaw.report.clark2022.verdict import CLOSE, DIFFERS, MATCHES, PrintedCell, judge, size_text


def test_tolerance_decides_between_close_and_different_and_matches_need_no_excuse():
    assert judge("r", "c", "0.100", 0.1003, tolerance=0.0, note="why").verdict == MATCHES
    assert judge("r", "c", "0.100", 0.1003, tolerance=0.0, note="why").note == ""
    near = judge("r", "c", "0.100", 0.1016, tolerance=0.0016, note="why")
    assert (near.verdict, near.note) == (CLOSE, "why")
    assert judge("r", "c", "0.100", 0.1017, tolerance=0.0016).verdict == DIFFERS


def test_units_are_those_of_the_print():
    cell = judge("r", "c", "3.568", 3.5681e13, scale=1e13)
    assert cell.verdict == MATCHES
    assert cell.difference == pytest.approx(1e9, rel=1e-3)
    assert cell.shown(cell.ours) == "3.5681"


def test_sizes_are_written_as_people_write_them():
    assert size_text(739.5e9) == "739.5B"
    assert size_text(1.42e12) == "1.4T"
    assert size_text(1e46) == "1e46"
    assert PrintedCell("r", "c", math.inf, "ours", scale=1e9).shown(math.inf) == "∞"
