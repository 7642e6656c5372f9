"""Whole models on a GPU: what routing adds to a dense model of equal N, forward and backward, and the whole step.

    python benchmarks/gpu_step.py [--quick] [--sizes 130M 370M] [--experts 64] [--tokens 32768] [--no-whole]
        [--budget-s 540]

Vocabulary 32,000, sequences of 2048, K = 1, R = ½, nothing dropped, bfloat16, blocks compiled. A router's figure is its
time over that of `switch` and over that of the dense model; all models of a size take turns (up to commit 66c457a each
was timed by itself). Beside it the whole step (float32 masters, fused AdamW), the optimiser alone and amortised over
the paper's batch of 256 sequences, of models below 5B parameters. Graphs compiled and waits for the device are counted
in a step after the first ones. Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import ledger
from budget import kept

from routelaw.bench import models


def main() -> None:
    full = models.FULL
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny models, to see that it works; leaves no line")
    parser.add_argument("--sizes", nargs="+", default=list(full.sizes))
    parser.add_argument("--routers", nargs="+", default=list(full.routers))
    parser.add_argument("--positions", nargs="+", default=list(full.positions))
    parser.add_argument("--experts", type=int, default=full.experts)
    parser.add_argument("--tokens", type=int, default=full.tokens)
    parser.add_argument("--length", type=int, default=full.length)
    parser.add_argument("--vocabulary", type=int, default=full.vocabulary)
    parser.add_argument("--capacity", type=float, default=full.capacity)
    parser.add_argument("--whole", action=argparse.BooleanOptionalAction, default=full.whole, help="time that, too")
    parser.add_argument("--budget-s", type=float, default=540.0, help="everything ends after this many seconds")
    given = vars(parser.parse_args())
    quick, budget_s = given.pop("quick"), given.pop("budget_s")
    lists = {name: tuple(given.pop(name)) for name in ("sizes", "routers", "positions")}
    options = models.Options(**lists, **given, compile=True)
    if quick:
        options = replace(models.QUICK, whole=options.whole, compile=True)
    table = models.table(options, kept(models.rows(options), budget_s))
    if not quick:
        ledger.append_table("gpu_step", table)


if __name__ == "__main__":
    main()
