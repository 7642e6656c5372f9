"""What happens in a sweep, as whoever iterates over it sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """Nothing in particular: a moment to look at the store."""


@dataclass(frozen=True)
class Started:
    run_id: str


@dataclass(frozen=True)
class RunEnded:
    """It has a result: finished or diverged."""

    run_id: str


@dataclass(frozen=True)
class RunFailed:
    run_id: str
    reason: str


@dataclass(frozen=True)
class Lost:
    """A worker or node was lost, and its run goes on elsewhere from its last checkpoint."""

    run_id: str
    reason: str


@dataclass(frozen=True)
class Waiting:
    """Another process, of another sweep or host, is at work on the run; said once, and asked again every second."""

    run_id: str
    holder: str


Event = Tick | Started | RunEnded | RunFailed | Lost | Waiting
