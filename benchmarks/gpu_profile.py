"""Where a whole model's forward and backward pass spends its time on a GPU: kernels by name, summed over one pass.

    python benchmarks/gpu_profile.py [--size 130M] [--router dense] [--experts 64] [--positions rope] [--top 25]

The model is that of gpu_step.py. Prints milliseconds, share and calls; nothing is recorded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import torch
from gpu_clock import CUDA, DEVICE, device_words
from gpu_step import built, forward_and_backward
from torch.profiler import ProfilerActivity, profile

from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size


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
    router = RouterSpec() if asked.router == "dense" else RouterSpec(asked.router, asked.experts)
    model = ModelSpec(get_size(asked.size), asked.vocabulary, asked.length, asked.positions)
    spec = RunSpec(model, router, TrainSpec(steps=10, batch=asked.tokens // asked.length), "random tokens")
    net = built(spec).train()
    tokens_BS = torch.randint(asked.vocabulary, (spec.train.batch, asked.length + 1), device=DEVICE)
    step = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(3):
        forward_and_backward(net, tokens_BS, step)
    activity = ProfilerActivity.CUDA if CUDA else ProfilerActivity.CPU
    with profile(activities=[activity]) as found:
        forward_and_backward(net, tokens_BS, step)
        if CUDA:
            torch.cuda.synchronize()
    spent, calls = defaultdict(float), defaultdict(int)
    for event in found.events():
        spent[event.name] += (event.device_time if CUDA else event.self_cpu_time_total) / 1e3
        calls[event.name] += 1
    total = sum(spent.values())
    print(f"{device_words()}: {asked.size} {asked.router} {asked.positions}, {total:.1f} ms of kernels")
    for name in sorted(spent, key=lambda n: -spent[n])[: asked.top]:
        print(f"{spent[name]:8.2f} ms {spent[name] / total:6.1%} {calls[name]:5}× {name[:110]}")


if __name__ == "__main__":
    main()
