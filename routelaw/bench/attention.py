"""Attention with relative positions: ways to put it together against flash attention without them.

Forward and backward, recorded as CUDA graphs on a GPU: with many small kernels the processor would be timed. The
relative term is q_i·r_{i−j}, as in Transformer-XL without global biases, r given here; `ours` is what the model does,
the others are candidates for it; `rope` is flash attention with rotated queries and keys. All with relative positions
must agree, else they have failed.

Shapes: B batch, S sequence, H heads, V key/value size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from routelaw.bench.clock import (
    CUDA,
    DEVICE,
    DTYPE,
    PRECISION,
    attempt,
    both_ways,
    normal,
    peak_mib,
    recorded,
    time_interleaved,
)
from routelaw.bench.results import Description, Row, row
from routelaw.model.attention import rotate, turns
from routelaw.model.relative_attention import ROWS, biased, by_distance_to_by_key, in_pieces, relative_attention

PIECES = (256, 1024)
"""Rows of queries that are taken at a time, beside those of ours."""
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


def rope(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor, turns_2SV: Tensor) -> Tensor:
    return flash(rotate(q, turns_2SV), rotate(k, turns_2SV), v, r_SHV)


def biased_causal(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """The kernel behind `biased`, told that what lies ahead does not count, so that it need not be masked."""
    bias = by_distance_to_by_key(torch.einsum("bhsv,thv->bhst", q, r_SHV) / math.sqrt(q.shape[-1]))
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.0, True)[0]


def flexible(q: Tensor, k: Tensor, v: Tensor, r_SHV: Tensor) -> Tensor:
    """torch's FlexAttention, which reads the scores by distance inside its kernel."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    S, V = q.shape[-2:]
    by_distance = torch.einsum("bhsv,thv->bhst", q, r_SHV) / math.sqrt(V)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, device=str(q.device))
    return flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: s + by_distance[b, h, i, (i - j).clamp(min=0)], block_mask=mask
    )  # pyrefly: ignore


def candidates(compiled: bool, length: int, kv_size: int) -> dict[str, Attend]:
    """By name; eager ones that only make sense compiled are left to the compiler."""
    ways: dict[str, Attend] = {"flash": flash, "ours eager": relative_attention}
    turned = partial(rope, turns_2SV=turns(length, kv_size, DEVICE, DTYPE))
    others: dict[str, Attend] = {"rope": turned, "biased": biased, "ours": relative_attention}
    others |= {f"pieces of {rows}": partial(in_pieces, rows=rows) for rows in PIECES}
    if not compiled:
        return ways | {name: way for name, way in others.items() if name not in ("biased", "ours")}
    if CUDA:
        others |= {"flex": flexible, "biased causal": biased_causal}
    return ways | {name: torch.compile(way, dynamic=False) for name, way in others.items()}


def rows(options: Options) -> Iterator[Row]:
    for shape in options.shapes:
        yield attempt(str(shape), partial(_measured, *shape, options))


def _measured(B: int, S: int, H: int, V: int, options: Options) -> Row:
    q, k, v = (normal(B, S, H, V, seed=n).transpose(1, 2).requires_grad_() for n in range(3))
    r_SHV = normal(S, H, V, seed=3, scale=0.5).requires_grad_()
    inputs, against = [q, k, v, r_SHV], normal(B, H, S, V, seed=4)
    ways = candidates(options.compile, S, V)
    works = {name: both_ways(partial(way, *inputs), inputs, against) for name, way in ways.items()}
    ran = time_interleaved(works, way=recorded)
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


def describe(options: Options) -> Description:
    how = "compiled" if options.compile else "eager"
    ratios = {
        "ours": f"what the model does, {how}: on a GPU pieces of {ROWS}, else as `biased`",
        "ours eager": "what the model does, not compiled",
        "biased": f"bias of all pairs handed to the fused attention, {how}",
        "biased causal": "the same, half of the pairs left out by the kernel",
        **{f"pieces of {rows}": f"so many queries at a time, products written out, {how}" for rows in PIECES},
        "flex": "FlexAttention, scores by distance read in its kernel",
        "rope": f"flash attention on rotated queries and keys, {how}",
    }
    columns = ratios | {"flash (ms)": "the baseline"}
    columns |= {f"{name} (MiB)": "what it allocates" for name in ("flash", *ratios)}
    setting = f"Causal attention, forward and backward, {PRECISION}; rows are (batch, length, heads, key/value size)"
    baseline = "torch's fused attention without relative positions; figures are times over its time"
    return Description(setting, baseline, columns)
