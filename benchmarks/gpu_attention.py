"""Attention with relative positions on a GPU: ways to put it together against flash attention, in one run.

    python benchmarks/gpu_attention.py [--quick]

Forward and backward in bfloat16, compiled and recorded as CUDA graphs (up to commit 66c457a the processor launched all
kernels); flash attention without the relative term is 1. The relative term is q_i·r_{i−j}, r a projection of sinusoids,
as in Transformer-XL without global biases; `ours` is what the model does (pieces of 512), the others are candidates for
it; `rope` is flash attention with rotated queries and keys. Peak memory is given beside. Appends one line to
results.jsonl.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import ledger
from budget import kept

from routelaw.bench import attention


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few tokens, to see that it works; leaves no line")
    given = parser.parse_args()
    options = replace(attention.QUICK if given.quick else attention.FULL, compile=True)
    table = attention.table(options, kept(attention.rows(options)))
    if not given.quick:
        ledger.append_table("gpu_attention", table)


if __name__ == "__main__":
    main()
