"""Where a whole model's forward and backward pass spends its time on a GPU: kernels by name, summed over one pass.

    python benchmarks/gpu_profile.py [--size 130M] [--router dense] [--experts 64] [--positions rope] [--top 25]

The model is that of gpu_step.py. Prints milliseconds, share and calls; nothing is recorded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import torch
from torch.profiler import ProfilerActivity, profile

from routelaw.bench.clock import CUDA, here
from routelaw.bench.models import Options, Trial


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--size", default="130M")
    parser.add_argument("--router", default="dense")
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--positions", default="rope")
    parser.add_argument("--tokens", type=int, default=32_768)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--top", type=int, default=25)
    asked = parser.parse_args()
    shape = Options(
        experts=asked.experts, tokens=asked.tokens, length=asked.length, vocabulary=asked.vocabulary, compile=True
    )
    trial = Trial("profiled", shape.spec(asked.size, asked.router, asked.positions), shape)
    for _ in range(3):
        trial.forward_and_backward()
    activity = ProfilerActivity.CUDA if CUDA else ProfilerActivity.CPU
    with profile(activities=[activity]) as found:
        trial.forward_and_backward()
        if CUDA:
            torch.cuda.synchronize()
    spent, calls = defaultdict(float), defaultdict(int)
    for event in found.events():
        spent[event.name] += (event.device_time if CUDA else event.self_cpu_time_total) / 1e3
        calls[event.name] += 1
    total = sum(spent.values())
    print(f"{here()}: {asked.size} {asked.router} {asked.positions}, {total:.1f} ms of kernels")
    for name in sorted(spent, key=lambda n: -spent[n])[: asked.top]:
        print(f"{spent[name]:8.2f} ms {spent[name] / total:6.1%} {calls[name]:5}× {name[:110]}")


if __name__ == "__main__":
    main()
