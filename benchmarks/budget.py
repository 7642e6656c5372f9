"""A limit of time that holds: whatever a benchmark is doing then, even compiling, it stops and keeps its figures.

One thing holds it up: a backward pass on a GPU runs, and is compiled, in a thread that the main one awaits without
looking at signals. It ends by itself, unless the signal went to the compiler's processes too, as `timeout` sends it:
say `timeout --foreground`.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
AGAIN = 5.0
"""Seconds until another interruption, should the first be lost: what is raised in a destructor is."""
LATE = 60.0
"""Seconds beyond a limit after which the process says where it is held up, and is no more."""


class Stopped(BaseException):
    """No Exception, which benchmarks catch to go on with their next candidate."""


@contextmanager
def bounded(seconds: float | None = None) -> Iterator[None]:
    """What is inside ends after so many seconds, or when the process is asked to (SIGTERM); what comes after it goes
    on. Of the main thread."""

    def stop(*_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, AGAIN, AGAIN)
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGTERM)}
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        faulthandler.dump_traceback_later(seconds + LATE, exit=True, file=sys.__stderr__)
    try:
        yield
    except Stopped:
        print("stopped: nothing more is measured", flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            signal.signal(number, handler)


def kept(rows: Iterable[T], seconds: float | None = None) -> list[T]:
    """All of them, printed as they come; those that there are, when time is up or the process is asked to stop."""
    found: list[T] = []
    with bounded(seconds):
        for row in rows:
            print(row, flush=True)
            found.append(row)
    return found
