"""Sinkhorn on a GPU: our kernel against the plain form compiled by torch, in one run.

    python benchmarks/gpu_sinkhorn.py [--quick] [--tune]

65,536 tokens in one routing group and in four, 64 and 512 experts, scores of low rank with an uneven bias as a router's
are. The baseline is 16 iterations of the plain form, compiled, without a stop test; ours is timed for the same 16
iterations and for what a tolerance of 1e-2 takes, stop test included. The floor is one read of the logits per pass at
the bandwidth of a copy measured beside it. `--tune` tries other shapes of the kernel.
Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
import math
from itertools import product

import ledger
import torch
from gpu_clock import CUDA, device_words, medians, normal, rounded
from torch import Tensor

from routelaw.kernels.sinkhorn import expert_potentials, sinkhorn

ITERATIONS, TOLERANCE, CAP = 16, 1e-2, 200
UNREACHABLE = 1e-30


def plain_iterations(logits_GME: Tensor) -> Tensor:
    """What a compiler is given: the two updates, sixteen times."""
    _, members, experts = logits_GME.shape
    g_GE = torch.zeros_like(logits_GME[:, 0])
    for _ in range(ITERATIONS):
        f_GM = math.log(experts) - torch.logsumexp(logits_GME + g_GE[:, None], 2)
        g_GE = math.log(members) - torch.logsumexp(logits_GME + f_GM[:, :, None], 1)
    return g_GE


def scores(tokens: int, experts: int) -> Tensor:
    low_rank = normal(tokens, 16, dtype=torch.float32) @ normal(16, experts, seed=1, scale=0.25, dtype=torch.float32)
    return low_rank + normal(experts, seed=2, dtype=torch.float32)


def measure(groups: int, tokens: int, experts: int, tune: bool) -> dict[str, float]:
    logits_TE = scores(tokens, experts)
    members_GM = torch.arange(tokens, device=logits_TE.device).view(groups, -1)
    valid_T = torch.ones(tokens, dtype=torch.bool, device=logits_TE.device)
    given = (logits_TE, members_GM, valid_T)
    logits_GME = logits_TE.view(groups, -1, experts)
    g_GE, iterations_G, violation_G = expert_potentials(*given, TOLERANCE, CAP)
    _, wanted_GE, wanted_G, _ = sinkhorn(logits_GME.double(), valid_T.view(groups, -1), TOLERANCE, CAP)
    wrong = (g_GE.double() - wanted_GE).abs().max().item()
    print(f"  iterations {iterations_G.tolist()} (plain {wanted_G.tolist()}), violation {violation_G.max():.1e}, "
          f"largest difference of g from float64 {wrong:.1e}", flush=True)  # fmt: skip
    copied = torch.empty_like(logits_TE)
    compiled = torch.compile(plain_iterations, dynamic=False)
    times = medians({
        "compiled plain, 16": lambda: compiled(logits_GME),
        "ours, 16": lambda: expert_potentials(*given, UNREACHABLE, ITERATIONS),
        "ours, to 1e-2": lambda: expert_potentials(*given, TOLERANCE, CAP),
        "copy": lambda: copied.copy_(logits_TE),
    })  # fmt: skip
    floor = (float(iterations_G.max()) + 1) * times["copy"] / 2
    figures = {f"{name} (ms)": rounded(ms) for name, ms in times.items()}
    figures |= {
        "speedup, 16": rounded(times["compiled plain, 16"] / times["ours, 16"]),
        "to 1e-2 over floor": rounded(times["ours, to 1e-2"] / floor),
        "iterations": float(iterations_G.max()),
        "difference": rounded(wrong),
    }
    return figures | (tuned(given) if tune and CUDA else {})


def tuned(given: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
    from routelaw.kernels.sinkhorn_triton import Tuning, persistent_sinkhorn

    shapes = [
        Tuning(tile, warps, stages, per, 65536 // (32 * warps * per))
        for (tile, warps, per), stages in product([(4096, 8, 2), (8192, 8, 2), (2048, 4, 4), (8192, 16, 1)], (1, 2, 3))
    ]
    works = {
        f"tile {t.tile}, {t.warps} warps × {t.programs_per_processor}, {t.stages} stages": (
            lambda t=t: persistent_sinkhorn(*given, TOLERANCE, CAP, t)
        )
        for t in shapes
    }
    times = medians(works)
    for name, ms in sorted(times.items(), key=lambda pair: pair[1]):
        print(f"    {name}: {ms:.4f} ms", flush=True)
    return {f"tuned: {name}": rounded(ms) for name, ms in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few tokens, to see that it works; leaves no line")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    tokens = 512 if options.quick else 65_536
    figures: dict[str, float] = {}
    for experts, groups in ((64, 1), (64, 4), (512, 1), (512, 4)):
        name = f"{tokens}x{experts}, {groups} groups"
        print(name, flush=True)
        found = measure(groups, tokens, experts, options.tune and groups == 4)
        for key, value in found.items():
            print(f"  {key}: {value}", flush=True)
        figures |= {f"{name}/{key}": value for key, value in found.items()}
    if not options.quick:
        ledger.append("gpu_sinkhorn", "low-rank scores", figures, device_words())


if __name__ == "__main__":
    main()
