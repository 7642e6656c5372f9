"""What memory there is for each of a sweep's runs, and a sentence for a run that does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from routelaw.specs.footprint import CUDA_CONTEXT, CUDA_HOST_FLOOR, PROCESS_FLOOR, Footprint

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED = 2**60


@dataclass(frozen=True)
class Room:
    """Bytes for one run; None where it could not be found out."""

    device: int | None
    """Of a GPU, shared among the runs on it."""
    host: int | None
    """Of the machine's memory, shared among all its runs."""


@dataclass(frozen=True)
class Need:
    """Bytes of one run's process."""

    device: int
    """On its GPU, CUDA's own included; 0 where there is none."""
    host: int


def need_of(memory: Footprint, gpu: bool) -> Need:
    """On a GPU, the host holds the model in float32 as it is built, and a copy of the optimiser when that is saved."""
    if not gpu:
        return Need(0, memory.with_slack + PROCESS_FLOOR)
    on_host = max(memory.gradients, memory.masters + memory.optimizer)
    return Need(memory.with_slack + CUDA_CONTEXT, CUDA_HOST_FLOOR + on_host)


def fits(need: Need, room: Room) -> bool:
    on_device = room.device is None or need.device <= room.device
    return on_device and (room.host is None or need.host <= room.host)


def room_here(gpu: bool, jobs: int, devices: int) -> Room:
    """What is free now, divided among the runs that will share it."""
    host = host_memory()
    of_host = None if host is None else host // jobs
    if not gpu:
        return Room(None, of_host)
    import torch

    free = min(torch.cuda.mem_get_info(number)[0] for number in range(devices))
    return Room(free // -(-jobs // devices), of_host)


def host_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Bytes that can still be had: what the kernel has available, or what the process's control groups leave of it."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
    return min([available, *_left_in_groups(proc, cgroups)])


def _left_in_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Limit less use of every group the process is in, up to the root. Pages of files that can be dropped are free."""
    try:
        groups = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            top, limit, used, files = cgroups, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            top, limit, used = cgroups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            files = "total_inactive_file"
        else:
            continue
        here = top / path.lstrip("/")
        for group in (here, *here.parents):
            left = _left_in(group, limit, used, files)
            if left is not None:
                yield left
            if group == top:
                break


def _left_in(group: Path, limit: str, used: str, files: str) -> int | None:
    try:
        most = (group / limit).read_text().strip()
        if most == "max" or int(most) >= UNLIMITED:
            return None
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        in_use = int((group / used).read_text()) - int(statistics.get(files, 0))
        return max(0, int(most) - in_use)
    except (OSError, ValueError):
        return None


def complaint(name: str, memory: Footprint, need: Need, room: Room, *, jobs: int, experts: int) -> str | None:
    """A sentence that names the run, what it needs and for what, what there is, and what would help."""
    if fits(need, room):
        return None
    if room.device is not None and need.device > room.device:
        where, wanted, there = "of the GPU's memory", need.device, room.device
    else:
        assert room.host is not None
        where, wanted, there = "of this machine's memory", need.host, room.host
    shared = f" for each of {jobs} runs at a time" if jobs > 1 else ""
    helps = ["fewer experts"] if experts > 1 else []
    helps += ["fewer --jobs"] if jobs > 1 else []
    if memory.activations + memory.logits > memory.gradients:
        helps.append("more execution.micro_batches")
    helps = helps or ["a smaller model"]
    return (
        f"{name} needs {_gigabytes(wanted)} {where} ({parts(memory)}), and there is {_gigabytes(there)}{shared}: "
        f"take {' or '.join(helps)}."
    )


def parts(memory: Footprint) -> str:
    """Largest first; gradients and activations are not all there at once, so that these may add up to more."""
    named = {
        "parameters": memory.parameters + memory.masters,
        "optimiser": memory.optimizer,
        "gradients": memory.gradients,
        "activations": memory.activations,
        "logits": memory.logits,
    }
    ordered = sorted(named.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {_gigabytes(size)}" for name, size in ordered)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
