"""Whether a point lies outside of what a law was fitted to, and how, in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from routelaw.fitting.fit import Fit
from routelaw.laws.law import Array

Range = tuple[float, float]


def extrapolation(fit: Fit, active_params: float, experts: float) -> str:
    """How (N, E) lies outside the points of a fit; empty inside."""
    sizes, expert_counts = (fitted_range(fit.points.x[name]) for name in ("active_params", "experts"))
    return " and ".join(outside_grid(sizes, expert_counts, active_params, experts))


def fitted_range(values_N: Array) -> Range:
    return float(np.min(values_N)), float(np.max(values_N))


def outside_grid(sizes: Range, expert_counts: Range, active_params: float, experts: float) -> Iterator[str]:
    if reason := outside("size", "largest", active_params, sizes):
        yield reason
    fewest, most = expert_counts
    if experts > most:
        yield f"E is beyond the {most:g} fitted"
    if experts < fewest:
        yield f"E is below the {fewest:g} fitted"


def outside(what: str, extreme: str, value: float, fitted: Range) -> str:
    low, high = fitted
    least = {"largest": "smallest", "most": "least"}[extreme]
    if value > high * 1.01:
        return f"{what} is {_times(value / high)}× the {extreme} fitted"
    if value < low * 0.99:
        return f"{what} is {_times(low / value)}× below the {least} fitted"
    return ""


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}" if ratio < 1e5 else f"{ratio:.1e}"
