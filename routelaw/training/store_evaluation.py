"""Evaluate every finished run of a store on other texts, in one process or several, as often as it is asked for.

What a run has been measured on already, the same text in the same way at the same checkpoint, is not measured again, so
an evaluation that was killed continues. All results of a run are added to its folder at once (`runs/text_results.py`).
Runs that finish later are measured when it is asked for again.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import torch

from routelaw.errors import DiskFull, InputError
from routelaw.evaluation.measure import Trial, as_in_training, hash_named_text, is_last_word, measurement_of
from routelaw.routers.router import load_router
from routelaw.runs.folders import last_evaluation
from routelaw.runs.store import DIVERGED, Store, StoredRun
from routelaw.runs.text_results import (
    LOSS,
    TEXT_HASH,
    TRAINING,
    WINDOWS,
    Measurement,
    read_results,
    trained_measurement,
)
from routelaw.training.trained import Run


@dataclass(frozen=True)
class Texts:
    """Texts by name, and how they are read and measured."""

    paths: Mapping[str, Path]
    stride: int | None = None
    limit: int | None = None
    documents: str | None = None
    key: str = "text"
    errors: str = "strict"

    @property
    def reading(self) -> dict[str, Any]:
        return {"limit": self.limit, "documents": self.documents, "key": self.key, "errors": self.errors}

    @cached_property
    def hashes(self) -> dict[str, str]:
        """By name. All of every text is read for it, so a text that cannot be read is an error here."""
        return {name: hash_named_text(name, path, **self.reading) for name, path in self.paths.items()}

    def measurement(self, name: str, sequence_length: int) -> Measurement:
        windows = as_in_training(name, self.paths[name], self.stride, self.limit)
        return measurement_of(name, self.hashes[name], self.stride, sequence_length, trained_windows=windows)


@dataclass(frozen=True)
class Task:
    """One run, and what is still to be measured on it."""

    run_id: str
    folder: Path
    step: int
    """At which the run finished."""
    names: tuple[str, ...]
    texts: Texts
    device: str = "auto"


@dataclass(frozen=True)
class Evaluated:
    task: Task
    trials: tuple[Trial, ...] = ()
    problem: str = ""
    """Why the run could not be evaluated: a sentence."""
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class StoreEvaluation:
    """What is to be done in a store."""

    tasks: tuple[Task, ...]
    there: int
    """Results that are there already, those of training included."""
    finished: int
    skipped: tuple[str, ...] = ()
    """How many runs are not evaluated, and why, in sentences."""
    damaged: Mapping[str, str] = field(default_factory=dict)
    """Why these runs cannot be evaluated, a sentence by run."""


def plan_evaluation(store: Store, texts: Texts, *, device: str = "auto", replace: bool = False) -> StoreEvaluation:
    """Read the texts, look at the runs, and refuse what would mix two measurements under one name.

    With `replace` runs that were measured otherwise under a name are measured anew.
    """
    finished, skipped, damaged = _finished(store)
    _ = texts.hashes
    tasks, there = [], 0
    for run in finished:
        step, length = run.result.get("step", 0), run.spec.model.sequence_length
        have = {name: r.measurement for (name, at), r in read_results(run.folder).items() if at == step}
        wanted = {name: texts.measurement(name, length) for name in texts.paths}
        trained = _trained(run, step)
        names = tuple(name for name in wanted if wanted[name] not in (have.get(name), trained.get(name)))
        there += len(wanted) - len(names)
        for name in names:
            if name in trained:
                _refuse_beside_training(run, name, trained[name], wanted[name], replace)
            if (earlier := have.get(name)) and not replace:
                _refuse_mixing(run, name, earlier, wanted[name])
        if names:
            tasks.append(Task(run.run_id, run.folder, step, names, texts, device))
    return StoreEvaluation(tuple(tasks), there, len(finished), skipped, damaged)


def _finished(store: Store) -> tuple[list[StoredRun], tuple[str, ...], dict[str, str]]:
    """The runs that can be evaluated, and why others are not."""
    finished, skipped, damaged = [], [], {}
    unfinished = diverged = 0
    for run in store.runs():
        try:
            if not run.ended:
                unfinished += 1
            elif run.status == DIVERGED:
                diverged += 1
            else:
                _ = run.spec
                finished.append(run)
        except InputError as error:
            damaged[run.run_id] = str(error)
    if unfinished:
        skipped.append(f"{_runs(unfinished)} not finished yet: left for later.")
    if diverged:
        skipped.append(f"{_runs(diverged)} not evaluated, for training diverged.")
    if not finished:
        why = " ".join([*skipped, *damaged.values()])
        raise InputError(
            f"{store.path} is not the folder of a run, nor a store with a finished run{why and ': '}{why or '.'}"
        )
    return finished, tuple(skipped), damaged


def _runs(count: int) -> str:
    return f"{count} run{'s are' if count > 1 else ' is'}"


def _trained(run: StoredRun, step: int) -> dict[str, Measurement]:
    """What training measured at the end, by name."""
    row = last_evaluation(run.folder)
    if row.get("step") != step:
        return {}
    names = [column.removeprefix(LOSS) for column in row if column.startswith(LOSS)]
    return {name: trained_measurement(row.get(TEXT_HASH + name)) for name in names}


def _refuse_mixing(run: StoredRun, name: str, have: Measurement, wanted: Measurement) -> None:
    """One name is one measurement, in all runs of a store."""
    raise InputError(
        f"{LOSS}{name} of run {run.run_id} was measured with another {_difference(have, wanted)}: choose another name, "
        "or measure all runs anew with --replace."
    )


def _refuse_beside_training(run: StoredRun, name: str, have: Measurement, wanted: Measurement, replace: bool) -> None:
    """What training recorded stays, so nothing else is measured under its name."""
    start = f"{LOSS}{name} of run {run.run_id} was measured while it was trained (--evaluate-on)"
    if have != TRAINING:
        what = f"with another {_difference(have, wanted)}: choose another name, such as {name}_all."
        raise InputError(f"{start}, {what}")
    if wanted.metric != WINDOWS or not replace:
        advice = f"choose another name, such as {name}_all"
        if wanted.metric == WINDOWS:
            advice += ", or measure all runs anew with --replace"
        raise InputError(f"{start}, by a version that did not say on what text: {advice}.")


def _difference(have: Measurement, wanted: Measurement) -> str:
    pairs = zip(("metric", "text or excerpt", "stride"), have, wanted, strict=True)
    return " and ".join(part for part, one, other in pairs if one != other)


def evaluate_store(
    plan: StoreEvaluation, *, jobs: int = 1, threads: int = 0, plugins: Sequence[Path] = ()
) -> Iterator[Evaluated]:
    """Each run as it is done. A run that cannot be evaluated says why, and the others go on."""
    for file in plugins:
        load_router(file)  # here, too, where what is wrong with one can be said
    if jobs == 1 or len(plan.tasks) < 2:
        if threads:
            torch.set_num_threads(threads)
        yield from map(evaluate_run, plan.tasks)
        return
    jobs = min(jobs, len(plan.tasks))
    each = threads or max(1, len(os.sched_getaffinity(0)) // jobs)
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start_worker, (each, tuple(plugins)))
    try:
        for future in as_completed([pool.submit(evaluate_run, task) for task in plan.tasks]):
            yield future.result()
    except BrokenProcessPool:
        raise InputError(
            "a process that evaluates ended unexpectedly (out of memory, perhaps: take fewer --jobs); what it had "
            "measured is kept, and the same command continues."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def evaluate_run(task: Task) -> Evaluated:
    """Measure what is asked for and add it to the run's folder, all of it or nothing."""
    notices: list[str] = []
    try:
        run = Run(task.folder, task.device, notice=notices.append)
        if run.trained.step != task.step:
            raise InputError(
                f"{task.folder}: the newest whole checkpoint is of step {run.trained.step}, and the run ended after "
                f"{task.step}."
            )
        trials = tuple(_trial(run, name, task.texts) for name in task.names)
        run.record(trials)
    except DiskFull:
        raise  # it would fail for every run
    except InputError as error:
        return Evaluated(task, problem=str(error), notices=tuple(notices))
    return Evaluated(task, trials, notices=tuple(notices))


def _trial(run: Run, name: str, texts: Texts) -> Trial:
    measurement = texts.measurement(name, run.spec.model.sequence_length)
    stride = None if is_last_word(name) else texts.stride
    trial = run.evaluate(texts.paths[name], name=name, stride=stride, record=False, **texts.reading)
    if trial.measurement != measurement:
        raise InputError(f"{texts.paths[name]} has changed since the evaluation began.")
    return trial


def _start_worker(threads: int, plugins: Sequence[Path]) -> None:
    # Ctrl-C reaches the whole group; the parent alone answers. A parent that was killed takes its workers along.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    for file in plugins:
        load_router(file)


def _leave_with_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)
