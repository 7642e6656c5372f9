"""The columns of the run table that a spec fixes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from routelaw.specs.run import RunSpec
from routelaw.specs.sizes import size_label


def columns_of(spec: RunSpec) -> dict[str, Any]:
    counts = spec.counts
    return {
        "run_id": spec.run_id,
        "router": spec.router.name,
        "variant": spec.variant,
        "size": size_label(counts.active_params),
        "experts": spec.router.experts,
        "k": spec.router.k,
        "routing_frequency": spec.routing_frequency,
        "seed": spec.train.seed,
        "tokens_planned": spec.tokens_after(spec.train.steps),
        **asdict(counts),
    }
