"""How far a sweep is, read from the store: the same whoever trains, here, on a cluster, or in another terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from routelaw.runs.store import Store, StoredRun
from routelaw.specs.run import RunSpec


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


@dataclass(frozen=True)
class RunProgress:
    run_id: str
    spec: RunSpec
    step: int
    loss: float | None
    tokens_per_second: float
    dropped: float | None
    """Share of assignments dropped, over the routed layers; None for a dense model."""
    seconds_left: float | None


@dataclass(frozen=True)
class SweepProgress:
    runs: int
    ended: int
    share: float
    """Share of the work, in FLOPs, that is done."""
    seconds_left: float | None
    running: tuple[RunProgress, ...]
    event: Event = field(default_factory=Tick)
    """What happened last: a run started, ended, failed; or nothing but time, a `Tick`."""


class Watch:
    """Looks at the store now and then. What was there when it began does not count for the pace."""

    def __init__(self, store: Store, specs: Sequence[RunSpec]) -> None:
        self._store = store
        self._specs = {spec.run_id: spec for spec in specs}
        self._work = {run_id: work(spec) for run_id, spec in self._specs.items()}
        self._ended: set[str] = set()
        self._begun = time.monotonic()
        self._before = self._work_done(self._look())

    def now(self) -> SweepProgress:
        running = self._look()
        done, total = self._work_done(running), sum(self._work.values())
        elapsed, gained = time.monotonic() - self._begun, done - self._before
        left = elapsed * (total - done) / gained if gained > 0 else None
        return SweepProgress(len(self._specs), len(self._ended), done / total if total else 1.0, left, tuple(running))

    def _look(self) -> list[RunProgress]:
        """Ended runs are never looked at again; of the others, the last row of the log."""
        found = []
        for run_id, spec in self._specs.items():
            if run_id in self._ended:
                continue
            if self._store.ended(run_id):
                self._ended.add(run_id)
            elif attempts := self._store.attempts(run_id):
                found.append(progress_of(run_id, spec, StoredRun(run_id, attempts[-1][1]).last_logged()))
        return found

    def _work_done(self, running: Sequence[RunProgress]) -> float:
        ended = sum(self._work[run_id] for run_id in self._ended)
        return ended + sum(self._work[row.run_id] * row.step / row.spec.train.steps for row in running)


def progress_of(run_id: str, spec: RunSpec, row: dict[str, Any]) -> RunProgress:
    step, pace = int(row.get("step", 0)), float(row.get("tokens_per_second") or 0.0)
    layers = row.get("layers") or []
    dropped = sum(layer["dropped"] for layer in layers) / len(layers) if layers else None
    left = spec.tokens_after(spec.train.steps - step)
    return RunProgress(run_id, spec, step, row.get("loss"), pace, dropped, left / pace if pace else None)


def work(spec: RunSpec) -> float:
    """Forward FLOPs of a whole run: what the parts of a sweep are weighed by."""
    return float(spec.counts.flops_per_token) * spec.tokens_after(spec.train.steps)
