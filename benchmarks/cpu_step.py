"""A training step on a CPU: routed models against the dense one of equal N, in one run.

    python benchmarks/cpu_step.py [--sizes 0.8M 3M] [--rounds 9] [--vocabulary 4096]

Forward, backward and optimizer of a batch of 8 × 256 random tokens in float32 on one thread, with E = 16, K = 1 and the
capacity of the paper (2) at half of the blocks. A routed model of equal N does the same products, in smaller pieces,
and steps 15·8·d² more parameters per routed block. It may cost 25 % more than the dense one. Models take turns, so
that other work on the machine disturbs all alike, and the median over rounds of (routed / dense of the same round)
counts. Times are CPU seconds of the process. A small vocabulary makes it harder: the product with the embedding is the
same for all.
Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

import ledger
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from routelaw.model.transformer import Transformer
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import train_step

ROUTERS = ("hash", "switch", "s-base")
EXPERTS, BATCH, LENGTH = 16, 8, 256
WANTED = 1.25


@dataclass
class Candidate:
    spec: RunSpec
    model: Transformer
    optimizer: Optimizer

    @classmethod
    def of(cls, size: str, router: RouterSpec, vocabulary: int) -> Candidate:
        model = ModelSpec(get_size(size), vocabulary, LENGTH)
        spec = RunSpec(model, router, TrainSpec(steps=1000, batch=BATCH), corpus="random tokens")
        built = Transformer(spec)
        return cls(spec, built, Optimizer(built, spec.train))

    def seconds(self, tokens_BS: Tensor, step: int) -> float:
        begin = time.process_time()
        train_step(self.model, self.optimizer, tokens_BS, self.spec, step)
        return time.process_time() - begin


def measure(size: str, vocabulary: int, rounds: int) -> tuple[float, dict[str, float]]:
    """Median seconds of a dense step, and the median ratio of each router's step to it."""
    dense = Candidate.of(size, RouterSpec(), vocabulary)
    routed = {name: Candidate.of(size, RouterSpec(name, EXPERTS), vocabulary) for name in ROUTERS}
    generator = torch.Generator().manual_seed(0)
    of_dense: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in routed}
    for step in range(rounds + 1):
        tokens_BS = torch.randint(vocabulary, (BATCH, LENGTH + 1), generator=generator)
        plain = dense.seconds(tokens_BS, step)
        taken = {name: candidate.seconds(tokens_BS, step) for name, candidate in routed.items()}
        if step == 0:  # fills memory and caches
            continue
        of_dense.append(plain)
        for name, seconds in taken.items():
            ratios[name].append(seconds / plain)
    return statistics.median(of_dense), {name: statistics.median(values) for name, values in ratios.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--sizes", nargs="+", default=["0.8M", "3M"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--vocabulary", type=int, default=4096)
    options = parser.parse_args()
    ledger.use_one_thread()
    torch.set_num_threads(1)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    title = f"A step of E = {EXPERTS}, K = 1 over a dense one ({BATCH} × {LENGTH} tokens, one thread)"
    table = Table("size", "dense step", *ROUTERS, "wanted", "", title=title)
    figures: dict[str, float] = {}
    passed = True
    for size in options.sizes:
        with console.status(f"measuring {size} …"):
            dense, ratios = measure(size, options.vocabulary, options.rounds)
        good = all(ratio <= WANTED for ratio in ratios.values())
        passed &= good
        shown = [f"{ratio:.3f}×" for ratio in ratios.values()]
        table.add_row(size, f"{1e3 * dense:.0f} ms", *shown, f"≤ {WANTED}×", "✓" if good else "✗")
        figures[f"{size}/dense_s"] = float(f"{dense:.4g}")
        figures |= {f"{size}/{name}": float(f"{ratio:.4g}") for name, ratio in ratios.items()}
    console.print(table)
    ledger.append("cpu_step", f"random tokens, vocabulary {options.vocabulary}", figures)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
