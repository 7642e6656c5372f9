"""Which run is next, and what follows from how one went. The same for every backend."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence

from routelaw.errors import DiskFull
from routelaw.runs.store import Store, StoredRun
from routelaw.sweeps.progress import Event, Lost, RunEnded, RunFailed, Waiting
from routelaw.sweeps.task import BUSY, ENDED, FULL, LOST, STOPPED, Outcome, Task, record_failure

MOST_DEATHS = 3
"""Times that a run may take its process down without a step forward in between."""
ASK_AGAIN = 1.0
"""Seconds until a run that another process holds is tried again."""


class Schedule:
    """Tasks in order; those that others hold come back later."""

    def __init__(self, tasks: Sequence[Task], store: Store) -> None:
        self._store = store
        self._ready = deque(tasks)
        self._later: deque[tuple[float, Task]] = deque()
        self._out: dict[str, Task] = {}
        self._waiting: set[str] = set()
        """Runs that were said to be held by another process."""
        self._deaths: dict[str, tuple[int, int]] = {}
        """Run -> (deaths since it last moved, step it had reached)."""

    @property
    def over(self) -> bool:
        return not (self._ready or self._later or self._out)

    @property
    def unstarted(self) -> int:
        """Tasks that a worker could be given, now or later."""
        return len(self._ready) + len(self._later)

    def next_task(self) -> Task | None:
        """The next one that may be tried now."""
        if self._later and self._later[0][0] <= time.monotonic():
            self._ready.append(self._later.popleft()[1])
        if not self._ready:
            return None
        task = self._ready.popleft()
        self._out[task.run_id] = task
        return task

    def settle(self, outcome: Outcome) -> Iterator[Event]:
        """A full disk is everyone's: it ends the sweep."""
        if outcome.kind == LOST:
            yield from self.settle_death(outcome.run_id, outcome.reason)
            return
        task = self._out.pop(outcome.run_id)
        if outcome.kind == ENDED:
            yield RunEnded(outcome.run_id)
        elif outcome.kind == FULL:
            raise DiskFull(f"{outcome.reason} The sweep has stopped; the same command continues it.")
        elif outcome.kind in (BUSY, STOPPED):  # stopped of itself: another host has taken over
            self._later.append((time.monotonic() + ASK_AGAIN, task))
            if outcome.kind == BUSY and outcome.run_id not in self._waiting:
                self._waiting.add(outcome.run_id)
                yield Waiting(outcome.run_id, outcome.reason)
        else:
            yield RunFailed(outcome.run_id, outcome.reason)

    def settle_death(self, run_id: str, cause: str) -> Iterator[Event]:
        """A lost process is no fault of the run's until it happens again and again."""
        task = self._out.pop(run_id)
        step = self._step(run_id)
        deaths, before = self._deaths.get(run_id, (0, -1))
        deaths = 1 if step > before else deaths + 1
        self._deaths[run_id] = deaths, step
        if deaths >= MOST_DEATHS:
            reason = f"{cause}, {deaths} times without a step forward"
            for _, folder in self._store.attempts(run_id)[-1:]:
                record_failure(folder, reason)
            yield RunFailed(run_id, reason)
        else:
            self._ready.appendleft(task)
            yield Lost(run_id, cause)

    def _step(self, run_id: str) -> int:
        attempts = self._store.attempts(run_id)
        return int(StoredRun(run_id, attempts[-1][1]).last_logged().get("step", 0)) if attempts else 0
