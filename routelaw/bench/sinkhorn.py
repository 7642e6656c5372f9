"""Sinkhorn: our operation against sixteen iterations of the plain form.

One routing group and four; scores of low rank with an uneven bias, as a router's are. The baseline has no stop test;
ours is timed for the same iterations, and for what a tolerance of 1e-2 takes, stop test included. The floor is one
read of the logits per pass at the bandwidth of a copy of them measured beside it. On a GPU all run as CUDA graphs: the
plain form launches dozens of kernels of a few microseconds each, and the processor would be timed.

Shapes: T tokens, E experts, G routing groups of M members.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor

from routelaw.bench.clock import CUDA, attempt, normal, recorded, time_interleaved
from routelaw.bench.results import Description, Row, row
from routelaw.kernels.sinkhorn import expert_potentials, sinkhorn

ITERATIONS, TOLERANCE, CAP = 16, 1e-2, 200
UNREACHABLE = 1e-30
PLAIN, OURS, CONVERGED = "plain, 16 (ms)", "ours, 16 (ms)", "ours, to 1e-2 (ms)"


@dataclass(frozen=True)
class Options:
    tokens: int = 65_536
    shapes: tuple[tuple[int, int], ...] = ((64, 1), (64, 4), (512, 1), (512, 4))
    """(experts, groups)."""
    compile: bool = CUDA
    """Whether the baseline is compiled."""
    tune: bool = False
    """Try other shapes of the kernel, at four groups on a GPU."""


FULL = Options()
ON_CPU = Options(tokens=2048, shapes=((64, 1), (64, 4), (256, 1)))
QUICK = Options(tokens=512, shapes=((64, 1), (64, 4)))


def plain_iterations(logits_GME: Tensor) -> Tensor:
    """What a compiler is given: the two updates, sixteen times."""
    _, members, experts = logits_GME.shape
    g_GE = torch.zeros_like(logits_GME[:, 0])
    for _ in range(ITERATIONS):
        f_GM = math.log(experts) - torch.logsumexp(logits_GME + g_GE[:, None], 2)
        g_GE = math.log(members) - torch.logsumexp(logits_GME + f_GM[:, :, None], 1)
    return g_GE


def scores(tokens: int, experts: int) -> Tensor:
    low_rank = normal(tokens, 16, dtype=torch.float32) @ normal(16, experts, seed=1, scale=0.25, dtype=torch.float32)
    return low_rank + normal(experts, seed=2, dtype=torch.float32)


def rows(options: Options) -> Iterator[Row]:
    for experts, groups in options.shapes:
        name = f"{options.tokens}x{experts}, {groups} groups"
        yield attempt(name, partial(_measured, name, experts, groups, options))


def _measured(name: str, experts: int, groups: int, options: Options) -> Row:
    logits_TE = scores(options.tokens, experts)
    members_GM = torch.arange(options.tokens, device=logits_TE.device).view(groups, -1)
    valid_T = torch.ones(options.tokens, dtype=torch.bool, device=logits_TE.device)
    given = (logits_TE, members_GM, valid_T)
    logits_GME = logits_TE.view(groups, -1, experts)
    plain = torch.compile(plain_iterations, dynamic=False) if options.compile else plain_iterations
    copied = torch.empty_like(logits_TE)
    works = {
        PLAIN: lambda: plain(logits_GME),
        OURS: lambda: expert_potentials(*given, UNREACHABLE, ITERATIONS),
        CONVERGED: lambda: expert_potentials(*given, TOLERANCE, CAP),
        "copy (ms)": lambda: copied.copy_(logits_TE),
    }
    ran = time_interleaved(works, way=recorded)
    figures = dict(ran.ms) | {"speedup, 16": ran.ratio(PLAIN, OURS)}
    if CONVERGED in ran.ms:
        g_GE, iterations_G, _ = expert_potentials(*given, TOLERANCE, CAP)
        wanted_GE = sinkhorn(logits_GME.double(), valid_T.view(groups, -1), TOLERANCE, CAP)[1]
        passes = float(iterations_G.max()) + 1
        figures |= {
            "to 1e-2 over floor": ran.ratio(CONVERGED, "copy (ms)") * 2 / passes,
            "iterations": passes - 1,
            "difference": (g_GE.double() - wanted_GE).abs().max().item(),
        }
    if options.tune and groups == 4 and CUDA:
        figures |= _tuned(given)
    return row(name, figures, ran.failures)


def _tuned(given: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
    """The quickest of other shapes of the kernel; all of them are printed."""
    from routelaw.kernels.sinkhorn_triton import Tuning, persistent_sinkhorn

    shapes = [
        Tuning(tile, warps, stages, per, 65536 // (32 * warps * per))
        for (tile, warps, per), stages in product([(4096, 8, 2), (8192, 8, 2), (2048, 4, 4), (8192, 16, 1)], (1, 2, 3))
    ]
    works = {
        f"tile {t.tile}, {t.warps} warps × {t.programs_per_processor}, {t.stages} stages": (
            lambda t=t: persistent_sinkhorn(*given, TOLERANCE, CAP, t)
        )
        for t in shapes
    }
    ran = time_interleaved(works)
    for name, ms in sorted(ran.ms.items(), key=lambda pair: pair[1]):
        print(f"    {name}: {ms:.4f} ms", flush=True)
    for name, why in ran.failures.items():
        print(f"    {name} failed: {why}", flush=True)
    return {"best tuning (ms)": min(ran.ms.values(), default=float("nan"))}


def describe(options: Options) -> Description:
    how = "compiled" if options.compile else "eager"
    columns = {
        "speedup, 16": "the baseline's time over ours",
        PLAIN: f"the baseline: plain form, {how}",
        OURS: "our operation, as many iterations",
        CONVERGED: "our operation, until the violation is 1e-2",
        "copy (ms)": "a copy of the logits",
        "to 1e-2 over floor": "over one read of the logits per pass",
        "iterations": "to 1e-2",
        "difference": "largest, of g, from float64",
        "best tuning (ms)": "the quickest of the kernel's shapes tried, to 1e-2",
    }
    setting = f"Sinkhorn of {options.tokens:,} tokens in float32, low-rank scores with an uneven bias"
    setting += ", recorded as CUDA graphs" if CUDA else ""
    return Description(setting, f"{ITERATIONS} iterations of the plain form, {how}, without a stop test", columns)
