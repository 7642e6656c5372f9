"""Attention with relative positions: ways to put it together against flash attention without them.

Forward and backward. The relative term is q_i·r_{i−j}, as in Transformer-XL without global biases, r given here;
`ours` is what the model does, the others are candidates for it; `rope` is flash attention with rotated queries and
keys. All with relative positions must agree, else they have failed.

Shapes: B batch, S sequence, H heads, V key/value size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from routelaw.bench.clock import CUDA, PRECISION, attempt, both_ways, here, normal, peak_mib, race
from routelaw.bench.table import Row, Table, gathered, row
from routelaw.model.attention import by_distance_to_by_key, rotate

CHUNKS = 4
NEAR = 2e-2
"""Relative: what bfloat16 may differ by."""
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Options:
    shapes: tuple[tuple[int, int, int, int], ...] = ((8, 2048, 8, 64), (8, 2048, 16, 64), (4, 2048, 16, 128))
    """(batch, length, heads, key/value size)."""
    compile: bool = CUDA


FULL = Options()
ON_CPU = Options(((2, 256, 4, 32), (2, 512, 4, 64)))
QUICK = Options(((2, 32, 2, 8),))


def flash(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def rope(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    return flash(rotate(q), rotate(k), v, r_SHV)


def bias_of(q: Tensor, r_SHV: Tensor) -> Tensor:
    S, V = q.shape[-2:]
    by_distance = torch.einsum("bhsv,thv->bhst", q, r_SHV) / math.sqrt(V)
    future = torch.ones(S, S, dtype=torch.bool, device=q.device).triu(1)
    return by_distance_to_by_key(by_distance).masked_fill(future, float("-inf"))


def biased(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """The bias of all pairs, handed to the fused attention."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias_of(q, r_SHV))


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
    return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + by_distance[b, h, i, i - j], block_mask=mask)  # pyrefly: ignore


def contestants(compiled: bool) -> dict[str, Attend]:
    """By name; eager ones that only make sense compiled are left to the compiler."""
    ways: dict[str, Attend] = {"flash": flash, "ours eager": biased}
    others: dict[str, Attend] = {"rope": rope, "biased": biased, "written out": written_out, "in chunks": in_chunks}
    if not compiled:
        return ways | {name: way for name, way in others.items() if way is not biased}
    if CUDA:
        others["flex"] = flexible
    return ways | {name: torch.compile(way, dynamic=False) for name, way in others.items()}


def rows(options: Options) -> Iterator[Row]:
    for shape in options.shapes:
        yield attempt(str(shape), partial(_measured, *shape, options))


def _measured(B: int, S: int, H: int, V: int, options: Options) -> Row:
    q, k, v = (normal(B, S, H, V, seed=n).transpose(1, 2).requires_grad_() for n in range(3))
    r_SHV = normal(S, H, V, seed=3, scale=0.5).requires_grad_()
    inputs, against = [q, k, v, r_SHV], normal(B, H, S, V, seed=4)
    ways = contestants(options.compile)
    works = {name: both_ways(partial(way, *inputs), inputs, against) for name, way in ways.items()}
    ran = race(works)
    failures = dict(ran.failures)
    figures = {"flash (ms)": ran.ms.get("flash", float("nan"))}
    wanted = biased(*inputs).detach().float()
    for name in ran.ms:
        if name not in ("flash", "rope"):
            wrong = float((ways[name](*inputs).detach().float() - wanted).norm() / wanted.norm())
            if not wrong < NEAR:
                failures[name] = f"computes something else: {wrong:.1e} away"
                continue
        figures[f"{name} (MiB)"] = peak_mib(works[name])
        if name != "flash":
            figures[name] = ran.ratio(name, "flash")
    return row(str((B, S, H, V)), figures, failures)


def table(options: Options, rows: Iterable[Row]) -> Table:
    how = "compiled" if options.compile else "eager"
    ratios = {
        "ours eager": "bias of all pairs handed to the fused attention: what the model does",
        "biased": "the same, compiled",
        "written out": f"plain products around one softmax, {how}",
        "in chunks": f"the same, queries a piece at a time, {how}",
        "flex": "FlexAttention, scores by distance read in its kernel",
        "rope": f"flash attention on rotated queries and keys, {how}",
    }
    columns = ratios | {"flash (ms)": "the baseline"}
    columns |= {f"{name} (MiB)": "what it allocates" for name in ("flash", *ratios)}
    setting = f"Causal attention, forward and backward, {PRECISION}; rows are (batch, length, heads, key/value size)"
    baseline = "torch's fused attention without relative positions; figures are times over its time"
    return gathered("attention", setting, baseline, columns, rows, here())


def measure(options: Options) -> Table:
    return table(options, rows(options))
