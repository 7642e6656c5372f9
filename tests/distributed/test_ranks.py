"""Which of several processes says what went wrong."""

import time

import pytest

from routelaw.distributed import ranks
from routelaw.distributed.ranks import Rank, report_error_once
from routelaw.errors import DiskFull, InputError, LostContact


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


def test_the_environment_says_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert Rank.here() == Rank(0, 1, 0)
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert Rank.here() == Rank(9, 16, 1)


def test_the_first_speaks_at_once(waited: list[float]) -> None:
    with pytest.raises(InputError, match=r"^it is wrong$"), report_error_once(Rank(0, 4)):
        raise InputError("it is wrong")
    assert waited == []


def test_another_gives_the_first_time_and_then_speaks_for_itself(waited: list[float]) -> None:
    with pytest.raises(DiskFull, match=r"^process 2 of 4: no room$"), report_error_once(Rank(2, 4)):
        raise DiskFull("no room")
    assert waited == [ranks.ERROR_GRACE_S]


@pytest.mark.parametrize("number", [0, 3])
def test_who_lost_its_partners_lets_them_be_named_first(waited: list[float], number: int) -> None:
    named = rf"process {number} of 4 lost contact .*closed by peer\)\.$"
    with pytest.raises(LostContact, match=named), report_error_once(Rank(number, 4)):
        raise RuntimeError("[../gloo/transport/tcp/pair.cc:547] Connection closed by peer\nmore")
    assert waited == [ranks.ERROR_GRACE_S]


def test_a_fault_of_its_own_is_not_taken_for_a_lost_partner(waited: list[float]) -> None:
    with pytest.raises(RuntimeError, match="shapes"), report_error_once(Rank(1, 4)):
        raise RuntimeError("shapes do not match")
    with pytest.raises(RuntimeError, match="gloo"), report_error_once(Rank()):
        raise RuntimeError("gloo")
    assert waited == []
