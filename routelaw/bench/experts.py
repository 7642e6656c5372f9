"""What experts cost: a routed layer, forward and backward, against their number E.

The products are those of a dense FFW whatever E is; what grows is the weights. The floor is the time in which their
bytes move at the bandwidth of a copy measured in the same run: every weight is read forwards, read backwards, and its
gradient written. Where the floor passes the dense layer's time, no kernel makes experts free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from routelaw.bench.clock import COPIED, CUDA, DTYPE, PRECISION, attempt, bandwidth, recorded, time_interleaved
from routelaw.bench.layer import DENSE, Problem
from routelaw.bench.results import Description, Row, row

PASSES = 3
"""Over the weights: read, read again, and the gradient written."""
OURS, FLOOR = "routed (ms)", "floor (ms)"


@dataclass(frozen=True)
class Options:
    width: int = 1024
    experts: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    tokens: int = 32_768
    copied: int = COPIED
    """Bytes copied to measure the bandwidth."""
    compile: bool = CUDA


FULL = Options()
ON_CPU = Options(width=128, experts=(1, 2, 4, 8, 16, 32, 64, 128, 256), tokens=2048)
QUICK = Options(width=32, experts=(1, 4), tokens=256, copied=2**24)


def weight_bytes(width: int, experts: int) -> int:
    """Bytes of two matrices d × 4d for each expert."""
    return experts * 8 * width * width * DTYPE.itemsize


def rows(options: Options) -> Iterator[Row]:
    bytes_per_s = bandwidth(options.copied)
    for experts in options.experts:
        yield attempt(f"E={experts}", partial(_measured, experts, bytes_per_s, options))


def _measured(experts: int, bytes_per_s: float, options: Options) -> Row:
    problem = Problem(options.width, experts, options.tokens)
    works = {OURS: problem.both(problem.ours(options.compile)), DENSE: problem.dense(options.compile)}
    ran = time_interleaved(works, way=recorded)
    floor_ms = 1e3 * PASSES * weight_bytes(options.width, experts) / bytes_per_s
    figures = dict(ran.ms) | {
        "E": experts,
        "over dense": ran.ratio(OURS, DENSE),
        FLOOR: floor_ms,
        "over floor": ran.ms.get(OURS, float("nan")) / floor_ms,
        "copy (GB/s)": bytes_per_s / 1e9,
    }
    return row(f"E={experts}", figures, ran.failures)


def describe(options: Options) -> Description:
    how = "compiled" if options.compile else "eager"
    columns = {
        "E": "experts",
        "over dense": "time over the baseline's",
        OURS: f"our layer, {how}, even load",
        DENSE: "the baseline, timed in turn with it",
        FLOOR: "bytes of weights read twice and of gradients written, over the copy's bandwidth",
        "over floor": "routed over floor",
        "copy (GB/s)": "read and written, measured first",
    }
    setting = (
        f"One routed layer against E, forward and backward: d = {options.width}, {options.tokens:,} random tokens, "
        f"K = 1, FFW 4d, {PRECISION}" + (", recorded as CUDA graphs" if CUDA else "")
    )
    return Description(setting, f"a dense FFW of the same FLOPs, {how}", columns)
