"""What this machine offers to a sweep: how many runs at a time, on which devices, with how many threads each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from routelaw.errors import InputError
from routelaw.specs.run import ExecutionSpec


@dataclass(frozen=True)
class Machine:
    devices: tuple[str, ...]
    """One entry per run at a time: cpu, or cuda:0, cuda:1, … in turn."""
    threads: int
    """CPU threads of each run."""

    @classmethod
    def here(cls, executions: Sequence[ExecutionSpec], jobs: int | None) -> Machine:
        """One run per GPU, or per core, unless told otherwise; cores are shared out evenly."""
        if jobs is not None and jobs < 1:
            raise InputError(f"--jobs must be at least 1, not {jobs}.")
        gpus, cores = _gpus(executions), len(os.sched_getaffinity(0))
        threads = max((execution.threads for execution in executions), default=0)
        jobs = jobs or len(gpus) or max(1, cores // max(threads, 1))
        devices = tuple((gpus or ["cpu"])[job % max(len(gpus), 1)] for job in range(jobs))
        return cls(devices, threads or max(1, cores // jobs))

    @classmethod
    def on_cluster(cls, executions: Sequence[ExecutionSpec], cpus: float, gpus: float) -> Machine:
        """A run's share of some node. It goes to a GPU if it was given one, and must not hope for one otherwise."""
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
