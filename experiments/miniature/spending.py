"""What the runs took: device time and money, by what was trained, and time as foretold against time as measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.miniature.study import Study


@dataclass(frozen=True)
class Foretold:
    """Seconds that a dry run predicted against those measured, over the runs that have both."""

    runs: int
    predicted_hours: float
    measured_hours: float
    ratio: float
    """Median of measured over predicted."""
    low: float
    high: float
    """Nine runs in ten have a ratio between these."""


def spending(study: Study, price: float | None) -> pd.DataFrame:
    """By router and size: runs, hours, seconds of a run, tokens per second, and cost at `price` an hour."""
    if study.costs is None:
        return pd.DataFrame()
    size_order = list(study.active_params)
    rows = study.finals[["run_id", "router", "size"]].merge(study.costs, on="run_id")
    made = rows.groupby(["router", "size"]).agg(
        runs=("run_id", "nunique"), hours=("seconds", "sum"), seconds=("seconds", "median"),
        tokens_per_second=("tokens_per_second", "median"),
    )  # fmt: skip
    made = made.assign(hours=made["hours"] / 3600).reset_index()
    made = made.sort_values("size", key=lambda s: s.map(size_order.index), kind="stable").sort_values(
        "router", kind="stable"
    )
    return made if price is None else made.assign(cost=made["hours"] * price)


def foretold(study: Study) -> Foretold | None:
    if study.costs is None or study.predicted is None:
        return None
    both = study.predicted.merge(study.costs[["run_id", "seconds"]], on="run_id", suffixes=("_said", "_took"))
    both = both[(both["seconds_said"] > 0) & (both["seconds_took"] > 0)]
    if both.empty:
        return None
    ratio = both["seconds_took"] / both["seconds_said"]
    low, high = np.quantile(ratio, [0.05, 0.95])
    return Foretold(
        runs=len(both),
        predicted_hours=float(both["seconds_said"].sum() / 3600),
        measured_hours=float(both["seconds_took"].sum() / 3600),
        ratio=float(ratio.median()),
        low=float(low),
        high=float(high),
    )
