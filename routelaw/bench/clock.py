"""How the benchmarks take time: candidates in turn; on a GPU device events and their median, on a CPU the least.

A CPU is shared with whatever else runs, which only ever adds to a time: the least of the rounds is the least disturbed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from routelaw.bench.results import Environment, Row, row
from routelaw.training.device import release as give_back

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
DTYPE = torch.bfloat16 if CUDA else torch.float32
PRECISION = str(DTYPE).removeprefix("torch.")
LEAST_ROUNDS = 3 if CUDA else 5
SAMPLE_MS = 25.0
"""What a sample on a GPU should take."""
COPIED = 2**30 if CUDA else 2**28
"""Bytes of the copy that gives the bandwidth: far more than any cache holds."""
ALL = "everything"
"""The candidate that is named when none could begin."""
Work = Callable[[], Any]


@dataclass(frozen=True)
class Timings:
    """Milliseconds of those that ran, and why the others did not."""

    ms: dict[str, float]
    failures: dict[str, str]
    spread: dict[str, float]
    """Spread of the rounds: the largest less the least, over what is taken for typical."""

    def ratio(self, over: str, under: str) -> float:
        """nan where one of them is missing."""
        return self.ms.get(over, float("nan")) / self.ms.get(under, float("nan"))


def here() -> Environment:
    device = torch.cuda.get_device_name() if CUDA else f"CPU ({torch.get_num_threads()} threads)"
    return Environment(device, str(torch.__version__), datetime.now(UTC).date().isoformat())


def time_interleaved(
    candidates: Mapping[str, Work], rounds: int = 10, budget_s: float = 2.0, way: Callable[[Work], Work] | None = None
) -> Timings:
    """The time of each, measured in turn so that whatever disturbs the machine disturbs all alike.

    A candidate that fails is out, with its reason, and the others go on. `way` (`recorded`) makes of each what runs.
    """
    able, calls, failures = {}, {}, {}
    for name, work in candidates.items():
        try:
            work()
            wait()
            work = work if way is None else way(work)
            calls[name] = max(1, int(SAMPLE_MS / max(_milliseconds(work), 1e-3))) if CUDA else 1
            able[name] = work
        except Exception as error:
            failures[name] = reason(error)
    if failures:
        torch._dynamo.reset()
        for work in able.values():
            work()
    taken: dict[str, list[float]] = {name: [] for name in able}
    begun = time.perf_counter()
    for done in range(rounds):
        if done >= LEAST_ROUNDS and time.perf_counter() - begun > budget_s:
            break
        # Back and forth: each comes after every other of its neighbours, whose memory it finds in the cache.
        for name, work in list(able.items())[:: 1 if done % 2 == 0 else -1]:
            taken[name].append(_milliseconds(work, calls[name]))
    typical = statistics.median if CUDA else min
    ms = {name: typical(times) for name, times in taken.items()}
    spread = {name: (max(times) - min(times)) / ms[name] for name, times in taken.items()}
    return Timings(ms, failures, spread)


def recorded(work: Work) -> Work:
    """As a CUDA graph, the way steps of small models run: what a processor needs to launch its kernels is left out."""
    if not CUDA:
        return work
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        work()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return lambda held=work: graph.replay()  # what it reads and writes lives as long as the graph


def attempt(name: str, measure: Callable[[], Row]) -> Row:
    """The row, or one that says why there is none (too large for this device, say); what it held is given back."""
    try:
        return measure()
    except Exception as error:
        return row(name, {}, {ALL: reason(error)})
    finally:
        release()


def release() -> None:
    """Memory that nobody refers to, and what was compiled: the compiler counts variants of a function, and gives up."""
    torch._dynamo.reset()
    give_back()


def reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _milliseconds(work: Work, calls: int = 1) -> float:
    """Milliseconds of one call. On a GPU several follow each other, so that the host is ahead of it, as in training."""
    if not CUDA:
        begun = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - begun)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def bandwidth(size: int = COPIED) -> float:
    """Bytes per second that a copy reads and writes."""
    source = torch.zeros(size, dtype=torch.uint8, device=DEVICE)
    target = torch.ones_like(source)
    return 2 * size / (time_interleaved({"copy": lambda: target.copy_(source)}).ms["copy"] / 1e3)


def peak_mib(work: Work) -> float:
    """The most that a call allocates beyond what is there; nan where nobody counts."""
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


def both_ways(function: Callable[[], Tensor], leaves: list[Tensor], against: Tensor) -> Work:
    """Forward and backward to the leaves; one that takes no part is allowed."""
    return lambda: torch.autograd.grad(function(), leaves, against, allow_unused=True)
