"""A limit of time that holds in the midst of work, and that leaves what was found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from routelaw.bench.table import Row, row


def test_work_ends_in_its_midst(script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    found, begun = [], time.monotonic()
    with script("budget").bounded(0.05):
        found.append("first")
        try:
            time.sleep(30)
        except Exception:
            pytest.fail("whoever catches errors to go on must not catch this")
        found.append("second")
    assert found == ["first"]
    assert time.monotonic() - begun < 29
    assert "stopped: nothing more is measured" in capsys.readouterr().out


def test_rows_are_kept_when_the_process_is_asked_to_stop(
    script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> Iterator[Row]:
        yield row("first", {"ms": 1.0})
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)
        yield row("second", {"ms": 2.0})

    begun = time.monotonic()
    assert [found.name for found in script("budget").kept(rows())] == ["first"]
    assert time.monotonic() - begun < 29
    assert "first: ms 1" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_raised_in_a_destructor_is_raised_again(
    script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script("budget"), "AGAIN", 0.05)

    class Thing:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)

    begun = time.monotonic()
    with script("budget").bounded():
        Thing()
        time.sleep(30)
    assert time.monotonic() - begun < 29


def test_a_process_that_no_signal_reaches_says_where_it_is(benchmarks: Path) -> None:
    held_up = """
import signal, time, budget
budget.LATE = 0.5
with budget.bounded(0.1):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(60)
"""
    ended = subprocess.run(
        [sys.executable, "-c", held_up], cwd=benchmarks, capture_output=True, text=True, timeout=55, check=False
    )
    assert ended.returncode == 1
    assert "line 6 in <module>" in ended.stderr


def test_nothing_is_left_behind(script: Callable[[str], ModuleType]) -> None:
    before = signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM)
    with script("budget").bounded(100):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert (signal.getsignal(signal.SIGALRM), signal.getsignal(signal.SIGTERM)) == before


def test_another_error_is_not_hidden(script: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ZeroDivisionError), script("budget").bounded(100):
        1 / 0  # noqa: B018
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
