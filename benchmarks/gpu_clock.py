"""How the GPU benchmarks take time: device events, contestants in turn, the median. On a CPU, a clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPE = torch.bfloat16 if CUDA else torch.float32
Work = Callable[[], Any]


def device_words() -> str:
    name = torch.cuda.get_device_name() if CUDA else "CPU"
    return f"{name}, torch {torch.__version__}"


def medians(contestants: Mapping[str, Work], rounds: int = 10, budget_s: float = 2.0) -> dict[str, float]:
    """Milliseconds of each, measured in turn so that whatever disturbs the machine disturbs all alike.

    A contestant that fails is nan: its reason is printed, and the others go on.
    """
    able: dict[str, Work] = {}
    for name, work in contestants.items():
        try:
            for _ in range(2):
                work()
            _wait()
            able[name] = work
        except Exception as error:
            print(f"  {name} failed: {type(error).__name__}: {str(error).strip().splitlines()[0][:160]}", flush=True)
            torch._dynamo.reset()
    taken: dict[str, list[float]] = {name: [] for name in able}
    begun = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - begun > budget_s:
            break
        for name, work in able.items():
            taken[name].append(_milliseconds(work))
    return {name: statistics.median(taken[name]) if name in able else float("nan") for name in contestants}


def _milliseconds(work: Work) -> float:
    if not CUDA:
        begun = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - begun)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def _wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def peak_mib(work: Work) -> float:
    """Of what a call allocates beyond what is there."""
    if not CUDA:
        return float("nan")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def normal(*shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = DTYPE) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, device=DEVICE)).to(dtype)


def rounded(value: float) -> float:
    return float(f"{value:.4g}")
