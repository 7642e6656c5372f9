"""Who is to blame when a run of several processes stands still."""

from dataclasses import replace

import pytest

from routelaw.distributed.watchdog import ProcessStatus, hang_report

WAITING = ProcessStatus(10, 31.0, "step 7", "groups.py:40 in all_sum", True, "pid 11 on here")
STUCK = replace(WAITING, at="mine.py:12 in route", waits=False, where="pid 12 on there")


def later(marks: dict[int, ProcessStatus]) -> dict[int, ProcessStatus]:
    """The same, a few signs of life later."""
    return {rank: replace(mark, beats=mark.beats + 3) for rank, mark in marks.items()}


def test_one_without_a_sign_of_life() -> None:
    before = {0: WAITING, 1: replace(WAITING, where="pid 99 on there"), 2: WAITING}
    after = later(before) | {1: before[1]}
    found = hang_report(before, after, 3, 30)
    assert found is not None
    assert found.reporter == 0
    assert "stood still for 31 s (step 7; execution.hang_timeout = 30): process 1 (pid 99 on there) of 3 no longer" in (
        found.sentence
    )


def test_the_silent_do_not_speak_and_may_never_have_spoken() -> None:
    before = {0: WAITING, 1: WAITING}
    found = hang_report(before, later(before) | {0: WAITING}, 3, 30)
    assert found is not None
    assert found.reporter == 1
    assert "process 0 (pid 11 on here), process 2 of 3" in found.sentence


def test_one_that_stands_where_nobody_is_waited_for() -> None:
    before = {0: WAITING, 1: WAITING, 2: STUCK, 3: WAITING}
    found = hang_report(before, later(before), 4, 30)
    assert found is not None
    assert (
        "process 2 of 4 (pid 12 on there) stands at mine.py:12 in route, and the others wait for it" in found.sentence
    )


@pytest.mark.parametrize("waits", [True, False])
def test_on_a_gpu_the_one_that_stands_elsewhere(waits: bool) -> None:
    """There the host waits for its device, so that no stack shows an exchange."""
    usual = replace(WAITING, waits=waits, at="step.py:77 in train_step")
    before = {0: usual, 1: replace(STUCK, waits=waits), 2: usual}
    found = hang_report(before, later(before), 3, 30)
    assert found is not None
    assert "process 1 of 3 (pid 12 on there)" in found.sentence


def test_two_that_stand_apart_are_both_told() -> None:
    """On two GPUs no stack shows who waits for whom."""
    before = {0: replace(WAITING, waits=False), 1: STUCK}
    found = hang_report(before, later(before), 2, 30)
    assert found is not None
    assert "process 0 (pid 11 on here) at groups.py:40 in all_sum; process 1 (pid 12 on there) at mine.py:12" in (
        found.sentence
    )


def test_all_wait_for_each_other() -> None:
    before = dict.fromkeys(range(4), WAITING)
    found = hang_report(before, later(before), 4, 30)
    assert found is not None
    assert "all 4 processes wait for each other at groups.py:40 in all_sum" in found.sentence


def test_while_one_still_moves_nobody_is_to_blame() -> None:
    before = {0: WAITING, 1: replace(STUCK, still=2.0)}
    assert hang_report(before, later(before), 2, 30) is None
