"""A routed layer on a GPU against a compiled dense FFW of the same FLOPs, forward and backward, in one run.

    python benchmarks/gpu_layer.py [--quick] [--widths 512 1024 2048] [--experts 8 64 512]

65,536 tokens, K = 1, hidden layer 4d, bfloat16, weighted outputs; load even, and with Zipf's skew of .7. Figures are
fractions of the dense FFW's speed: dispatch, both products, GELU, combine and weighting, and all gradients. In the
race: our layer and, as the baseline, torch's `grouped_mm` in the plainest layer around it, both eager and compiled; and
its products alone, without a layer around them (ours may be others where experts have few rows). All run as CUDA
graphs; ours once more with every kernel launched by the processor. Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse

import ledger
from budget import kept

from routelaw.bench import layer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few tokens, to see that it works; leaves no line")
    parser.add_argument("--widths", type=int, nargs="+", default=list(layer.FULL.widths))
    parser.add_argument("--experts", type=int, nargs="+", default=list(layer.FULL.experts))
    given = parser.parse_args()
    small = layer.QUICK
    options = layer.Options(tuple(given.widths), tuple(given.experts), layer.FULL.tokens, compile=True)
    if given.quick:
        options = layer.Options(small.widths, small.experts, small.tokens, compile=True)
    table = layer.table(options, kept(layer.rows(options)))
    if not given.quick:
        ledger.append_table("gpu_layer", table)


if __name__ == "__main__":
    main()
