"""A routed layer on a GPU against a compiled dense FFW of the same FLOPs, forward and backward, in one run.

    python benchmarks/gpu_layer.py [--quick] [--widths 512 1024 2048] [--experts 8 64 512]

65,536 tokens, K = 1, hidden layer 4d, bfloat16, weighted outputs; load even, and with Zipf's skew of .7. Figures are
fractions of the dense FFW's speed: dispatch, both products, GELU, combine and weighting, and all gradients. In the
race: our layer eager and compiled (its product is one operation to the compiler), and torch's `grouped_mm` in the
plainest layer around it, eager and compiled, as the baseline. Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import ledger
import torch
import torch.nn.functional as F
from gpu_clock import CUDA, DEVICE, DTYPE, device_words, medians, normal, peak_mib, rounded
from torch import Tensor

from routelaw.model.experts import Experts
from routelaw.routers.router import Routing

SKEW = 0.7


def choices(tokens: int, experts: int, skew: float) -> Tensor:
    """An expert for each token, in random order: even, or with a share of rank^−skew."""
    share_E = torch.arange(1, experts + 1, dtype=torch.float64) ** -skew
    taken_E = (tokens * share_E / share_E.sum()).floor().long()
    taken_E[0] += tokens - taken_E.sum()
    expert_N = torch.arange(experts).repeat_interleave(taken_E)
    return expert_N[torch.randperm(tokens, generator=torch.Generator().manual_seed(3))].to(DEVICE)


def plain_layer(x_TD: Tensor, up: Tensor, down: Tensor, expert_N: Tensor, weight_N: Tensor) -> Tensor:
    """The shortest layer around torch's own grouped product."""
    order_N = torch.argsort(expert_N, stable=True)
    one_E = torch.zeros(up.shape[0], dtype=torch.int32, device=x_TD.device)
    ends_E = one_E.scatter_add(0, expert_N, torch.ones_like(expert_N, dtype=torch.int32)).cumsum(0).to(torch.int32)
    hidden_NF = F.gelu(F.grouped_mm(x_TD[order_N], up, offs=ends_E))
    made_ND = F.grouped_mm(hidden_NF, down, offs=ends_E)
    return torch.empty_like(made_ND).index_copy(0, order_N, made_ND) * weight_N[:, None].to(made_ND.dtype)


def both_ways(function: Callable[[], Tensor], leaves: list[Tensor], against_TD: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(function(), leaves, against_TD)


def measure(width: int, experts: int, tokens: int, skew: float, dense_ms: float | None) -> dict[str, float]:
    torch._dynamo.reset()
    x_TD, against_TD = normal(tokens, width).requires_grad_(), normal(tokens, width, seed=1)
    layer = Experts(width, experts).to(DEVICE, DTYPE)
    for number, parameter in enumerate(layer.parameters()):
        parameter.data = normal(*parameter.shape, seed=2 + number, scale=parameter.shape[1] ** -0.5)
    expert_N = choices(tokens, experts, skew)
    weight_N = torch.rand(tokens, device=DEVICE).requires_grad_()
    kept_N = torch.ones(tokens, dtype=torch.bool, device=DEVICE)
    token_N = torch.arange(tokens, device=DEVICE)
    up, down = layer.up[0], layer.down[0]

    def ours(x_TD: Tensor, weight_N: Tensor) -> Tensor:
        return layer(x_TD, x_TD, Routing(token_N, expert_N, weight_N), kept_N)

    def plain(x_TD: Tensor, weight_N: Tensor) -> Tensor:
        return plain_layer(x_TD, up, down, expert_N, weight_N)

    leaves = [x_TD, weight_N, up, down]
    compiled_ours = torch.compile(ours, dynamic=False, fullgraph=True)
    compiled_plain = torch.compile(plain, dynamic=False, fullgraph=True)
    works = {
        "ours eager": both_ways(lambda: ours(x_TD, weight_N), leaves, against_TD),
        "ours compiled": both_ways(lambda: compiled_ours(x_TD, weight_N), leaves, against_TD),
        "grouped_mm eager": both_ways(lambda: plain(x_TD, weight_N), leaves, against_TD),
        "grouped_mm compiled": both_ways(lambda: compiled_plain(x_TD, weight_N), leaves, against_TD),
    }
    if not CUDA:
        works = {name: work for name, work in works.items() if "ours" in name}
    if dense_ms is None:
        works = {"dense": dense(x_TD, against_TD, width), **works}
    times = medians(works)
    dense_ms = dense_ms or times["dense"]
    figures = {name: rounded(dense_ms / ms) for name, ms in times.items() if name != "dense"}
    figures |= {"dense_ms": rounded(dense_ms), "ours_peak_mib": rounded(peak_mib(works["ours compiled"]))}
    reference_TD = plain_layer(x_TD, up, down, expert_N, weight_N) if CUDA else ours(x_TD, weight_N)
    wrong = (compiled_ours(x_TD, weight_N) - reference_TD).norm() / reference_TD.norm()
    figures["difference"] = rounded(float(wrong.detach()))
    return figures


def dense(x_TD: Tensor, against_TD: Tensor, width: int) -> Callable[[], object]:
    up = normal(width, 4 * width, seed=5, scale=width**-0.5).requires_grad_()
    down = normal(4 * width, width, seed=6, scale=(4 * width) ** -0.5).requires_grad_()
    ffw = torch.compile(lambda x_TD, up, down: F.gelu(x_TD @ up) @ down, dynamic=False)
    return both_ways(lambda: ffw(x_TD, up, down), [x_TD, up, down], against_TD)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few tokens, to see that it works; leaves no line")
    parser.add_argument("--widths", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--experts", type=int, nargs="+", default=[8, 64, 512])
    options = parser.parse_args()
    tokens, widths, counts = 65_536, options.widths, options.experts
    if options.quick:
        tokens, widths, counts = 256, [32], [4]
    figures: dict[str, float] = {}
    for width in widths:
        dense_ms = None
        for experts in counts:
            if width * width * experts > 1024 * 1024 * 512:
                continue  # 34 GB of weights and gradients: as in the table it is compared with
            for skew in (0.0, SKEW):
                if skew and experts > 64:
                    continue
                found = measure(width, experts, tokens, skew, dense_ms)
                dense_ms = found["dense_ms"]
                name = f"d={width} E={experts}" + (f" zipf {skew}" if skew else "")
                print(name, found, flush=True)
                figures |= {f"{name}/{key}": value for key, value in found.items()}
    if not options.quick:
        ledger.append("gpu_layer", f"{tokens} random tokens", figures, device_words())


if __name__ == "__main__":
    main()
