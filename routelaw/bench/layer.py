"""A routed layer against a dense FFW of the same FLOPs, forward and backward.

K = 1, hidden layer 4d, weighted outputs; load even, and with Zipf's skew of 0.7. Figures are fractions of the dense
FFW's speed: dispatch, both products, GELU, combine and weighting, and all gradients. Candidates are our layer eager and
compiled, torch's `grouped_mm` in the plainest layer around it, and its products alone. On a GPU all of them run as CUDA
graphs, as steps of small models do, and ours once more with every kernel launched, which measures the processor too.

Shapes: T tokens, N = T assignments, D width, F = 4D hidden, E experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from routelaw.bench.clock import (
    CUDA,
    DEVICE,
    DTYPE,
    PRECISION,
    Work,
    attempt,
    both_ways,
    normal,
    peak_mib,
    recorded,
    time_interleaved,
)
from routelaw.bench.results import Description, Row, row
from routelaw.model.experts import Experts
from routelaw.routers.router import Routing

SKEW = 0.7
DENSE = "dense (ms)"
ALONE = "products alone"
LAUNCHED = "ours launched"
EVEN = "of even load"
LARGEST = 1024 * 1024 * 512
"""d²·E: 34 GB of weights and gradients in bfloat16."""


@dataclass(frozen=True)
class Options:
    widths: tuple[int, ...] = (512, 1024, 2048)
    experts: tuple[int, ...] = (8, 64, 512)
    tokens: int = 65_536
    compile: bool = CUDA


FULL = Options()
ON_CPU = Options((256,), (8, 64), 2048)
QUICK = Options((32,), (4,), 256)


def choices(tokens: int, experts: int, skew: float) -> Tensor:
    """An expert for each token, in random order: even, or with a share of rank^−skew."""
    share_E = torch.arange(1, experts + 1, dtype=torch.float64) ** -skew
    counts_E = (tokens * share_E / share_E.sum()).floor().long()
    counts_E[0] += tokens - counts_E.sum()
    expert_N = torch.arange(experts).repeat_interleave(counts_E)
    return expert_N[torch.randperm(tokens, generator=torch.Generator().manual_seed(3))].to(DEVICE)


def plain_layer(x_TD: Tensor, up: Tensor, down: Tensor, expert_N: Tensor, weight_N: Tensor) -> Tensor:
    """The shortest layer around torch's own grouped product."""
    order_N = torch.argsort(expert_N, stable=True)
    none_E = torch.zeros(up.shape[0], dtype=torch.int32, device=x_TD.device)
    offsets_E = none_E.scatter_add(0, expert_N, torch.ones_like(expert_N, dtype=torch.int32)).cumsum(0).to(torch.int32)
    hidden_NF = F.gelu(F.grouped_mm(x_TD[order_N], up, offs=offsets_E))
    made_ND = F.grouped_mm(hidden_NF, down, offs=offsets_E)
    return torch.empty_like(made_ND).index_copy(0, order_N, made_ND) * weight_N[:, None].to(made_ND.dtype)


def products_alone(rows_ND: Tensor, up: Tensor, down: Tensor, offsets_E: Tensor) -> Tensor:
    """The products over sorted rows alone: no layer around torch's grouped product can be quicker."""
    return F.grouped_mm(F.gelu(F.grouped_mm(rows_ND, up, offs=offsets_E)), down, offs=offsets_E)


class Problem:
    """A layer with its tokens, their experts and what comes back; ways to compute it, and the dense FFW beside."""

    def __init__(self, width: int, experts: int, tokens: int, skew: float = 0.0) -> None:
        self.width = width
        self.x_TD, self.against_TD = normal(tokens, width).requires_grad_(), normal(tokens, width, seed=1)
        with torch.device(DEVICE):
            self.layer = Experts(width, experts).to(DTYPE)
        for number, parameter in enumerate(self.layer.parameters()):
            parameter.data = normal(*parameter.shape, seed=2 + number, scale=parameter.shape[1] ** -0.5)
        self.up, self.down = self.layer.up[0], self.layer.down[0]
        self.expert_N = choices(tokens, experts, skew)
        self.weight_N = torch.rand(tokens, device=DEVICE).requires_grad_()
        self.kept_N = torch.ones(tokens, dtype=torch.bool, device=DEVICE)
        self.token_N = torch.arange(tokens, device=DEVICE)

    def ours(self, compiled: bool, expert_N: Tensor | None = None) -> Callable[[], Tensor]:
        chosen_N = self.expert_N if expert_N is None else expert_N

        def layer(x_TD: Tensor, weight_N: Tensor) -> Tensor:
            return self.layer(x_TD, x_TD, Routing(self.token_N, chosen_N, weight_N), self.kept_N)

        made = torch.compile(layer, dynamic=False, fullgraph=True) if compiled else layer
        return lambda: made(self.x_TD, self.weight_N)

    def plain(self, compiled: bool) -> Callable[[], Tensor]:
        made = torch.compile(plain_layer, dynamic=False, fullgraph=True) if compiled else plain_layer
        return lambda: made(self.x_TD, self.up, self.down, self.expert_N, self.weight_N)

    def alone(self) -> Work:
        offsets_E = torch.bincount(self.expert_N, minlength=len(self.up)).cumsum(0).to(torch.int32)
        made = torch.compile(products_alone, dynamic=False, fullgraph=True)
        return both_ways(
            lambda: made(self.x_TD, self.up, self.down, offsets_E), [self.x_TD, self.up, self.down], self.against_TD
        )

    @property
    def leaves(self) -> list[Tensor]:
        return [self.x_TD, self.weight_N, self.up, self.down]

    def both(self, function: Callable[[], Tensor]) -> Work:
        return both_ways(function, self.leaves, self.against_TD)

    def gradients(self, result_TD: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(result_TD, self.leaves, self.against_TD)

    def dense(self, compiled: bool) -> Work:
        up = normal(self.width, 4 * self.width, seed=5, scale=self.width**-0.5).requires_grad_()
        down = normal(4 * self.width, self.width, seed=6, scale=(4 * self.width) ** -0.5).requires_grad_()
        made = torch.compile(_ffw, dynamic=False) if compiled else _ffw
        return both_ways(lambda: made(self.x_TD, up, down), [self.x_TD, up, down], self.against_TD)


def _ffw(x_TD: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.gelu(x_TD @ up) @ down


def rows(options: Options) -> Iterator[Row]:
    for width, experts in product(options.widths, options.experts):
        if width * width * experts > LARGEST:
            continue
        for skew in (0.0, SKEW):
            name = f"d={width} E={experts}" + (f" zipf {skew}" if skew else "")
            yield attempt(name, partial(_measured, name, width, experts, skew, options))


def _measured(name: str, width: int, experts: int, skew: float, options: Options) -> Row:
    problem = Problem(width, experts, options.tokens, skew)
    ways = {"ours eager": problem.ours(False)}
    if options.compile:
        ways["ours compiled"] = problem.ours(True)
    if CUDA:
        ways["grouped_mm eager"] = problem.plain(False)
    if CUDA and options.compile:
        ways["grouped_mm compiled"] = problem.plain(True)
    works = {name: problem.both(way) for name, way in ways.items()}
    if CUDA and options.compile:
        works[ALONE] = problem.alone()
    beside = {DENSE: problem.dense(options.compile)}
    if skew:
        beside[EVEN] = problem.both(problem.ours(options.compile, choices(options.tokens, experts, skew=0.0)))
    # Dense takes part every time: the ratio is of two that were disturbed alike.
    ran = time_interleaved(beside | works, way=recorded)
    figures = {way: ran.ratio(DENSE, way) for way in works} | {DENSE: ran.ms.get(DENSE, float("nan"))}
    best = "ours compiled" if options.compile else "ours eager"
    if skew:
        figures[EVEN] = ran.ratio(EVEN, best)
    if best in ran.ms:
        if CUDA:
            figures[LAUNCHED] = time_interleaved({DENSE: beside[DENSE], best: works[best]}).ratio(DENSE, best)
        figures["peak (MiB)"] = peak_mib(works[best])
        figures["difference"] = _difference(ways[best], problem)
    return row(name, figures, ran.failures)


def _difference(way: Callable[[], Tensor], problem: Problem) -> float:
    """Relative, from the plainest layer: the most of the result and of any gradient."""
    made, wanted = ([result.detach(), *problem.gradients(result)] for result in (way(), _wanted(problem)))
    return max(float((a - b).norm() / b.norm()) for a, b in zip(made, wanted, strict=True))


def _wanted(problem: Problem) -> Tensor:
    """By torch's grouped product, or expert by expert where it has none."""
    if CUDA:
        return problem.plain(False)()
    wanted_TD = torch.zeros_like(problem.x_TD)
    for expert in range(len(problem.up)):
        (rows_R,) = torch.nonzero(problem.expert_N == expert, as_tuple=True)
        made_RD = _ffw(problem.x_TD[rows_R], problem.up[expert], problem.down[expert])
        wanted_TD = wanted_TD.index_add(0, rows_R, made_RD)
    return wanted_TD * problem.weight_N[:, None]


def describe(options: Options) -> Description:
    how = "compiled" if options.compile else "eager"
    columns = {
        "ours compiled": "our layer, compiled",
        "ours eager": "our layer",
        LAUNCHED: f"our layer, {how}, over dense timed by itself: kernels launched by the processor",
        EVEN: f"speed with skew, {how}, over that with even load timed in turn with it",
        "grouped_mm compiled": "the plainest layer around torch's grouped_mm, compiled",
        "grouped_mm eager": "the same, eager",
        ALONE: "torch's grouped products and GELU, compiled, of rows that are sorted already: no dispatch, no weights",
        DENSE: "the baseline, timed in turn with it",
        "peak (MiB)": "what ours allocates",
        "difference": "relative, of ours from the plainest layer: the most of result and gradients",
    }
    setting = f"One routed layer, forward and backward: {options.tokens:,} random tokens, K = 1, FFW 4d, {PRECISION}"
    if CUDA:
        setting += ", recorded as CUDA graphs"
    baseline = f"a dense FFW of the same FLOPs, {how}; figures are fractions of its speed"
    return Description(setting, baseline, columns)
