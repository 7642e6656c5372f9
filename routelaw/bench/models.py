"""Whole models: what routing adds to a dense model of equal N, forward and backward, and the whole step.

K = 1, R = ½, nothing dropped unless asked, random tokens. A router's figures are its time over that of `switch` and
over that of the dense model. All models of a size take turns, unless their weights would fill half of a GPU: then they
are measured one after the other.
The whole step, the optimiser alone (float32 masters, AdamW) and its part amortised over the paper's batch of 256
sequences stand beside, of models whose optimiser fits.
Graphs compiled and waits for the device are counted in a step after the first ones.

Shapes: B batch, S sequence, T = B·S tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from routelaw.bench.clock import (
    ALL,
    CUDA,
    DEVICE,
    DTYPE,
    PRECISION,
    Work,
    peak_mib,
    reason,
    recorded,
    release,
    time_interleaved,
    wait,
)
from routelaw.bench.results import Description, Row, row
from routelaw.costs.memory import footprint
from routelaw.errors import InputError
from routelaw.formatting import byte_size
from routelaw.model.transformer import Output, Transformer
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.sweeps.estimate.memory_check import host_memory
from routelaw.training.device import release as give_back
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import layer_losses, step_context, take_step, weighted_sum

PAPER_BATCH = 256
MOST_OPTIMIZED, OPTIMIZED_BYTES = 5e9, 14
"""Parameters that an optimiser is timed of, and the bytes of each: master, two moments, gradient."""
SECONDS = 3.0
"""Seconds for which each model is timed."""
VARIANTS = 64
"""Variants of a block that the compiler may make: some for every router."""
FB, STEP, ALONE = "fb (ms)", "step (ms)", "optimizer (ms)"


@dataclass(frozen=True)
class Options:
    sizes: tuple[str, ...] = ("130M", "370M")
    routers: tuple[str, ...] = ("dense", "switch", "s-base", "rl-r", "hash")
    positions: tuple[str, ...] = ("rope", "xl")
    experts: int = 64
    tokens: int = 32_768
    length: int = 2048
    vocabulary: int = 32_000
    capacity: float = 0.0
    """0 drops nothing: what a router drops is not computed, and it would look quick."""
    whole: bool = True
    """Time the whole step, too."""
    compile: bool = CUDA
    profile: int = 0
    """Print so many kernels, those in which a forward and backward pass of each model spends the most time."""

    def spec(self, size: str, router: str, positions: str) -> RunSpec:
        return RunSpec(
            ModelSpec(get_size(size), self.vocabulary, self.length, positions),
            RouterSpec() if router == "dense" else RouterSpec(router, self.experts, capacity_factor=self.capacity),
            TrainSpec(steps=1000, batch=self.tokens // self.length),
            corpus="random tokens",
        )


FULL = Options()
ON_CPU = Options(("0.8M",), experts=8, tokens=1024, length=256, vocabulary=2048)
QUICK = Options(
    ("0.05M",), ("dense", "switch", "s-base"), ("rope",), experts=4, tokens=256, length=64, vocabulary=100
)  # fmt: skip


def built(spec: RunSpec, compiled: bool) -> Transformer:
    """Drawn where it is used: a billion numbers take a CPU a minute."""
    original, Transformer.initialise = Transformer.initialise, lambda self, seed: None
    try:
        with torch.device(DEVICE):
            model = Transformer(spec).to(DTYPE)
    finally:
        Transformer.initialise = original
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("router.bias"):
            parameter.data.fill_(float("norm" in name and not name.endswith("bias")))
        else:
            parameter.data.normal_(0, 0.02)
    for block in model.blocks if compiled else ():
        block.compile(fullgraph=True, dynamic=False)
    return model.train()


def training_loss(
    model: Transformer, tokens_BS: Tensor, step: int | Tensor, first_sequence: int = 0
) -> tuple[Tensor, Output]:
    """The loss of a training step, the routers' own included, and what the model gave."""
    ids_BS, target_T = tokens_BS[:, :-1], tokens_BS[:, 1:].flatten()
    output = model(ids_BS, step_context(model.spec, step, ids_BS, first_sequence, model.parallel.batch))
    nll_T = model.token_nll(output.hidden_TD, target_T)
    losses = layer_losses(model, output, nll_T.detach())
    return nll_T.sum() / nll_T.numel() + weighted_sum(model, losses, nll_T), output


def graphs_made() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def waits(work: Work, what: str) -> dict[str, str]:
    """Empty, or why the call waits for the device."""
    if not CUDA:
        return {}
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
        return {}
    except RuntimeError as error:
        return {f"{what} without waiting": reason(error)}
    finally:
        torch.cuda.set_sync_debug_mode("default")


def print_kernels(name: str, work: Work, most: int) -> None:
    """Kernels by name, with milliseconds, share and calls, summed over one call."""
    activity = torch.profiler.ProfilerActivity.CUDA if CUDA else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        work()
        wait()
    events = profile.key_averages()
    spent = {e.key: (e.self_device_time_total if CUDA else e.self_cpu_time_total) / 1e3 for e in events}
    total = sum(spent.values())
    print(f"{name}: {total:.1f} ms of kernels", file=sys.stderr)
    for event in sorted(events, key=lambda e: -spent[e.key])[:most]:
        ms = spent[event.key]
        print(f"{ms:8.2f} ms {ms / total:6.1%} {event.count:5}× {event.key[:110]}", file=sys.stderr, flush=True)


def check_room(options: Options) -> None:
    """Refuse models that do not fit in this machine's memory, before any is built. A GPU says so itself, and the other
    models are measured all the same; a machine without memory ends processes."""
    there = None if CUDA else host_memory()
    if there is None:
        return
    for positions, size in product(options.positions, options.sizes):
        specs = [options.spec(size, router, positions) for router in options.routers]
        largest = max(specs, key=lambda spec: spec.counts.total_params)
        memory = footprint(largest, precision=PRECISION)
        others = sum(spec.counts.total_params for spec in specs if spec is not largest) * DTYPE.itemsize
        whole = options.whole and largest.counts.total_params < MOST_OPTIMIZED
        needed = others + (memory.total if whole else memory.parameters + memory.at_once)
        if needed > there:
            raise InputError(
                f"the models of size {size} need some {byte_size(needed)} of this machine's memory, and there is "
                f"{byte_size(there)}: take a smaller size."
            )


def rows(options: Options) -> Iterator[Row]:
    """As they are ready: who stops in between keeps those that were."""
    for positions, size in product(options.positions, options.sizes):
        times: dict[str, float] = {}
        in_turn = fits([options.spec(size, router, positions) for router in options.routers], options.whole)
        for group in [options.routers] if in_turn else [(router,) for router in options.routers]:
            with torch._dynamo.config.patch(recompile_limit=VARIANTS):
                yield from _time_together(size, positions, group, options, times)
            release()


def fits(specs: list[RunSpec], whole: bool) -> bool:
    """Whether all models may be there at once, and the optimiser of one; half is for gradients and activations."""
    if not CUDA:
        return True
    sizes = [spec.counts.total_params for spec in specs]
    optimized = [size for size in sizes if whole and size < MOST_OPTIMIZED]
    needed = sum(sizes) * DTYPE.itemsize + max(optimized, default=0) * OPTIMIZED_BYTES
    return needed < torch.cuda.get_device_properties(DEVICE).total_memory / 2


def _time_together(
    size: str, positions: str, routers: tuple[str, ...], options: Options, times: dict[str, float]
) -> Iterator[Row]:
    """`times` of forward and backward, by router: those so far, to which these are added."""
    names = {router: f"{size} {positions} {router}" for router in routers}
    trials: dict[str, TimedModel] = {}
    for router, name in names.items():
        try:
            trials[router] = TimedModel(name, options.spec(size, router, positions), options)
        except Exception as error:
            yield row(name, {}, {ALL: reason(error)})
    candidates = {router: trial.forward_and_backward for router, trial in trials.items()}
    ran = time_interleaved(candidates, budget_s=SECONDS * len(trials))
    candidates.clear()
    times |= ran.ms
    for router in list(trials):
        trial = trials.pop(router)
        if router in ran.failures:
            yield row(names[router], {}, {FB: ran.failures[router]})
        else:
            try:
                found = trial.row(ran.ms[router], ran.spread[router])
            except Exception as error:
                found = row(names[router], {FB: ran.ms[router]}, {ALL: reason(error)})
            both = [other for other in ("dense", "switch") if other in times]
            over = row(found.name, {f"over {other}": times[router] / times[other] for other in both})
            yield replace(found, figures={**over.figures, **found.figures})
        del trial
        give_back()  # its optimiser, for the next one's


def optimizer_alone(optimizer: Optimizer, gradients: Work) -> Work:
    """The optimiser's part of a step, by itself: two timings less each other would say little of so short a time. To be
    timed as recorded: launched by the processor it takes as long as that needs for hundreds of kernels, which in
    training happens while the device is still busy with the backward pass."""
    optimizer.clear()
    gradients()
    optimizer.accumulate_gradients()

    def step() -> None:
        norm = optimizer.gradient_norm()
        optimizer.step(optimizer.train.learning_rate, norm, torch.isfinite(norm))

    return step


class TimedModel:
    """A model with its tokens, and what is measured of it."""

    def __init__(self, name: str, spec: RunSpec, options: Options) -> None:
        torch.manual_seed(0)
        self.name, self.spec, self.options, self.graphs = name, spec, options, 0
        self.model = built(spec, options.compile)
        self.tokens_BS = torch.randint(options.vocabulary, (spec.train.batch, options.length + 1), device=DEVICE)
        self.number = torch.zeros((), dtype=torch.int64, device=DEVICE)

    def forward_and_backward(self) -> None:
        self._gradients()
        for parameter in self.model.parameters():
            parameter.grad = None

    def loss(self) -> tuple[Tensor, Output]:
        self.number.add_(1)
        return training_loss(self.model, self.tokens_BS, self.number)

    def _gradients(self) -> None:
        before = graphs_made()
        loss, _ = self.loss()
        loss.backward()
        self.graphs += graphs_made() - before

    def row(self, fb_ms: float, fb_spread: float) -> Row:
        """All figures, given the time of forward and backward."""
        figures = {FB: fb_ms, "fb spread": fb_spread, "fb peak (MiB)": peak_mib(self.forward_and_backward)}
        first = self.graphs
        if self.options.profile:
            print_kernels(self.name, self.forward_and_backward, self.options.profile)
        failures = waits(self.forward_and_backward, "forward and backward")
        figures |= {"waits": len(failures)} if CUDA else {}
        if self.options.whole and self.spec.counts.total_params < MOST_OPTIMIZED:
            more, why = self._whole(fb_ms)
            figures, failures = figures | more, failures | why
        if STEP in figures:
            figures["tokens per s"] = 1e3 * self.options.tokens / figures[STEP]
        if self.options.compile:
            figures |= {"graphs": first, "graphs later": self.graphs - first}
        return row(self.name, figures, failures)

    def _whole(self, fb_ms: float) -> tuple[dict[str, float], dict[str, str]]:
        """Figures of the step, and why it fails or waits for the device."""
        optimizer, number = Optimizer(self.model, self.spec.train), iter(range(10**6))

        def step() -> None:
            take_step(self.model, optimizer, self.tokens_BS, self.spec, next(number))

        step()  # the optimiser's update is compiled now
        before = graphs_made()
        ran = time_interleaved({STEP: step})
        if ran.failures:
            return {}, ran.failures
        waited = waits(step, "a step")
        self.graphs += graphs_made() - before
        alone = time_interleaved({ALONE: optimizer_alone(optimizer, self._gradients)}, way=recorded)
        if alone.failures:
            return dict(ran.ms), waited | alone.failures
        amortised = fb_ms + alone.ms[ALONE] * len(self.tokens_BS) / PAPER_BATCH
        figures = dict(ran.ms) | dict(alone.ms) | {"amortised (ms)": amortised}
        return figures | ({"waits in step": len(waited)} if CUDA else {}), waited


def describe(options: Options) -> Description:
    how = "blocks compiled" if options.compile else "eager"
    columns = {
        "over dense": "forward and backward, over the dense model's",
        "over switch": "the same, over Switch's",
        FB: "forward and backward",
        "fb spread": "the largest of its times less the least, over the one shown",
        STEP: "with the optimiser",
        ALONE: "clipping, update and the copy in bfloat16 alone, gradients being there",
        "amortised (ms)": f"a step, were the optimiser's part shared by {PAPER_BATCH} sequences",
        "tokens per s": "of the whole step",
        "fb peak (MiB)": "what forward and backward allocate",
        "graphs": "compiled for it in the first passes, beyond those that models before it had left",
        "graphs later": "compiled after them",
        "waits": "for the device in forward and backward: 0 or 1",
        "waits in step": "the same of the step",
    }
    setting = (
        f"Whole models, {options.tokens:,} random tokens in sequences of {options.length:,}, E = {options.experts}, "
        f"K = 1, R = ½, vocabulary {options.vocabulary:,}, {PRECISION}, {how}"
    )
    return Description(setting, "the dense model of equal N, and Switch of equal E", columns)
