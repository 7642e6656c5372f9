"""A run as rows of the run table: what its spec fixes, and what an evaluation adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from routelaw.evaluation.likelihood import Likelihood
from routelaw.specs.run import RunSpec
from routelaw.specs.sizes import size_label


def evaluation_row(spec: RunSpec, step: int, status: str, measured: Mapping[str, Likelihood]) -> dict[str, Any]:
    """Losses that are not finite are left empty: a table has no NaN."""
    return {
        **describe(spec),
        "step": step,
        "tokens": tokens_after(spec, step),
        "status": status,
        **losses_of(measured),
    }


def losses_of(measured: Mapping[str, Likelihood]) -> dict[str, float | None]:
    return {f"loss_{name}": finite(m.nats_per_token) for name, m in measured.items()}


def describe(spec: RunSpec) -> dict[str, Any]:
    """The columns that a spec fixes."""
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
        "tokens_planned": tokens_after(spec, spec.train.steps),
        **asdict(counts),
    }


def tokens_after(spec: RunSpec, steps: int) -> int:
    return steps * spec.train.batch * spec.model.sequence_length


def finite(value: Any) -> Any:
    """The same structure, with None in place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
