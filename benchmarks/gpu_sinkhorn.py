"""Sinkhorn on a GPU: our kernel against the plain form compiled by torch, in one run.

    python benchmarks/gpu_sinkhorn.py [--quick] [--tune]

65,536 tokens in one routing group and in four, 64 and 512 experts, scores of low rank with an uneven bias as a router's
are. The baseline is 16 iterations of the plain form, compiled, without a stop test; ours is timed for the same 16
iterations and for what a tolerance of 1e-2 takes, stop test included. The floor is one read of the logits per pass at
the bandwidth of a copy measured beside it. All run as CUDA graphs. `--tune` tries other shapes of the kernel. Appends
one line to results.jsonl.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import ledger
from budget import kept

from routelaw.bench import sinkhorn


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few tokens, to see that it works; leaves no line")
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    options = replace(sinkhorn.QUICK if given.quick else sinkhorn.FULL, tune=given.tune, compile=True)
    table = sinkhorn.table(options, kept(sinkhorn.rows(options)))
    if not given.quick:
        ledger.append_table("gpu_sinkhorn", table)


if __name__ == "__main__":
    main()
