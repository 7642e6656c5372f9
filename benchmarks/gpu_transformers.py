"""Whole training steps beside Hugging Face transformers: our dense model and Llama, our routed one and Mixtral top-1.

    python benchmarks/gpu_transformers.py [--quick] [--cases dense e8 e64] [--only "ours switch" …] [--budget-s 540]

16 × 2048 random tokens, vocabulary 32,000, bfloat16, one machine, one run; models in transformers_models.py. Ours has
its blocks compiled; theirs run eager, compiled whole as users do, and compiled with flash attention put right. `of
eager` and so on are theirs over ours: above 1 ours is faster, or smaller. The targets were set against Llama compiled
and Mixtral eager. (In lines before commit 66c457a `as shipped` is of the best of eager and compiled, `ratio` of the
best of all three.)
R = 1, so every block is routed in both. Ours drops nothing and does all of Mixtral's work; at
capacity 2, beside it, what finds no slot is dropped (`kept` says how much was not). With 64 experts only forward and
backward: masters and moments of all would not fit.

Optimisers: `masters` is our Optimizer for both (float32 masters and moments, clipping), the equal precision; `bf16` is
torch's fused AdamW on bfloat16 parameters and moments, without clipping: for theirs alone. Memory: `kept_mib` is what
the forward pass leaves for the backward one, `peak_mib` the most of both beyond what was there, gradients included.
Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import ledger
import torch
from budget import bounded
from ledger import rounded
from torch import Tensor, nn
from transformers_models import FORMS, built_theirs, loss_of

from routelaw.bench.clock import CUDA, DEVICE, Work, here, peak_mib, reason, recorded, release, time_interleaved
from routelaw.bench.models import PAPER_BATCH, built, optimizer_alone
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import layer_losses, step_context, take_step, weighted_sum

COMPARED = ("fb_ms", "peak_mib", "kept_mib", "masters_ms", "masters_amortised_ms")
TARGETS = {("dense", "ours rope", "masters_ms"): 1.05, ("e64", "ours switch", "fb_ms"): 1.5}
TARGETS |= {("e8", "ours switch", "masters_ms"): 1.4, ("e8", "ours switch", "kept_mib"): 1.0}


@dataclass
class Parts:
    """What is measured of an optimiser."""

    step: Callable[[], object]
    """A whole one."""
    alone: Callable[[], Callable[[], object]]
    """Takes the gradients, and returns what then remains of a step."""


@dataclass
class Candidate:
    model: nn.Module
    loss: Callable[[], Tensor]
    optimizers: dict[str, Callable[[], Parts]]
    """What makes each: its state is there only while it is measured."""
    kept: Callable[[], float] = lambda: 1.0
    """Share of tokens that reach an expert."""

    def both(self) -> None:
        self.loss().backward()
        for parameter in self.model.parameters():
            parameter.grad = None


Makers = dict[str, Callable[[], Candidate]]


def ours(router: RouterSpec, positions: str, options: argparse.Namespace) -> Candidate:
    shape = ModelSpec(get_size(options.size), options.vocabulary, options.length, positions)
    spec = RunSpec(shape, router, TrainSpec(steps=1000, batch=options.sequences), corpus="random tokens")
    model, tokens_BS = built(spec, compiled=CUDA), tokens(options)
    number = torch.zeros((), dtype=torch.int64, device=DEVICE)
    shares: list[Tensor] = []

    def loss() -> Tensor:
        number.add_(1)
        ids_BS, target_T = tokens_BS[:, :-1], tokens_BS[:, 1:].flatten()
        output = model(ids_BS, step_context(spec, number, ids_BS, 0))
        nll_T = model.token_nll(output.hidden_TD, target_T)
        shares[:] = [layer.kept_N.float().mean() for layer in output.layers]
        return nll_T.sum() / nll_T.numel() + weighted_sum(model, layer_losses(model, output, nll_T.detach()), nll_T)

    def masters() -> Parts:
        optimizer, count = Optimizer(model, spec.train), iter(range(10**6))
        return Parts(
            lambda: take_step(model, optimizer, tokens_BS, spec, next(count)),
            partial(optimizer_alone, optimizer, lambda: loss().backward()),
        )

    return Candidate(model, loss, {"masters": masters}, lambda: torch.stack(shares).mean().item() if shares else 1.0)


def theirs(experts: int, form: str, options: argparse.Namespace) -> Candidate:
    model = built_theirs(get_size(options.size), options.vocabulary, options.length, experts, form)
    loss, tokens_BS = loss_of(model, form), tokens(options)
    train = TrainSpec(steps=1000, batch=options.sequences)

    def masters() -> Parts:
        optimizer = Optimizer(model, train)

        def step() -> None:
            loss(tokens_BS).backward()
            optimizer.accumulate_gradients()
            norm = optimizer.gradient_norm()
            optimizer.step(train.learning_rate, norm, torch.isfinite(norm))
            optimizer.clear()

        return Parts(step, partial(optimizer_alone, optimizer, lambda: loss(tokens_BS).backward()))

    def bf16() -> Parts:
        adamw = torch.optim.AdamW(
            model.parameters(), lr=train.learning_rate, betas=(0.9, 0.95), fused=True, capturable=CUDA
        )

        def step() -> None:
            loss(tokens_BS).backward()
            adamw.step()
            adamw.zero_grad(set_to_none=True)

        def alone() -> Callable[[], object]:
            loss(tokens_BS).backward()
            return adamw.step

        return Parts(step, alone)

    return Candidate(model, lambda: loss(tokens_BS), {"masters": masters, "bf16": bf16})


def tokens(options: argparse.Namespace) -> Tensor:
    return torch.randint(options.vocabulary, (options.sequences, options.length + 1), device=DEVICE)


def kept_mib(candidate: Candidate) -> float:
    if not CUDA:
        return float("nan")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    loss = candidate.loss()
    held = (torch.cuda.memory_allocated() - before) / 2**20
    loss.backward()
    candidate.model.zero_grad(set_to_none=True)
    return held


def measure(makers: Makers, whole: bool, options: argparse.Namespace, found: dict[str, dict[str, float]]) -> None:
    """Those that are there together are timed in turn. Figures are left in `found` as they come."""
    there: dict[str, Candidate] = {}
    for name, make in makers.items():
        try:
            there[name] = make()
        except Exception as error:
            print(f"  {name} failed: {reason(error)}", flush=True)
    times = timed({name: one.both for name, one in there.items()})
    there = {name: there[name] for name in times}
    for name, one in there.items():
        count = sum(p.numel() for p in one.model.parameters())
        found[name] = {"params_m": count / 1e6, "fb_ms": times[name], "kept": one.kept()}
        found[name] |= {"peak_mib": peak_mib(one.both), "kept_mib": kept_mib(one)}
    for kind in ("masters", "bf16") if whole else ():
        parts = {name: one.optimizers[kind]() for name, one in there.items() if kind in one.optimizers}
        for name, taken in timed({name: part.step for name, part in parts.items()}).items():
            found[name] |= {f"{kind}_ms": taken}
            found[name] |= {f"{kind}_tokens_per_s": 1e3 * options.sequences * options.length / taken}
        for name, part in parts.items():  # one after the other: gradients stay meanwhile
            apart = timed({name: part.alone()}, recorded).get(name, float("nan"))
            share = options.sequences / PAPER_BATCH
            found[name] |= {f"{kind}_optimizer_ms": apart, f"{kind}_amortised_ms": times[name] + apart * share}
            there[name].model.zero_grad(set_to_none=True)
        parts.clear()


def timed(works: dict[str, Work], way: Callable[[Work], Work] | None = None) -> dict[str, float]:
    """Milliseconds of those that ran; of the others, why not."""
    ran = time_interleaved(works, budget_s=8.0, way=way)
    for name, why in ran.failures.items():
        print(f"  {name} failed: {why}", flush=True)
    return ran.ms


def cases(options: argparse.Namespace) -> dict[str, tuple[Makers, bool, bool]]:
    """Candidates, whether all fit on the device together, and whether their optimisers do."""

    def routed(name: str, experts: int, capacity: float = 0.0) -> Callable[[], Candidate]:
        router = RouterSpec(name, experts, routing_frequency=1.0, capacity_factor=capacity)
        return lambda: ours(router, "rope", options)

    def rivals(experts: int) -> Makers:
        return {f"theirs {form}": partial(theirs, experts, form, options) for form in FORMS}

    def beside(experts: int) -> Makers:
        return {
            "ours switch": routed("switch", experts),
            **rivals(experts),
            "ours s-base": routed("s-base", experts),
            "ours switch at capacity 2": routed("switch", experts, 2.0),
            "ours s-base at capacity 2": routed("s-base", experts, 2.0),
        }

    dense = {
        **rivals(0),
        "ours rope": lambda: ours(RouterSpec(), "rope", options),
        "ours xl": lambda: ours(RouterSpec(), "xl", options),
    }
    return {"dense": (dense, True, True), "e8": (beside(8), False, True), "e64": (beside(64), False, False)}


def ratios(case: str, found: dict[str, dict[str, float]]) -> dict[str, float]:
    """Theirs over ours, of each of their forms."""
    figures = {f"{case} {name}/{key}": rounded(value) for name, own in found.items() for key, value in own.items()}
    rivals = {form: found[f"theirs {form}"] for form in FORMS if f"theirs {form}" in found}
    for name, own in found.items():
        if name.startswith("theirs"):
            continue
        for key in (key for key in COMPARED if key in own):
            over = {form: rival[key] / own[key] for form, rival in rivals.items() if key in rival}
            figures |= {f"{case} {name}/of {form} {key}": rounded(ratio) for form, ratio in over.items()}
            if over and (target := TARGETS.get((case, name, key))):
                words = ", ".join(f"{ratio:.3f} of {form}" for form, ratio in over.items())
                print(f"{case}: {name}, {key}: {words}; target {target:g}", flush=True)
        if "masters_ms" in own and (steps := [rival["bf16_ms"] for rival in rivals.values() if "bf16_ms" in rival]):
            figures[f"{case} {name}/of best bf16 step"] = rounded(min(steps) / own["masters_ms"])
    return figures


def measure_case(case: str, options: argparse.Namespace, found: dict[str, dict[str, float]]) -> None:
    makers, together, whole = cases(options)[case]
    if unknown := set(options.only) - makers.keys():
        raise SystemExit(f"{case} has no {', '.join(sorted(unknown))}; there are {', '.join(makers)}.")
    makers = {name: make for name, make in makers.items() if not options.only or name in options.only}
    for part in [makers] if together else [{name: make} for name, make in makers.items()]:
        try:
            measure(part, whole, options, found)
        except Exception as error:
            print(f"{case} {', '.join(part)} failed: {reason(error)}", flush=True)
        release()
        for name in part:
            print(case, name, {key: rounded(value) for key, value in found.get(name, {}).items()}, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny models, to see that it works; leaves no line")
    parser.add_argument("--cases", nargs="+", default=["dense", "e8", "e64"])
    parser.add_argument("--only", nargs="+", default=[], help="candidates; by default all")
    parser.add_argument("--size", default="370M")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--budget-s", type=float, default=540.0, help="everything ends after this many seconds")
    options = parser.parse_args()
    if options.quick:
        options.size, options.sequences, options.length, options.vocabulary = "0.05M", 2, 32, 100
    data = f"{options.size}, {options.sequences} × {options.length} random tokens"
    with bounded(options.budget_s):
        for case in options.cases:
            found: dict[str, dict[str, float]] = {}
            try:
                measure_case(case, options, found)
            finally:
                figures = ratios(case, found)
                print({key: value for key, value in figures.items() if "/of " in key}, flush=True)
                if not options.quick:
                    ledger.append("gpu_transformers", data, figures, str(here()))


if __name__ == "__main__":
    main()
