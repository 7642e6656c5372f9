"""Signs of life: how a run of several processes that stands still finds out which of them is to blame.

A thread of every process tells the others, through the store they met at, that it is alive, what it is doing, and where
its code stands. A process that has not moved for the run's hang timeout listens for a moment and judges: one that
gives no sign of life is stopped or cut off; one whose code stands elsewhere than in an exchange with the others is what
they wait for. One of them says so, and all end.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch.distributed as dist

from routelaw.distributed.ranks import ABANDONED, ERROR_GRACE_S, Rank

BEAT = 1.0
"""Seconds between signs of life."""
LISTEN = 4.0
"""Seconds in which a living process gives several."""
EXIT_HANG = 5
"""Exit code of a run that stood still."""


@dataclass(frozen=True)
class ProcessStatus:
    """What a process last said of itself."""

    beats: int
    still: float
    """Seconds since it last moved on."""
    doing: str
    at: str
    """Where its code stands."""
    waits: bool
    """Whether that is in an exchange with the others."""
    where: str
    """Process and host."""


@dataclass(frozen=True)
class HangReport:
    reporter: int
    """The lowest rank that is still alive: it reports."""
    sentence: str


def hang_report(
    before: Mapping[int, ProcessStatus], after: Mapping[int, ProcessStatus], world: int, hang_timeout: float
) -> HangReport | None:
    """Who is to blame, from what all said at two moments; None while somebody still moves."""
    silent = [rank for rank in range(world) if rank not in after or before.get(rank) == after[rank]]
    alive = {rank: status for rank, status in after.items() if rank not in silent}
    if not alive or (not silent and any(status.still < hang_timeout / 2 for status in alive.values())):
        return None
    reporter = min(alive)
    still = max(status.still for status in alive.values())
    doing = f"{alive[reporter].doing}; execution.hang_timeout = {hang_timeout:g}"
    stood = f"the run has stood still for {still:.0f} s ({doing})"
    if silent:
        where = {rank: f" ({status.where})" for rank, status in after.items()}
        named = ", ".join(f"process {rank}{where.get(rank, '')}" for rank in silent)
        return HangReport(reporter, f"{stood}: {named} of {world} no longer gives a sign of life: stopped, or cut off.")
    places = Counter(status.at for status in alive.values())
    apart = {rank: status for rank, status in alive.items() if not status.waits} or alive
    rare = min(places[status.at] for status in apart.values())
    blamed = {rank: status for rank, status in apart.items() if places[status.at] == rare}
    if len(blamed) == world and len(places) == 1:
        return HangReport(reporter, f"{stood}: all {world} processes wait for each other at {alive[reporter].at}.")
    if len(blamed) == world:
        named = "; ".join(f"process {rank} ({status.where}) at {status.at}" for rank, status in blamed.items())
        return HangReport(reporter, f"{stood}: its {world} processes stand apart: {named}.")
    named = "; ".join(
        f"process {rank} of {world} ({status.where}) stands at {status.at}" for rank, status in blamed.items()
    )
    return HangReport(reporter, f"{stood}: {named}, and the others wait for it.")


class Watchdog:
    """This process's, given by a thread until it is stopped."""

    def __init__(self, rank: Rank, store: dist.Store, hang_timeout: float) -> None:
        self.rank, self.hang_timeout = rank, hang_timeout
        self._store = store
        self._followed = threading.get_ident()
        self._done = threading.Event()
        self._beats, self._doing, self._moved = 0, "starting", time.monotonic()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def moved(self, doing: str) -> None:
        """The run has come further, and does this now."""
        self._doing, self._moved = doing, time.monotonic()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _beat(self) -> None:
        first = True  # at once: a process that is stopped within its first second can then still be named
        while first or not self._done.wait(BEAT):
            first = False
            try:
                self._store.set(_key(self.rank.number), json.dumps(asdict(self._status())))
                if time.monotonic() - self._moved > self.hang_timeout:
                    self._judge()
            except dist.DistError:  # the store is gone, and with it whoever started this process
                if not self._done.wait(ERROR_GRACE_S):
                    os._exit(ABANDONED)

    def _judge(self) -> None:
        before = self._heard()
        for _ in range(round(LISTEN / BEAT)):  # who listens must be heard, too
            if self._done.wait(BEAT):
                return
            self._store.set(_key(self.rank.number), json.dumps(asdict(self._status())))
        found = hang_report(before, self._heard(), self.rank.world, self.hang_timeout)
        if found is None or time.monotonic() - self._moved < self.hang_timeout:
            return
        if found.reporter == self.rank.number:
            sys.stderr.write(f"error: {found.sentence}\n")
            sys.stderr.flush()
        else:
            time.sleep(2 * ERROR_GRACE_S)
        os._exit(EXIT_HANG)

    def _heard(self) -> dict[int, ProcessStatus]:
        known = [rank for rank in range(self.rank.world) if self._store.check([_key(rank)])]
        return {rank: ProcessStatus(**json.loads(self._store.get(_key(rank)))) for rank in known}

    def _status(self) -> ProcessStatus:
        self._beats += 1
        at, waits = _position(self._followed, threading.get_ident())
        where = f"pid {os.getpid()} on {socket.gethostname()}"
        return ProcessStatus(self._beats, time.monotonic() - self._moved, self._doing, at, waits, where)


def _key(rank: int) -> str:
    return f"watchdog/{rank}"


def _position(followed: int, own: int) -> tuple[str, bool]:
    """Where the followed thread stands, and whether it, or one that works for it (backward, on a GPU), is in
    torch.distributed."""
    frames = sys._current_frames()
    frame = frames.get(followed)
    waits = any(_is_in_collective(other) for thread, other in frames.items() if thread != own)
    return ("nowhere" if frame is None else _place_in_words(_innermost_own(frame))), waits


def _is_in_collective(frame: FrameType) -> bool:
    return "torch/distributed/" in frame.f_code.co_filename.replace("\\", "/")


def _innermost_own(frame: FrameType) -> FrameType:
    """The innermost frame that is not torch's: what a reader can look up."""
    own: FrameType | None = frame
    while own is not None and "/torch/" in own.f_code.co_filename.replace("\\", "/"):
        own = own.f_back
    return own or frame


def _place_in_words(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


@contextmanager
def watched(rank: Rank, hang_timeout: float) -> Iterator[Callable[[str], None]]:
    """A function to call whenever the run has come further, with what it does now."""
    if not rank.is_distributed:
        yield lambda doing: None
        return
    store, _, _ = next(dist.rendezvous("env://", timeout=timedelta(seconds=hang_timeout)))
    watchdog = Watchdog(rank, store, hang_timeout)
    try:
        yield watchdog.moved
    finally:
        watchdog.stop()
