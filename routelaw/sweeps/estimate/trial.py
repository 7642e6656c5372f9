"""A few real steps of a run, timed the way a sweep would take them.

Trials are done by as many processes at once as the sweep will have workers, each with a worker's device and threads:
runs that share a GPU, or the memory of a machine, slow each other down, and only measuring shows by how much. All of
them step while any of them is being timed.

    python -m routelaw.sweeps.estimate.trial

reads a task, builds it, says ready, waits for its cue, says the figures, and goes on stepping until the next task.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routelaw.child_process import ChildProcess
from routelaw.errors import InputError, ended_by
from routelaw.sweeps.estimate.time_estimator import TRIAL, StepTime
from routelaw.sweeps.local import worker_environment

if TYPE_CHECKING:
    from routelaw.model.transformer import Transformer
    from routelaw.sweeps.local import Machine
    from routelaw.sweeps.task import Task
    from routelaw.training.step import StepInfo


WARM_UP = 5
"""Steps before the clock starts: the first fill memory and caches; a GPU's kernels are loaded, compiled, recorded."""
LEAST_STEPS, LEAST_SECONDS, MOST_LOOKS = 3, 2.0, 40
AHEAD = 10
"""Steps between looks at a device that the host need not wait for, at most: a run looks for rows of its log."""
EVALUATION_TOKENS = 16_384
ENDLESS = 10**9
READY, GO = "ready", "go"


class Timer(ChildProcess):
    """A process that times one run after another, and keeps its device as busy as a worker would in between."""

    def __init__(self, device: str, threads: int) -> None:
        command, environment = [sys.executable, "-m", __name__], worker_environment(device, threads)
        # A session of its own, as a worker has: kernels share cores out by session.
        super().__init__(command, environment, stdout=subprocess.PIPE, start_new_session=True)

    def hear(self) -> str:
        assert self.stdout is not None
        if line := self.stdout.readline():
            return line.strip()
        self.wait()
        last = self.stderr.strip().rpartition("\n")[2]
        code = self.code or 0
        why = ended_by(code) if code < 0 else last or f"code {code}"
        raise InputError(f"trial steps failed ({why}); estimate without them.")


def time_tasks(tasks: Sequence[Task], machine: Machine, notice: Callable[[int], None]) -> list[StepTime]:
    """The pace of each task. The last round is filled up with tasks timed before, so that the load is always full."""
    if not tasks:
        return []
    timers = [Timer(device, machine.threads) for device in machine.devices]
    paces: list[StepTime] = []
    try:
        for first in range(0, len(tasks), len(timers)):
            given = [tasks[number % len(tasks)] for number in range(first, first + len(timers))]
            for timer, task in zip(timers, given, strict=True):
                timer.send(json.dumps(asdict(task)) + "\n")
            for timer in timers:
                timer.hear()
            for timer in timers:
                timer.send(f"{GO}\n")
            paces += [StepTime(**json.loads(timer.hear())) for timer in timers]
            notice(min(len(paces), len(tasks)))
    finally:
        for timer in timers:
            timer.close()
    return paces[: len(tasks)]


def main() -> None:
    import selectors

    from routelaw.errors import InputError as Refused

    try:
        with selectors.DefaultSelector() as incoming:
            incoming.register(sys.stdin, selectors.EVENT_READ)
            line = sys.stdin.readline()
            while line:
                for _ in _trial(json.loads(line)):
                    if incoming.select(timeout=0):
                        break
                line = sys.stdin.readline()
    except Refused as error:
        sys.exit(str(error))


def _trial(task: dict[str, Any]) -> Iterator[None]:
    """Builds, warms up, waits for its cue, reports, and then goes on stepping as long as it is asked to."""
    from routelaw.corpus.manifest import VALIDATION
    from routelaw.corpus.shards import open_corpus
    from routelaw.routers.router import load_router
    from routelaw.specs.files import from_mapping, from_stored
    from routelaw.specs.run import ExecutionSpec
    from routelaw.training.compiling import resolve_compile_mode
    from routelaw.training.device import prepare, release, resolve_device, resolve_precision, settings
    from routelaw.training.loop import train_steps
    from routelaw.training.run import evaluate
    from routelaw.training.state import TrainState

    for plugin in task["plugins"]:
        load_router(Path(plugin))
    spec, execution = from_stored(task["spec"], "trial"), from_mapping(ExecutionSpec, task["execution"], "trial")
    spec = replace(spec, train=replace(spec.train, steps=ENDLESS))
    corpus = open_corpus(task["corpus"])
    device = resolve_device(execution.device)
    dtype = resolve_precision(execution.precision, device)
    prepare(device, dtype, lambda _: None)
    _wake(device.type)
    way = resolve_compile_mode(spec, execution, device, dtype)

    def begin() -> tuple[Transformer, Iterator[StepInfo], float]:
        """The model, its steps after the first ones, and the seconds until then."""
        begun = time.perf_counter()
        state = TrainState.start(spec, corpus, device, dtype, execution, way)
        every = min(AHEAD, execution.log_every) if state.optimizer.skips_on_device else 1
        steps = train_steps(
            state.model,
            state.optimizer,
            corpus,
            spec,
            micro_batches=execution.micro_batches,
            device=device,
            look=lambda step: step == WARM_UP or step % every == 0,
            graphed=way == "step",
        )
        while next(steps).step < WARM_UP:
            pass
        return state.model, steps, time.perf_counter() - begun

    with settings(execution, device):
        model, steps, before = begin()
        if way != "off":  # a sweep's runs find compiled what this one had to compile
            del model, steps
            release()
            model, steps, before = begin()
        print(READY, flush=True)
        sys.stdin.readline()
        step = _seconds_a_step(steps)
        if device.type != "cpu":
            evaluate(model, {VALIDATION: corpus}, EVALUATION_TOKENS, device)  # loads kernels
        begun = time.perf_counter()
        measured = evaluate(model, {VALIDATION: corpus}, EVALUATION_TOKENS, device)[VALIDATION]
        token = (time.perf_counter() - begun) / measured.tokens
        print(json.dumps(asdict(StepTime(step, token, max(0.0, before - WARM_UP * step), TRIAL))), flush=True)
        for _ in steps:
            yield


def _seconds_a_step(steps: Iterator[StepInfo]) -> float:
    """The mean: a step that waits for another process is part of the truth. A look ends by fetching the loss."""
    begun = time.perf_counter()
    for looks, info in enumerate(steps, 1):
        seconds, taken = time.perf_counter() - begun, info.step - WARM_UP
        if looks == MOST_LOOKS or (taken >= LEAST_STEPS and seconds >= LEAST_SECONDS):
            return seconds / taken
    raise AssertionError


@cache
def _wake(kind: str) -> None:
    """What a process does once is not a run's: AdamW's imports, and a GPU's start."""
    import torch
    import torch._dynamo

    _ = torch.ones(8, 8, device=kind) @ torch.ones(8, 8, device=kind)


if __name__ == "__main__":
    main()
