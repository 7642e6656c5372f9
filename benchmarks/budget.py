"""A limit of time that holds: whatever a benchmark is doing then, even compiling, it stops and keeps its figures."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

AGAIN = 5.0
"""Seconds until another interruption, should the first be lost: what is raised in a destructor is."""


class OutOfTime(BaseException):
    """No Exception, which benchmarks catch to go on with their next contestant."""


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """What is inside ends after so many seconds; what comes after it goes on. Of the main thread."""

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    except OutOfTime:
        print(f"stopped after {seconds:g} s: nothing more is measured", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
