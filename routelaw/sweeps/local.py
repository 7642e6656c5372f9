"""A sweep on this machine: worker processes over its cores or GPUs.

The parent hands out tasks and sees workers come and go; what the runs are doing it reads from the store, like anyone
else. A worker that dies takes nothing with it: its run goes back to the queue and continues from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from routelaw.child_process import ChildProcess
from routelaw.errors import InputError
from routelaw.files import open_to_append
from routelaw.runs.store import OUTPUT, Store
from routelaw.specs.run import ExecutionSpec
from routelaw.sweeps.progress import Event, Started, Tick
from routelaw.sweeps.task import Outcome, Schedule, Task

MOST_JOBS = 1024


def check_jobs(jobs: int | None) -> None:
    if jobs is not None and not 1 <= jobs <= MOST_JOBS:
        raise InputError(f"--jobs must lie between 1 and {MOST_JOBS}, not {jobs}.")


@dataclass(frozen=True)
class Machine:
    devices: tuple[str, ...]
    """One entry per run at a time: cpu, or cuda:0, cuda:1, … in turn; cuda:0,1 where a run takes two."""
    threads: int
    """CPU threads of each of a run's processes."""

    @classmethod
    def here(cls, executions: Sequence[ExecutionSpec], jobs: int | None) -> Machine:
        """One process per GPU, or per core, unless told otherwise; cores are shared out evenly. Where runs take several
        processes, each has room for the largest."""
        check_jobs(jobs)
        world = max((execution.processes.world for execution in executions), default=1)
        gpus, cores = _in_lots(_gpus(executions), world), len(os.sched_getaffinity(0))
        threads = max((execution.threads for execution in executions), default=0)
        jobs = jobs or len(gpus) or max(1, cores // (max(threads, 1) * world))
        if world > 1 and gpus and jobs > len(gpus):
            raise InputError(f"runs of {world} processes do not share GPUs: at most {len(gpus)} --jobs here.")
        devices = tuple((gpus or ["cpu"])[job % max(len(gpus), 1)] for job in range(jobs))
        return cls(devices, threads or max(1, cores // (jobs * world)))

    @classmethod
    def elsewhere(cls, jobs: int | None) -> Machine:
        """So many runs at a time on devices that are not here, one unless told otherwise: for an estimate."""
        check_jobs(jobs)
        return cls(tuple(f"cuda:{number}" for number in range(jobs or 1)), 1)

    @classmethod
    def on_cluster(cls, executions: Sequence[ExecutionSpec], cpus: float, gpus: float) -> Machine:
        """A run's share of some node. It goes to a GPU if it was given one, and must not hope for one otherwise."""
        world = max((execution.processes.world for execution in executions), default=1)
        if world > 1 and gpus % 1:
            raise InputError(f"processes of one run do not share a GPU: --gpus-per-run is whole, not {gpus:g}.")
        if not gpus and any(execution.device.startswith("cuda") for execution in executions):
            raise InputError("the sweep asks for a GPU: say how much of one a run needs, with --gpus-per-run.")
        return cls(("cuda" if gpus else "cpu",), max(1, int(cpus)))

    @property
    def jobs(self) -> int:
        return len(self.devices)

    @property
    def device(self) -> str:
        """cpu or cuda: a worker sees its own GPU alone."""
        return self.devices[0].partition(":")[0]

    def execution(self, asked: ExecutionSpec) -> ExecutionSpec:
        """As a worker carries it out. Threads are fixed: sums of different splits differ in the last bit."""
        return replace(asked, device=self.device, threads=asked.threads or self.threads)


def _in_lots(gpus: list[str], world: int) -> list[str]:
    """cuda:0,1 and cuda:2,3 of four where a run takes two."""
    if world == 1 or not gpus:
        return gpus
    numbers = [gpu.partition(":")[2] for gpu in gpus]
    lots = [numbers[first : first + world] for first in range(0, len(gpus) - world + 1, world)]
    if not lots:
        raise InputError(f"a run of {world} processes needs as many GPUs, and this machine has {len(gpus)}.")
    return [f"cuda:{','.join(lot)}" for lot in lots]


def _gpus(executions: Sequence[ExecutionSpec]) -> list[str]:
    import torch

    kinds = {execution.device.partition(":")[0] for execution in executions} - {"auto"}
    if len(kinds) > 1:
        raise InputError(f"the runs of a sweep go to one kind of device, not to {' and '.join(sorted(kinds))}.")
    if kinds == {"cpu"} or (not kinds and not torch.cuda.is_available()):
        return []
    if not torch.cuda.is_available():
        raise InputError("the sweep asks for a GPU and none can be used here.")
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


TICK = 0.5
GRACE = 30.0
"""Seconds a worker has for its last checkpoint when it is told to stop."""


class Worker(ChildProcess):
    """A process that carries out tasks, and the one it was given."""

    def __init__(self, device: str, threads: int, heard: queue.Queue[Worker]) -> None:
        self.device = device
        self.task: Task | None = None
        self.outcome: Outcome | None = None
        """How its task ended, once it has reported that."""
        self._heard = heard
        command = [sys.executable, "-m", "routelaw.sweeps.worker"]
        environment = worker_environment(device, threads)
        # A session of its own: Ctrl-C is the parent's to pass on.
        super().__init__(command, environment, stdout=subprocess.PIPE, start_new_session=True)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def give(self, task: Task) -> None:
        self.task, self.outcome = task, None
        self.send(json.dumps(asdict(task)) + "\n")

    def _listen(self) -> None:
        assert self.stdout is not None
        for line in self.stdout:
            self.outcome = Outcome(**json.loads(line))
            self._heard.put(self)
        self.wait()
        self._heard.put(self)

    def close(self, deadline: float = 0.0) -> None:
        self.end(deadline)
        self._listener.join()  # it reads what the pipe still holds
        super().close()


def run_local(tasks: Sequence[Task], store: Store, *, devices: Sequence[str], threads: int) -> Iterator[Event]:
    """Carry out the tasks, one worker per entry of `devices`; events as they happen, and a tick every half second.

    Stop iterating to stop the sweep: the workers then leave checkpoints and end.
    """
    schedule = Schedule(tasks, store)
    heard: queue.Queue[Worker] = queue.Queue()
    workers: list[Worker] = []
    try:
        while not schedule.over:
            wanted = schedule.unstarted + sum(worker.task is not None for worker in workers)
            hired = _free(devices, workers)[: max(0, wanted - len(workers))]
            workers += [Worker(device, threads, heard) for device in hired]
            for worker in workers:
                if worker.task is None and (task := schedule.next_task()):
                    worker.give(task)
                    yield Started(task.run_id)
            try:
                worker = heard.get(timeout=TICK)
            except queue.Empty:
                yield Tick()
                continue
            yield from _heard_of(worker, schedule, store)
            if worker.code is not None and worker in workers:
                workers.remove(worker)
                worker.close()
    finally:
        _stop(workers)


def _heard_of(worker: Worker, schedule: Schedule, store: Store) -> Iterator[Event]:
    task = worker.task
    if task is None:
        return
    if worker.outcome is not None:
        worker.task = None
        yield from schedule.settle(worker.outcome)
    elif worker.code is not None:
        worker.task = None
        attempts = store.attempts(task.run_id)
        if attempts and worker.stderr:
            with suppress(InputError, OSError), open_to_append(attempts[-1][1] / OUTPUT) as output:
                output.write(worker.stderr)
        yield from schedule.settle_death(task.run_id, f"its process {worker.cause}")


def _free(devices: Sequence[str], workers: Sequence[Worker]) -> list[str]:
    left = list(devices)
    for worker in workers:
        left.remove(worker.device)
    return left


def _stop(workers: Sequence[Worker]) -> None:
    """First all are asked, then all are waited for. Idle ones end with their input."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + GRACE
    for worker in workers:
        worker.close(deadline)


def worker_environment(device: str, threads: int) -> dict[str, str]:
    """A GPU worker sees its own GPUs alone; a CPU worker has its share of the cores."""
    known = {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    kind, _, numbers = device.partition(":")
    if kind == "cuda" and numbers:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        own = numbers.split(",")
        known["CUDA_VISIBLE_DEVICES"] = ",".join(visible[int(number)] if visible[0] else number for number in own)
    return known
