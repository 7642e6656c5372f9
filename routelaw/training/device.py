"""Where a run happens: device, precision, threads, determinism. Nothing here changes what the run means."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

from routelaw.errors import InputError
from routelaw.kernels.cpu_bfloat16 import make_safe
from routelaw.specs.run import ExecutionSpec

MOST_THREADS = 1024
"""Most threads of one process; torch itself ends without a word where the system has no more to give."""
TYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def resolve_device(name: str) -> torch.device:
    """auto: a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and name.partition(":")[0] != "cuda":
        raise InputError(f"--device is auto, cpu or cuda, not {name!r}.")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"device {name} was asked for and no GPU can be used here.")
    return torch.device(name)


def resolve_precision(name: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 on a GPU, float32 on a CPU."""
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" else "float32"
    if name not in TYPES:
        raise InputError(f"precision is auto, {', '.join(TYPES)}, not {name!r}.")
    return TYPES[name]


def prepare(device: torch.device, dtype: torch.dtype, notice: Callable[[str], None]) -> None:
    """Before anything is computed there: bfloat16 on a CPU may need its library limited."""
    if device.type == "cpu" and dtype == torch.bfloat16:
        make_safe(notice)


def device_name(device: torch.device) -> str:
    """What the time of a run is to be read with: the GPU, or the CPU and its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def release() -> None:
    """Memory that nobody refers to any more: compiled blocks refer to themselves, and a GPU's is kept for this process
    alone."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)  # see keep_freed_memory
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@cache
def keep_freed_memory() -> None:
    """Have the C library keep what a step frees for the next one.

    By default it returns large blocks to the system and asks for them again at every step. The system hands out pages
    one by one, cleared: on two cores that was a fifth of the time of a model of 3M, and more than half of the time of
    the weight gradients of many experts. Only glibc has this switch, and only Linux on a CPU needs it.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    no_mapping, trim_above, never = -4, -1, 2**31 - 1  # M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h
    libc.mallopt(no_mapping, 0)
    libc.mallopt(trim_above, never)


@contextmanager
def settings(execution: ExecutionSpec, device: torch.device) -> Iterator[None]:
    """As many threads as the run was given and, on a CPU, deterministic algorithms; as before afterwards."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # pyrefly: ignore
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if execution.threads < 0:
        raise InputError(f"threads must be 0 (torch's choice) or more, not {execution.threads}.")
    if execution.threads:
        torch.set_num_threads(execution.threads)
    if device.type == "cpu":
        keep_freed_memory()
    if device.type == "cuda" and device.index is not None:  # without a number it is the current one
        torch.cuda.set_device(device)  # streams, graphs and kernels of our own are the current device's
    torch.use_deterministic_algorithms(device.type == "cpu")
    # Deterministic mode would also write to every new tensor, for programs that read what they never wrote.
    torch.utils.deterministic.fill_uninitialized_memory = False  # pyrefly: ignore
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # pyrefly: ignore
