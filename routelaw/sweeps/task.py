"""One run of a sweep as a process carries it out: claim it, train it, publish it; and how that went.

Which run is next, and what follows from how one went, is the same for every backend (`Schedule`).
"""

from __future__ import annotations

import errno
import json
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any

from routelaw.corpus.shards import Corpus, open_corpus
from routelaw.distributed.launch import Launch, launch
from routelaw.distributed.ranks import BROKEN, DISK_FULL, WRONG_INPUT
from routelaw.errors import DiskFull, InputError
from routelaw.files import open_to_append, write_atomically
from routelaw.routers.router import load_router
from routelaw.runs.claims import AlreadyEnded, Busy, claimed
from routelaw.runs.folders import RESULT
from routelaw.runs.locks import this_host
from routelaw.runs.store import FAILURE, OUTPUT, Store, StoredRun
from routelaw.specs.files import from_mapping, from_stored, to_mapping
from routelaw.specs.layout import Layout
from routelaw.specs.run import ExecutionSpec, RunSpec
from routelaw.sweeps.progress import Event, Lost, RunEnded, RunFailed, Waiting
from routelaw.sweeps.sweep import PlannedRun
from routelaw.training.run import Result, run
from routelaw.training.state import RUNNING

ENDED, BUSY, STOPPED, FAILED, FULL, LOST = "ended", "busy", "stopped", "failed", "full", "lost"


ONE_RANK = "one-rank"
"""Argument of a worker that is one of the processes of a run, and ends with it."""


@dataclass(frozen=True)
class Task:
    """What a worker must know, in plain values: it travels as JSON."""

    run_id: str
    store: str
    spec: Mapping[str, Any]
    execution: Mapping[str, Any]
    corpus: str
    others: Mapping[str, str] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()

    @property
    def world(self) -> int:
        """Processes it takes."""
        return Layout(*(self.execution.get(name, 1) for name in ("data", "expert", "tensor"))).world

    @classmethod
    def of(cls, planned: PlannedRun, execution: ExecutionSpec, store: Store, plugins: tuple[Path, ...]) -> Task:
        return cls(
            planned.spec.run_id,
            str(store.path.resolve()),
            to_mapping(planned.spec),
            asdict(execution),
            str(planned.corpus.resolve()),
            {name: str(path.resolve()) for name, path in planned.others.items()},
            tuple(str(plugin.resolve()) for plugin in plugins),
        )


@dataclass(frozen=True)
class Outcome:
    run_id: str
    kind: str
    """ended: it has a result, of this process or of another. busy: another process is at it. stopped: as it was told.
    failed: with a reason. full: the disk is. lost: one of its processes died or hung, which may not be its fault."""
    reason: str = ""


def carry_out(task: Task, stop: Callable[[], bool] = lambda: False, launcher: Launch = launch) -> Outcome:
    """Train the run from wherever the store has it. Whatever goes wrong is an outcome. `launcher` starts the processes
    of a run that takes several."""
    store = Store(task.store)
    try:
        with claimed(store, task.run_id) as attempt:
            return _trained(task, attempt.folder, lambda: stop() or attempt.lost.is_set(), attempt.publish, launcher)
    except AlreadyEnded:
        return Outcome(task.run_id, ENDED)
    except Busy as busy:
        return Outcome(task.run_id, BUSY, str(busy))
    except (InputError, OSError) as error:
        if store.ended(task.run_id):  # by another host, which then took this attempt's folder away
            return Outcome(task.run_id, ENDED)
        return Outcome(task.run_id, FULL if _is_full(error) else FAILED, reason_of(error))


def _trained(
    task: Task, folder: Path, stop: Callable[[], bool], publish: Callable[[], Any], launcher: Launch
) -> Outcome:
    (folder / FAILURE).unlink(missing_ok=True)
    with open_to_append(folder / OUTPUT) as output:
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} on {this_host()}", file=output)
        try:
            if task.world > 1:
                if (problem := _by_several(task, folder, stop, output, launcher)) is not None:
                    return problem
                ended = (folder / RESULT).exists()
            else:
                ended = train(task, folder, stop, lambda sentence: print(sentence, file=output)).status != RUNNING
        except (Exception, SystemExit) as error:  # a plugin's router may exit
            if _is_full(error):
                raise
            if not folder.is_dir():
                raise InputError(reason_of(error)) from None
            print(traceback.format_exc(), file=output)
            record_failure(folder, reason_of(error))
            return Outcome(task.run_id, FAILED, reason_of(error))
    if not ended:
        return Outcome(task.run_id, STOPPED)
    publish()
    return Outcome(task.run_id, ENDED)


def train(task: Task, folder: Path, stop: Callable[[], bool], notice: Callable[[str], None]) -> Result:
    """In this process: the whole run, or its part of one that several train."""
    spec, execution = _specs(task)
    corpus, *others = (_corpus(path) for path in (task.corpus, *task.others.values()))
    named = dict(zip(task.others, others, strict=True))
    return run(spec, execution, corpus, folder, others=named, notice=notice, stop=stop)


def _by_several(
    task: Task, folder: Path, stop: Callable[[], bool], output: IO[str], launcher: Launch
) -> Outcome | None:
    """In as many processes as its layout has; what went wrong, if anything did."""
    stdin = json.dumps({"task": asdict(task), "folder": str(folder)})
    command = [sys.executable, "-m", "routelaw.sweeps.worker", ONE_RANK]
    threads = int(task.execution.get("threads", 0))
    ended = launcher(command, task.world, stdin=stdin, keep_stderr=True, threads=threads, stop=stop)
    output.write(ended.stderr)
    if ended.well:
        return None
    if ended.code == DISK_FULL:
        raise DiskFull(f"{ended.reason}.")
    if ended.code in (WRONG_INPUT, BROKEN):
        raise InputError(f"{ended.reason}.")
    return Outcome(task.run_id, LOST, ended.reason)


def record_failure(folder: Path, reason: str) -> None:
    content = {"reason": reason, "when": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}", "host": this_host()}
    write_atomically(json.dumps(content).encode(), folder / FAILURE, force=True)


def _is_full(error: BaseException) -> bool:
    return isinstance(error, DiskFull) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def reason_of(error: BaseException) -> str:
    """An InputError's sentence, or kind and first line of any other."""
    if isinstance(error, InputError):
        return str(error)
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _specs(task: Task) -> tuple[RunSpec, ExecutionSpec]:
    for plugin in task.plugins:
        load_router(Path(plugin))  # anew for every run: a worker of Ray's may outlive an edit
    return from_stored(task.spec, task.run_id), from_mapping(ExecutionSpec, task.execution, task.run_id)


@cache
def _corpus(path: str) -> Corpus:
    return open_corpus(path, verify=True)


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
