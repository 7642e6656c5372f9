"""Whole models on a GPU: what routing adds to a dense model of equal N, forward and backward, and the whole step.

    python benchmarks/gpu_step.py [--quick] [--sizes 130M 370M] [--experts 64] [--tokens 32768] [--whole]

Vocabulary 32,000, sequences of 2048, K = 1, R = ½, capacity 2, bfloat16, blocks compiled. A router's figure is its time
over that of `switch` and over that of the dense model. `--whole` adds the optimiser's step (float32 masters, fused
AdamW), alone and amortised over the paper's batch of 256 sequences. Graphs compiled and waits for the device are
counted in a step after the first ones. Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable

import ledger
import torch
from gpu_clock import CUDA, DEVICE, DTYPE, device_words, medians, peak_mib, rounded
from torch import Tensor

from routelaw.model.transformer import Transformer
from routelaw.specs.architecture import Architecture
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import layer_losses, step_context, take_step, weighted_sum

ROUTERS = ("dense", "switch", "s-base", "rl-r", "hash")
PAPER_BATCH = 256


def built(spec: RunSpec) -> Transformer:
    """Drawn where it is used: a billion numbers take a CPU a minute."""
    honest, Transformer.initialise = Transformer.initialise, lambda self, seed: None
    try:
        with torch.device(DEVICE):
            model = Transformer(spec).to(DTYPE)
    finally:
        Transformer.initialise = honest
    for name, parameter in model.named_parameters():
        if "norm" in name or name.endswith("router.bias"):
            parameter.data.fill_(float("norm" in name and not name.endswith("bias")))
        else:
            parameter.data.normal_(0, 0.02)
    for block in model.blocks:
        block.compile(fullgraph=True, dynamic=False)
    return model


def forward_and_backward(model: Transformer, tokens_BS: Tensor, step: Tensor) -> None:
    ids_BS, target_T = tokens_BS[:, :-1], tokens_BS[:, 1:].flatten()
    output = model(ids_BS, step_context(model.spec, step, ids_BS, 0))
    nll_T = model.token_nll(output.hidden_TD, target_T)
    losses = layer_losses(model, output, nll_T.detach())
    (nll_T.sum() / nll_T.numel() + weighted_sum(model, losses, nll_T)).backward()
    for parameter in model.parameters():
        parameter.grad = None


def dropped_share(model: Transformer, tokens_BS: Tensor, step: Tensor) -> float:
    """Of all assignments: what is dropped is not computed, so that a router that drops looks quick."""
    with torch.no_grad():
        output = model(tokens_BS[:, :-1], step_context(model.spec, step, tokens_BS[:, :-1], 0))
    kept = [layer.kept_N.float().mean() for layer in output.layers]
    return 1 - float(sum(kept)) / len(kept) if kept else 0.0


def graphs_made() -> int:
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def waits(work: Callable[[], object]) -> int:
    """1 if the call waits for the device, and the reason is printed."""
    if not CUDA:
        return 0
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
        return 0
    except RuntimeError as error:
        print(f"  waits: {error}", flush=True)
        return 1
    finally:
        torch.cuda.set_sync_debug_mode("default")


def measure(architecture: Architecture, router: RouterSpec, positions: str, options: argparse.Namespace) -> dict:
    torch._dynamo.reset()
    before = graphs_made()
    sequences = options.tokens // options.length
    spec = RunSpec(
        ModelSpec(architecture, options.vocabulary, options.length, positions),
        router,
        TrainSpec(steps=1000, batch=sequences),
        corpus="random tokens",
    )
    model = built(spec).train()
    tokens_BS = torch.randint(options.vocabulary, (sequences, options.length + 1), device=DEVICE)
    step = torch.zeros((), dtype=torch.int64, device=DEVICE)

    def both() -> None:
        step.add_(1)
        forward_and_backward(model, tokens_BS, step)

    found = {"fb_ms": medians({"fb": both})["fb"], "fb_peak_mib": peak_mib(both)}
    found["graphs"] = graphs_made() - before
    with torch.compiler.set_stance("force_eager"):
        found["dropped"] = dropped_share(model, tokens_BS, step)
    found["waits"] = waits(both)
    if options.whole and spec.counts.total_params * 20 < 1e11:
        optimizer = Optimizer(model, spec.train)
        number = iter(range(10**6))
        found["step_ms"] = medians({"step": lambda: take_step(model, optimizer, tokens_BS, spec, next(number))})["step"]
        found["waits_in_step"] = waits(lambda: take_step(model, optimizer, tokens_BS, spec, next(number)))
        found["optimizer_ms"] = found["step_ms"] - found["fb_ms"]
        found["amortised_ms"] = found["fb_ms"] + found["optimizer_ms"] * sequences / PAPER_BATCH
    found["tokens_per_s"] = 1e3 * options.tokens / found.get("step_ms", found["fb_ms"])
    found["graphs_later"] = graphs_made() - before - found["graphs"]
    return {key: rounded(value) for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny models, to see that it works; leaves no line")
    parser.add_argument("--sizes", nargs="+", default=["130M", "370M"])
    parser.add_argument("--routers", nargs="+", default=list(ROUTERS))
    parser.add_argument("--positions", nargs="+", default=["rope", "xl"])
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.routers, options.positions = ["0.05M"], ["dense", "switch", "s-base"], ["rope"]
        options.tokens, options.length, options.vocabulary, options.experts = 256, 64, 100, 4
    figures: dict[str, float] = {}
    for size in options.sizes:
        for positions in options.positions:
            times: dict[str, float] = {}
            for name in options.routers:
                router = RouterSpec() if name == "dense" else RouterSpec(name, options.experts)
                try:
                    found = measure(get_size(size), router, positions, options)
                except Exception as error:
                    print(f"{size} {positions} {name} failed: {type(error).__name__}: {str(error)[:400]}", flush=True)
                    continue
                finally:
                    gc.collect()
                    torch.cuda.empty_cache()
                times[name] = found["fb_ms"]
                found |= {f"over_{o}": rounded(found["fb_ms"] / times[o]) for o in ("dense", "switch") if o in times}
                print(size, positions, name, found, flush=True)
                figures |= {f"{size} {positions} {name}/{key}": value for key, value in found.items()}
    if not options.quick:
        ledger.append("gpu_step", f"{options.tokens} random tokens, E = {options.experts}", figures, device_words())


if __name__ == "__main__":
    main()
