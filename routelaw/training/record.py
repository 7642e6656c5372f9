"""A run as rows of the run table: what its spec fixes, and what an evaluation adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from routelaw.evaluation.likelihood import Likelihood
from routelaw.runs.table import columns_of
from routelaw.specs.run import RunSpec


def evaluation_row(spec: RunSpec, step: int, status: str, measured: Mapping[str, Likelihood]) -> dict[str, Any]:
    """Losses that are not finite are left empty: a table has no NaN."""
    return {
        **columns_of(spec),
        "step": step,
        "tokens": spec.tokens_after(step),
        "status": status,
        **losses_of(measured),
    }


def losses_of(measured: Mapping[str, Likelihood]) -> dict[str, float | None]:
    return {f"loss_{name}": finite(m.nats_per_token) for name, m in measured.items()}


def finite(value: Any) -> Any:
    """The same structure, with None in place of numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
