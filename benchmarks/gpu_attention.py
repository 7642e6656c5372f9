"""Attention with relative positions on a GPU: ways to put it together against flash attention, in one run.

    python benchmarks/gpu_attention.py [--quick]

Forward and backward in bfloat16; flash attention without the relative term is 1. The relative term is q_i·r_{i−j}, r a
projection of sinusoids, as in Transformer-XL without global biases; `ours` is what the model does, the others are
candidates for it; `rope` is flash attention with rotated queries and keys. Peak memory is given beside.
Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

import ledger
import torch
import torch.nn.functional as F
from gpu_clock import CUDA, DEVICE, device_words, medians, normal, peak_mib, rounded
from torch import Tensor

from routelaw.model.attention import by_distance_to_by_key, rotate, turns

SHAPES = [(8, 2048, 8, 64), (8, 2048, 16, 64), (4, 2048, 16, 128)]
CHUNKS = 4
TURNS: dict[tuple[int, int], Tensor] = {}
"""By length and key size: the model makes them once for all blocks."""
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def flash(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rope(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    table = TURNS[q.shape[-2:]]
    return flash(rotate(q, table), rotate(k, table), v, r_SHV)


def bias_of(q: Tensor, r_SHV: Tensor) -> Tensor:
    S, V = q.shape[-2:]
    by_distance = torch.einsum("bhsv,thv->bhst", q, r_SHV) / math.sqrt(V)
    future = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1)
    return by_distance_to_by_key(by_distance).masked_fill(future, float("-inf"))


def biased(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """The bias of all pairs, handed to the fused attention."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias_of(q, r_SHV))


def biased_causal(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """The same kernel, which leaves out what lies ahead by itself; what it does not look at need not be masked."""
    bias = by_distance_to_by_key(torch.einsum("bhsv,thv->bhst", q, r_SHV) / math.sqrt(q.shape[-1]))
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    return attend(q, k, v, bias, True, 0.0, True)[0]


def written_out(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """Plain products around one softmax: what lies between them a compiler can fuse."""
    S, V = q.shape[-2:]
    # Row i of the scores by distance, read at i−j: a view where the memory of the padded scores is seen askew.
    turned = torch.einsum("bhsv,thv->bhst", q, r_SHV.flip(0))
    askew = F.pad(turned, (0, 1)).flatten(2)[:, :, S - 1 : -1].unflatten(2, (S, S))
    future = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1)
    scores = ((q @ k.transpose(2, 3) + askew) / math.sqrt(V)).masked_fill(future, float("-inf"))
    return scores.float().softmax(-1).to(q.dtype) @ v


def in_chunks(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """Queries a piece at a time, with the keys up to their end: nearly half of the pairs are never made."""
    S, V = q.shape[-2:]
    size = S // CHUNKS
    out = []
    for first in range(0, S, size):
        end = first + size
        rows = q[:, :, first:end]
        turned = torch.einsum("bhsv,thv->bhst", rows, r_SHV[:end].flip(0))  # column c is distance end−1−c
        askew = F.pad(turned, (0, 1)).flatten(2)[:, :, size - 1 : -1].unflatten(2, (size, end))
        future = torch.ones(size, end, dtype=torch.bool, device=q.device).triu(first + 1)
        scores = (rows @ k[:, :, :end].transpose(2, 3) + askew) / math.sqrt(V)
        out.append(scores.masked_fill(future, float("-inf")).float().softmax(-1).to(q.dtype) @ v[:, :, :end])
    return torch.cat(out, 2)


def flexible(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """torch's FlexAttention, which reads the scores by distance inside its kernel."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    S, V = q.shape[-2:]
    by_distance = torch.einsum("bhsv,thv->bhst", q, r_SHV) / math.sqrt(V)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device=str(q.device))
    return flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: s + by_distance[b, h, i, (i - j).clamp(min=0)], block_mask=mask
    )


def both_ways(attend: Attend, inputs: list[Tensor], against: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(attend(*inputs), inputs, against, allow_unused=True)


def measure(B: int, S: int, H: int, V: int) -> dict[str, float]:
    torch._dynamo.reset()
    q, k, v = (normal(B, S, H, V, seed=n).transpose(1, 2).requires_grad_() for n in range(3))
    TURNS[S, V] = turns(S, V, q.device, q.dtype)
    r_SHV = normal(S, H, V, seed=3, scale=0.5).requires_grad_()
    inputs, against = [q, k, v, r_SHV], normal(B, H, S, V, seed=4)
    ways: dict[str, Attend] = {"flash": flash, "ours eager": biased}
    compiled = {"rope": rope, "biased": biased, "written out": written_out, "in chunks": in_chunks}
    if CUDA:
        compiled |= {"flex": flexible, "biased causal": biased_causal}
    ways |= {name: torch.compile(way, dynamic=False) for name, way in compiled.items()}
    works = {name: both_ways(way, inputs, against) for name, way in ways.items()}
    times = medians(works)
    wanted = biased(*inputs).detach().float()
    figures = {"flash_ms": rounded(times["flash"])}
    for name, ms in times.items():
        if ms != ms:
            continue
        figures[name] = rounded(ms / times["flash"])
        figures[f"{name} MiB"] = rounded(peak_mib(works[name]))
        if name not in ("flash", "rope"):
            wrong = (ways[name](*inputs).detach().float() - wanted).norm() / wanted.norm()
            assert wrong < 2e-2, f"{name} computes something else: {wrong:.1e}"
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few tokens, to see that it works; leaves no line")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for shape in [(2, 32, 2, 8)] if options.quick else SHAPES:
        found = measure(*shape)
        print(shape, found, flush=True)
        figures |= {f"{shape}/{key}": value for key, value in found.items()}
    if not options.quick:
        ledger.append("gpu_attention", "random", figures, f"{device_words()} ({DEVICE})")


if __name__ == "__main__":
    main()
