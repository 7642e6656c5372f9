"""Whole training steps beside Hugging Face transformers: our dense model and Llama, our routed one and Mixtral top-1.

    python -m benchmarks.gpu_transformers [--quick] [--cases dense e8 e64] [--only "ours switch" …] [--limit 540]

Theirs are as large as one of our sizes and at its FLOPs per token. Ours has an FFW of two matrices, d × 4d. Theirs is
gated and has three, d × 8d/3, rounded to 64: the same products, so the same FLOPs and as many parameters. Positions are
rotary, embeddings tied, attention is torch's (`sdpa`), experts are `grouped_mm`, one expert a token. Mixtral's balance
loss is left out, as it is by its default: ours pays for one. What is measured is said in descriptions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.script import run
from routelaw.bench.clock import CUDA, DEVICE, DTYPE, Work, here, peak_mib, reason, recorded, release, time_interleaved
from routelaw.bench.models import PAPER_BATCH, TimedModel, optimizer_alone
from routelaw.bench.models import Options as ModelOptions
from routelaw.bench.peers import transformers_shape
from routelaw.bench.results import Row, row
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import take_step

COMPARED = ("fb_ms", "peak_mib", "kept_mib", "masters_ms", "masters_amortised_ms")
GATED_MULTIPLE = 64
"""Widths of gated FFWs are multiples of this: the tensor cores' tiles."""
MASKLESS = "causal_sdpa"
FORMS = ("eager", "flash", "compiled")
BACKEND = "inductor" if CUDA else "aot_eager"
"""On a CPU only the way is tried, and there the compiler takes a minute."""


@dataclass(frozen=True)
class Options:
    cases: tuple[str, ...] = ("dense", "e8", "e64")
    only: tuple[str, ...] = ()
    """Candidates; all unless given."""
    size: str = "370M"
    sequences: int = 16
    length: int = 2048
    vocabulary: int = 32_000

    @property
    def train(self) -> TrainSpec:
        return TrainSpec(steps=1000, batch=self.sequences)


QUICK = {"size": "0.05M", "sequences": 2, "length": 32, "vocabulary": 100}


@dataclass
class OptimizerWork:
    """What is measured of an optimiser."""

    step: Callable[[], object]
    """A whole one."""
    alone: Callable[[], Work]
    """Takes the gradients, and returns what then remains of a step."""


@dataclass
class Implementation:
    model: nn.Module
    loss: Callable[[], Tensor]
    optimizers: dict[str, Callable[[], OptimizerWork]]
    """What makes each: its state is there only while it is measured."""
    kept: Callable[[], float] = lambda: 1.0
    """Share of tokens that reach an expert."""

    def both(self) -> None:
        self.loss().backward()
        for parameter in self.model.parameters():
            parameter.grad = None


Makers = dict[str, Callable[[], Implementation]]


def ours(router: RouterSpec, positions: str, options: Options) -> Implementation:
    shape = ModelSpec(get_size(options.size), options.vocabulary, options.length, positions)
    spec = RunSpec(shape, router, options.train, corpus="random tokens")
    timed = TimedModel("ours", spec, ModelOptions(length=options.length, vocabulary=options.vocabulary, compile=CUDA))

    shares: list[Tensor] = []

    def loss() -> Tensor:
        value, output = timed.loss()
        shares[:] = [layer.kept_N.float().mean() for layer in output.layers]
        return value

    def masters() -> OptimizerWork:
        optimizer, count = Optimizer(timed.model, spec.train), iter(range(10**6))
        return OptimizerWork(
            lambda: take_step(timed.model, optimizer, timed.tokens_BS, spec, next(count)),
            partial(optimizer_alone, optimizer, lambda: loss().backward()),
        )

    return Implementation(
        timed.model, loss, {"masters": masters}, lambda: torch.stack(shares).mean().item() if shares else 1.0
    )


def theirs(experts: int, form: str, options: Options) -> Implementation:
    model = build_theirs(experts, form, options)
    called = model if form == "eager" else torch.compile(model, backend=BACKEND)
    ids_BS = torch.randint(options.vocabulary, (options.sequences, options.length), device=DEVICE)

    def loss() -> Tensor:
        """As their users write it; the model shifts the labels itself."""
        return called(input_ids=ids_BS, labels=ids_BS).loss  # pyrefly: ignore

    def masters() -> OptimizerWork:
        optimizer = Optimizer(model, options.train)

        def step() -> None:
            loss().backward()
            optimizer.accumulate_gradients()
            norm = optimizer.gradient_norm()
            optimizer.step(options.train.learning_rate, norm, torch.isfinite(norm))
            optimizer.clear()

        return OptimizerWork(step, partial(optimizer_alone, optimizer, lambda: loss().backward()))

    def bf16() -> OptimizerWork:
        rate = options.train.learning_rate
        adamw = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), fused=True, capturable=CUDA)

        def step() -> None:
            loss().backward()
            adamw.step()
            adamw.zero_grad(set_to_none=True)

        def alone() -> Work:
            loss().backward()
            return adamw.step

        return OptimizerWork(step, alone)

    return Implementation(model, loss, {"masters": masters, "bf16": bf16})


def build_theirs(experts: int, form: str, options: Options) -> nn.Module:
    """Llama, or with experts Mixtral with all blocks routed, drawn on the device in the type it computes in; Mixtral's
    compiler knows `grouped_mm` in bfloat16 alone.

    Forms: `eager`; `compiled`, as it comes; `flash`, compiled with one correction. Under a compiler transformers 5.17
    hands the attention a causal mask as a tensor, which flash attention does not take; eager, it leaves the mask out.
    """
    from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig, MixtralConfig

    AttentionInterface.register(MASKLESS, maskless)
    shape = transformers_shape(get_size(options.size), options.vocabulary, options.length, GATED_MULTIPLE)
    mixtral = {"num_local_experts": experts, "num_experts_per_tok": 1}
    config = MixtralConfig(**shape, **mixtral) if experts else LlamaConfig(**shape)
    chosen = {"experts_implementation": "grouped_mm"} if experts else {}
    chosen["attn_implementation"] = MASKLESS if form == "flash" else "sdpa"
    dtype = torch.bfloat16 if experts else DTYPE
    with torch.device(DEVICE):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, **chosen)
    if experts and model.config._experts_implementation != "grouped_mm":
        raise RuntimeError(f"experts run by {model.config._experts_implementation}, not by grouped_mm")
    return model.train()


def maskless(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, scaling: float, **_: object
) -> tuple[Tensor, None]:
    """Whole sequences without padding: causal is all there is to say. As many keys as queries, as in the shape."""
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return mixed.transpose(1, 2).contiguous(), None


def kept_mib(one: Implementation) -> float:
    """What the forward pass leaves for the backward one."""
    if not CUDA:
        return float("nan")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    loss = one.loss()
    held = (torch.cuda.memory_allocated() - before) / 2**20
    loss.backward()
    one.model.zero_grad(set_to_none=True)
    return held


def measure(case: str, makers: Makers, whole: bool, options: Options) -> Iterator[Row]:
    """Those that are there together are timed in turn."""
    there: dict[str, Implementation] = {}
    for name, make in makers.items():
        try:
            there[name] = make()
        except Exception as error:
            yield row(f"{case} {name}", {}, {"built": reason(error)})
    ran = time_interleaved({name: one.both for name, one in there.items()}, budget_s=8.0)
    for name in list(there):
        if name in ran.failures:
            del there[name]
            yield row(f"{case} {name}", {}, {"fb_ms": ran.failures[name]})
            continue
        one = there[name]
        figures = {"params_m": sum(p.numel() for p in one.model.parameters()) / 1e6, "fb_ms": ran.ms[name]}
        figures |= {"kept": one.kept(), "peak_mib": peak_mib(one.both), "kept_mib": kept_mib(one)}
        yield row(f"{case} {name}", figures)
    for kind in ("masters", "bf16") if whole else ():
        works = {name: one.optimizers[kind]() for name, one in there.items() if kind in one.optimizers}
        steps = time_interleaved({name: work.step for name, work in works.items()}, budget_s=8.0)
        for name, work in works.items():  # one after the other: gradients stay meanwhile
            apart = time_interleaved({name: work.alone()}, budget_s=8.0, way=recorded)
            alone, step = (times.ms.get(name, float("nan")) for times in (apart, steps))
            figures = {f"{kind}_ms": step, f"{kind}_tokens_per_s": 1e3 * options.sequences * options.length / step}
            amortised = ran.ms[name] + alone * options.sequences / PAPER_BATCH
            figures |= {f"{kind}_optimizer_ms": alone, f"{kind}_amortised_ms": amortised}
            failures = {f"{kind}_ms": steps.failures.get(name), f"{kind}_optimizer_ms": apart.failures.get(name)}
            yield row(f"{case} {name}", figures, {column: why for column, why in failures.items() if why})
            there[name].model.zero_grad(set_to_none=True)


def cases(options: Options) -> dict[str, tuple[Makers, bool, bool]]:
    """Implementations, whether all fit on the device together, and whether their optimisers do."""

    def routed(name: str, experts: int, capacity: float = 0.0) -> Callable[[], Implementation]:
        router = RouterSpec(name, experts, routing_frequency=1.0, capacity_factor=capacity)
        return lambda: ours(router, "rope", options)

    def others(experts: int) -> Makers:
        return {f"theirs {form}": partial(theirs, experts, form, options) for form in FORMS}

    def beside(experts: int) -> Makers:
        return {
            "ours switch": routed("switch", experts),
            **others(experts),
            "ours s-base": routed("s-base", experts),
            "ours switch at capacity 2": routed("switch", experts, 2.0),
            "ours s-base at capacity 2": routed("s-base", experts, 2.0),
        }

    dense = others(0) | {f"ours {positions}": partial(ours, RouterSpec(), positions, options) for positions in
                         ("rope", "xl")}  # fmt: skip
    return {"dense": (dense, True, True), "e8": (beside(8), False, True), "e64": (beside(64), False, False)}


def ratios(case: str, found: dict[str, dict[str, float]], new: Makers) -> Iterator[Row]:
    """Theirs over ours, of each of their forms, where one of both is new."""
    others = {form: found[f"theirs {form}"] for form in FORMS if f"theirs {form}" in found}
    steps = [other["bf16_ms"] for other in others.values() if "bf16_ms" in other]
    for name, own in found.items():
        if name.startswith("ours") and (name in new or any(other.startswith("theirs") for other in new)):
            over = {
                f"of {form} {key}": other[key] / own[key]
                for key in COMPARED for form, other in others.items() if key in own and key in other
            }  # fmt: skip
            if steps and "masters_ms" in own:
                over["of best bf16 step"] = min(steps) / own["masters_ms"]
            yield row(f"{case} {name}", over)


def rows(options: Options) -> Iterator[Row]:
    for case in options.cases:
        makers, together, whole = cases(options)[case]
        if unknown := set(options.only) - makers.keys():
            raise SystemExit(f"{case} has no {', '.join(sorted(unknown))}; there are {', '.join(makers)}.")
        makers = {name: make for name, make in makers.items() if not options.only or name in options.only}
        found: dict[str, dict[str, float]] = {}
        for part in [makers] if together else [{name: make} for name, make in makers.items()]:
            try:
                for one in measure(case, part, whole, options):
                    found.setdefault(one.name.removeprefix(f"{case} "), {}).update(one.figures)
                    yield one
            except Exception as error:
                yield row(f"{case} {', '.join(part)}", {}, {"everything": reason(error)})
            release()
            yield from ratios(case, found, part)


def data(options: Options) -> str:
    return f"{options.size}, {options.sequences} × {options.length} random tokens"


if __name__ == "__main__":
    run("gpu_transformers", __doc__, Options, rows, data, quick=QUICK, device=here)
