"""What this machine offers to a sweep: how many runs at a time, on which devices, with how many threads each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from routelaw.errors import InputError
from routelaw.specs.run import ExecutionSpec

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
        world = max((execution.layout.world for execution in executions), default=1)
        gpus, cores = _in_lots(_gpus(executions), world), len(os.sched_getaffinity(0))
        threads = max((execution.threads for execution in executions), default=0)
        jobs = jobs or len(gpus) or max(1, cores // (max(threads, 1) * world))
        if world > 1 and gpus and jobs > len(gpus):
            raise InputError(f"runs of {world} processes do not share GPUs: at most {len(gpus)} --jobs here.")
        devices = tuple((gpus or ["cpu"])[job % max(len(gpus), 1)] for job in range(jobs))
        return cls(devices, threads or max(1, cores // (jobs * world)))

    @classmethod
    def on_cluster(cls, executions: Sequence[ExecutionSpec], cpus: float, gpus: float) -> Machine:
        """A run's share of some node. It goes to a GPU if it was given one, and must not hope for one otherwise."""
        world = max((execution.layout.world for execution in executions), default=1)
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
