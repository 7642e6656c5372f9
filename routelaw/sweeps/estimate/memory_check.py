"""What memory there is for each of a sweep's runs, and a sentence for a run that does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from routelaw.costs.memory import CUDA_BUILD_FLOOR, CUDA_CONTEXT, CUDA_HOST_FLOOR, PROCESS_FLOOR, Footprint
from routelaw.formatting import byte_size

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
UNLIMITED = 2**60


@dataclass(frozen=True)
class AvailableMemory:
    """Bytes for one run; None where it could not be found out."""

    device: int | None
    """Bytes of a GPU, shared among the runs on it."""
    host: int | None
    """Bytes of the machine's memory, shared among all its runs."""


@dataclass(frozen=True)
class RequiredMemory:
    """Bytes of one run's process."""

    device: int
    """On its GPU, CUDA's own included; 0 where there is none."""
    host: int


def required_memory(memory: Footprint, gpu: bool, shared: bool, floor: int = PROCESS_FLOOR) -> RequiredMemory:
    """`floor` is what a process on a CPU takes anyway.

    On a GPU, the host holds the model in float32 as it is built, and two copies of the optimiser's statistics when they
    are saved (from the GPU, and as bytes). Where a process has a GPU to itself, torch gives holes back before it fails;
    other processes would not get them.
    """
    if not gpu:
        return RequiredMemory(0, memory.with_slack + floor)
    on_device = memory.with_slack if shared else memory.total
    return RequiredMemory(on_device + CUDA_CONTEXT, CUDA_HOST_FLOOR + _on_host(memory))


def _on_host(memory: Footprint) -> int:
    return max(memory.built, 2 * (memory.masters + memory.optimizer))


def floor_here() -> int:
    """By the torch that is installed."""
    try:
        import torch
    except ImportError:
        return PROCESS_FLOOR
    return CUDA_BUILD_FLOOR if torch.version.cuda else PROCESS_FLOOR


def fits(required: RequiredMemory, available: AvailableMemory) -> bool:
    on_device = available.device is None or required.device <= available.device
    return on_device and (available.host is None or required.host <= available.host)


def available_memory(gpu: bool, jobs: int, devices: int) -> AvailableMemory:
    """What is free now, divided among the runs that will share it."""
    host = host_memory()
    of_host = None if host is None else host // jobs
    if not gpu:
        return AvailableMemory(None, of_host)
    import torch

    free = min(torch.cuda.mem_get_info(number)[0] for number in range(devices))
    return AvailableMemory(free // -(-jobs // devices), of_host)


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


def memory_error(
    name: str, memory: Footprint, required: RequiredMemory, available: AvailableMemory, *, jobs: int, experts: int
) -> str | None:
    """A sentence that names the run, what it needs and for what, what there is, and what would help."""
    if fits(required, available):
        return None
    on_device = available.device is not None and required.device > available.device
    wanted, there = (required.device, available.device) if on_device else (required.host, available.host)
    assert there is not None
    shared = f" for each of {jobs} runs at a time" if jobs > 1 else ""
    helps = ["fewer experts"] if experts > 1 else []
    helps += ["fewer --jobs"] if jobs > 1 else []
    if memory.activations + memory.logits > memory.gradients and (on_device or not required.device):
        helps.append("more execution.micro_batches")
    return (
        f"{name} needs {byte_size(wanted)} of {'the GPU' if on_device else 'this machine'}'s memory "
        f"({_parts(memory, required, on_device)}), and there is {byte_size(there)}{shared}: "
        f"take {' or '.join(helps or ['a smaller model'])}."
    )


def _parts(memory: Footprint, required: RequiredMemory, on_device: bool) -> str:
    """What comes and goes is not all there at once, so that the parts may add up to more than the whole."""
    if required.device and not on_device:
        saved = _on_host(memory)
        named = {"model and optimiser on their way to disk": saved, "the process itself": required.host - saved}
    else:
        named = {
            "parameters": memory.parameters + memory.masters,
            "optimiser": memory.optimizer,
            "gradients": memory.gradients,
            "activations": memory.activations,
            "logits": memory.logits,
            "evaluation": memory.evaluation,
            "the process itself": CUDA_CONTEXT if on_device else required.host - memory.with_slack,
        }
    return ", ".join(f"{name} {byte_size(size)}" for name, size in sorted(named.items(), key=lambda part: -part[1]))
