"""What the GPU benchmarks are to reach, and whether the figures in the ledger do."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    words: str
    benchmark: str
    row: str
    """A pattern of whole names."""
    column: str
    """A pattern, too."""
    least: float = -math.inf
    most: float = math.inf

    @property
    def wanted(self) -> str:
        return f"≤ {self.most:,.4g}" if math.isinf(self.least) else f"≥ {self.least:,.12g}"

    def meets(self, value: float) -> bool:
        return self.least <= value <= self.most

    def farthest(self, values: Iterable[float]) -> float:
        """The one that is hardest put to meet it."""
        return max(values) if math.isinf(self.least) else min(values)

    def values(self, lines: Iterable[dict[str, Any]]) -> list[float]:
        """In all lines of its benchmark, as they come."""
        found = []
        for line in (line for line in lines if line["benchmark"] == self.benchmark):
            for key, value in line["figures"].items():
                row, _, column = key.partition("/")
                right = re.fullmatch(self.row, row) and re.fullmatch(self.column, column)
                if right and not isinstance(value, str):
                    found.append(float(value))
        return found


BEST = {512: (0.82, 0.77, 0.49), 1024: (0.80, 0.76, 0.46), 2048: (0.83, 0.87)}
"""Shares of a compiled dense FFW's speed, with 8, 64 and 512 experts: the best of torch's grouped_mm, eager or
compiled, and of ScatterMoE, as they were measured before this benchmark was there."""
MIXTRAL = {"eager": "Mixtral as it comes", "compiled": "Mixtral compiled"}


def _targets() -> list[Target]:
    layer = [
        Target(f"routed layer of dense, d = {d}, E = {e}", "gpu_layer", f"d={d} E={e}", "ours compiled", least=best)
        for d, bests in BEST.items() for e, best in zip((8, 64, 512), bests, strict=False)
    ]  # fmt: skip
    layer.append(
        Target("Zipf .7 of even load, E ≤ 64", "gpu_layer", r"d=\d+ E=(8|64) zipf 0.7", "of even load", least=0.9)
    )
    over = [
        Target(f"{name} over Switch, {size}, E = 64, R = ½", "gpu_step", f"{size} rope {name.lower()}", "over switch",
               most=most)
        for name, most in (("S-BASE", 1.03), ("RL-R", 1.06), ("HASH", 1.0)) for size in ("130M", "370M")
    ]  # fmt: skip
    over += [
        Target(f"S-BASE over dense, {size} (1/{of:g})", "gpu_step", f"{size} rope s-base", "over dense", most=1 / of)
        for size, of in (("130M", 0.85), ("370M", 0.9))
    ]
    beside = [Target("Llama compiled over our dense step, 370M", "gpu_transformers", "dense ours rope",
                     "of compiled masters_ms", least=1.05)]  # fmt: skip
    for row, what, column, least in (
        ("e8", "step, E = 8", "masters_ms", 1.4),
        ("e8", "kept activations, E = 8", "kept_mib", 1.0),
        ("e64", "forward and backward, E = 64", "fb_ms", 1.5),
    ):
        beside += [
            Target(f"{said} over ours: {what}", "gpu_transformers", f"{row} ours switch", f"of {form} {column}", least)
            for form, said in MIXTRAL.items()
        ]
    small = [
        Target(f"tokens/s of several {size} side by side", "gpu_miniature", f"{size} s-base", "[48]/tokens_per_s", 4e6)
        for size in ("0.8M", "3M", "8M", "20M")
    ]
    small.append(Target("tokens/s of one of each size", "gpu_miniature", "mixed s-base", ".*tokens_per_s", 4e6))
    small += [
        Target("a shape's second run begins after (s), in a worker", "gpu_miniature", ".*s-base", "next_s", most=10),
        Target("the same, several new processes at once", "gpu_miniature", ".*s-base", "[48]/begun_s", most=10),
    ]
    none = "graphs_later|copies_to_host|waits_refused|cuda.*"
    proof = [
        Target("curves without a fast path, of the seeds' spread", "gpu_proof", "curves .*without .*", "ratio", most=1),
        Target(
            "curves with what saves memory or is for many experts, likewise",
            "gpu_proof",
            "curves .*with .*",
            "ratio",
            most=1,
        ),
        Target("gradients against float64, whole", "gpu_proof", "gradients .*", "whole", most=1e-2),
        Target("the same, of the worst parameter", "gpu_proof", "gradients .*", "worst", most=1e-2),
        Target("graphs, waits and copies in ten steady steps", "gpu_proof", "steady .*", none, most=0),
    ]
    return layer + over + beside + small + proof


TARGETS = _targets()
