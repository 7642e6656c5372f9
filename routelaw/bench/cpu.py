"""A training step on a CPU beside others: ours dense and routed, plain torch, and Qwen3-MoE of transformers.

Whole steps in float32: forward, backward, clipping, AdamW. All of a row take turns in one process, which keeps the
memory it frees (training/device.py) for everybody. Theirs use torch's fused AdamW. `loss apart` is the proof that ours
computes the model: plain torch started from the same parameters trains beside it, and after every step the losses are
compared.

Rows: a routed model of each size and E (nothing dropped) beside the dense one and Qwen3-MoE of the same active shape;
then the demo's shape, on one thread as in the demo, with rotary and with relative (xl) positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import count, product

import torch
from torch import Tensor

from routelaw.bench.clock import Work, attempt, time_interleaved
from routelaw.bench.peers import PlainTransformer, qwen3_loss, qwen3_moe, torch_step
from routelaw.bench.results import Description, Row, row
from routelaw.errors import InputError
from routelaw.formatting import byte_size
from routelaw.model.transformer import Transformer
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.sweeps.estimate.memory_check import host_memory
from routelaw.training.device import keep_freed_memory
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import take_step

OURS, DENSE, PLAIN, QWEN = "ours (ms)", "own dense (ms)", "plain torch (ms)", "Qwen3-MoE (ms)"
APART, IN_FLOAT64 = "loss apart", "in float64"
BYTES_HELD = 5 * 4
"""Bytes held for a parameter in training: itself, its gradient, two moments, and a gradient on its way."""


@dataclass(frozen=True)
class Options:
    sizes: tuple[str, ...] = ("3M", "20M")
    experts: tuple[int, ...] = (8, 32)
    routers: tuple[str, ...] = ("switch", "s-base")
    batch: int = 8
    length: int = 256
    vocabulary: int = 4096
    demo: tuple[str, int, int, int] = ("0.12M", 16, 64, 512)
    """Size, batch, length and vocabulary of the demo's middle model."""
    compared_steps: int = 20
    rounds: int = 10
    seconds: float = 30.0
    """For the rounds of a row, after the fewest that are taken in any case."""
    capacity: float = 0.0
    """0 drops nothing: what a router drops is not computed."""

    def spec(self, size: str, router: str, experts: int) -> RunSpec:
        spec = _spec(size, router, experts, "rope", self.batch, self.length, self.vocabulary)
        return replace(spec, router=replace(spec.router, capacity_factor=self.capacity)) if spec.routed_blocks else spec

    def demo_spec(self, positions: str) -> RunSpec:
        size, batch, length, vocabulary = self.demo
        return _spec(size, "dense", 1, positions, batch, length, vocabulary)


FULL = ON_CPU = Options()
QUICK = Options(
    ("0.05M",), (4,), ("switch",), 2, 32, 64, ("0.05M", 2, 32, 64), compared_steps=3, rounds=1, seconds=0.0
)  # fmt: skip


def _spec(size: str, router: str, experts: int, positions: str, batch: int, length: int, vocabulary: int) -> RunSpec:
    routed = RouterSpec() if router == "dense" else RouterSpec(router, experts, capacity_factor=0.0)
    train = TrainSpec(steps=1000, batch=batch, learning_rate=1e-3, warmup_steps=0)
    return RunSpec(ModelSpec(get_size(size), vocabulary, length, positions), routed, train, corpus="random tokens")


def rows(options: Options) -> Iterator[Row]:
    keep_freed_memory()
    for size, experts, router in product(options.sizes, options.experts, options.routers):
        name = f"{size} {router} E = {experts}"
        yield attempt(name, lambda s=size, e=experts, r=router, n=name: _routed(n, s, r, e, options))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _demo(options)
    finally:
        torch.set_num_threads(threads)


def _routed(name: str, size: str, router: str, experts: int, options: Options) -> Row:
    dense, routed = options.spec(size, "dense", 1), options.spec(size, router, experts)
    _check_memory(2 * routed.counts.total_params + dense.counts.total_params)
    works = {OURS: ours(routed), DENSE: ours(dense)}
    failures = {QWEN: "transformers is not installed: pip install 'routelaw[bench]'"}
    if find_spec("transformers"):
        failures = {}
        model = qwen3_moe(routed.model.architecture, options.vocabulary, options.length, experts)
        step = torch_step(model, qwen3_loss, routed.train, fused=True)
        works[QWEN] = lambda tokens_BS=random_tokens(routed): step(tokens_BS)
    ran = time_interleaved(works, options.rounds, options.seconds)
    figures = dict(ran.ms)
    figures |= {"over own dense": ran.ratio(OURS, DENSE), "over Qwen3-MoE": ran.ratio(OURS, QWEN)}
    if router == "switch":
        figures |= losses_apart(options.spec(options.sizes[0], router, experts), options.compared_steps)
    return row(name, figures, failures | ran.failures)


def _demo(options: Options) -> Iterator[Row]:
    rope, xl = (options.demo_spec(positions) for positions in ("rope", "xl"))
    size = options.demo[0]
    step = torch_step(PlainTransformer(rope), lambda model, tokens_BS: model(tokens_BS), rope.train, fused=True)
    works = {"rope": ours(rope), "xl": ours(xl), PLAIN: lambda tokens_BS=random_tokens(rope): step(tokens_BS)}
    ran = time_interleaved(works, 30 * options.rounds, options.seconds)
    figures = {OURS: ran.ms["rope"], PLAIN: ran.ms[PLAIN], "over plain torch": ran.ratio("rope", PLAIN)}
    yield row(f"{size} demo rope", figures | losses_apart(rope, options.compared_steps))
    figures = {OURS: ran.ms["xl"], "over rope": ran.ratio("xl", "rope")}
    yield row(f"{size} demo xl", figures | losses_apart(xl, options.compared_steps))


def random_tokens(spec: RunSpec, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(spec.model.vocabulary, (spec.train.batch, spec.model.sequence_length + 1), generator=generator)


def ours(spec: RunSpec) -> Work:
    model = Transformer(spec)
    step = _our_step(model, spec)
    tokens_BS = random_tokens(spec)
    return lambda: step(tokens_BS)


def _our_step(model: Transformer, spec: RunSpec) -> Callable[[Tensor], float]:
    optimizer, number = Optimizer(model, spec.train), count()
    return lambda tokens_BS: take_step(model, optimizer, tokens_BS, spec, next(number)).loss.item()


def losses_apart(spec: RunSpec, steps: int) -> dict[str, float]:
    """The largest difference between our losses and those of plain torch from the same start, over some steps, in
    float32 and in float64.

    In float32 both round, each in its own way, and where that turns a choice round a token is another expert's: an
    expert that only one of them gives its first token to is set in motion by AdamW in one of them alone. In float64 no
    choice is so close, so that figure says whether both compute the same. Balance losses are left out: plain torch has
    none.
    """
    if spec.routed_blocks:
        router = RouterSpec(spec.router.name, spec.router.experts, capacity_factor=0.0, balance_weight=0.0)
        spec = RunSpec(spec.model, router, spec.train, spec.corpus)
    return {APART: _apart(spec, steps, torch.float32), IN_FLOAT64: _apart(spec, steps, torch.float64)}


def _apart(spec: RunSpec, steps: int, dtype: torch.dtype) -> float:
    model, plain = Transformer(spec), PlainTransformer(spec)
    plain.start_as(model)
    step_ours = _our_step(model.to(dtype), spec)
    step_plain = torch_step(plain.to(dtype), lambda m, tokens_BS: m(tokens_BS), spec.train, foreach=False)
    batches = (random_tokens(spec, step) for step in range(steps))
    return max(abs(step_ours(tokens_BS) - step_plain(tokens_BS)) for tokens_BS in batches)


def _check_memory(parameters: int) -> None:
    there, needed = host_memory(), parameters * BYTES_HELD
    if there is not None and needed > there:
        raise InputError(f"it needs some {byte_size(needed)} of memory, and there is {byte_size(there)}.")


def describe(options: Options) -> Description:
    columns = {
        "over own dense": "our step over that of our dense model",
        "over Qwen3-MoE": "our step over that of Qwen3-MoE, of transformers, with the same active shape",
        "over plain torch": "our step over that of the same model in plain torch",
        "over rope": "the step with relative positions over the one with rotary positions",
        APART: f"largest difference from plain torch's loss over {options.compared_steps} steps, in nats "
        f"(routed: at {options.sizes[0]}, without a balance loss)",
        IN_FLOAT64: "the same where both compute in float64",
        OURS: "our step",
        DENSE: "our dense model's step",
        QWEN: "Qwen3-MoE's",
        PLAIN: "plain torch's",
    }
    dropped = f"capacity {options.capacity:g}" if options.capacity else "nothing dropped"
    setting = (
        f"Training steps on a CPU in float32, {options.batch} × {options.length} random tokens, vocabulary "
        f"{options.vocabulary:,}, K = 1, R = ½, {dropped}; the demo's {options.demo[1]} × {options.demo[2]} "
        f"tokens, vocabulary {options.demo[3]}, one thread"
    )
    return Description(setting, "our dense model, Qwen3-MoE and plain torch", columns)
