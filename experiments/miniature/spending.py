"""What the runs took: device time and money, by what was trained, and time as predicted against time as measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.miniature.study import Study, sharers

NEAR = 0.25


@dataclass(frozen=True)
class TimePrediction:
    """Device time that a dry run predicted against that measured, over the runs that have both."""

    runs: int
    predicted_hours: float
    measured_hours: float
    ratio: float
    """Median of measured over predicted."""
    low: float
    high: float
    """Nine runs in ten have a ratio between these."""
    near: float
    """Share of the runs whose ratio is within 25 % of 1."""


def device_seconds(costs: pd.DataFrame) -> pd.Series:
    """A run's share of the device. At every moment it is divided among the runs that are under way; what was done for
    runs that did not end is theirs, too. Where nobody recorded when a run began, its time divided by how many went at a
    time; NaN where nobody knows that either."""
    share = costs["seconds"] / sharers(costs)
    if "began" not in costs:
        return share
    begin = pd.to_datetime(costs["began"], utc=True).dropna()
    begin = (begin - begin.min()).dt.total_seconds()
    end = begin + costs["seconds"][begin.index]
    moments = np.unique(np.concatenate([begin, end]))
    under_way = (begin.to_numpy()[:, None] <= moments[:-1]) & (moments[1:] <= end.to_numpy()[:, None])
    part = under_way * (np.diff(moments) / np.maximum(under_way.sum(axis=0), 1))
    share[begin.index] = part.sum(axis=1)
    return share


def spending(study: Study, price: float | None) -> pd.DataFrame:
    """By router and size: runs, device hours, seconds of a run and of the device for it, tokens per second; at `price`
    an hour, cost, also of a run."""
    if study.costs is None:
        return pd.DataFrame()
    size_order = list(study.active_params)
    rows = study.finals[["run_id", "router", "size"]].merge(
        study.costs.assign(share=device_seconds(study.costs)), on="run_id"
    )
    made = rows.groupby(["router", "size"]).agg(
        runs=("run_id", "nunique"), known=("share", "count"), hours=("share", "sum"), seconds=("seconds", "median"),
        tokens_per_second=("tokens_per_second", "median"),
    )  # fmt: skip
    made = made.assign(hours=made["hours"] / 3600, device_seconds=made["hours"] / made["known"]).reset_index()
    made = made.sort_values("size", key=lambda s: s.map(size_order.index), kind="stable").sort_values(
        "router", kind="stable"
    )
    if price is not None:
        made = made.assign(cost=made["hours"] * price, cost_of_a_run=made["device_seconds"] / 3600 * price)
    return made.drop(columns="known")


def time_predicted(study: Study) -> TimePrediction | None:
    if study.costs is None or study.predicted is None:
        return None
    took = study.costs[["run_id"]].assign(seconds=device_seconds(study.costs))
    both = study.predicted.merge(took, on="run_id", suffixes=("_said", "_took"))
    both = both[(both["seconds_said"] > 0) & (both["seconds_took"] > 0)]
    if both.empty:
        return None
    ratio = both["seconds_took"] / both["seconds_said"]
    low, high = np.quantile(ratio, [0.05, 0.95])
    return TimePrediction(
        runs=len(both),
        predicted_hours=float(both["seconds_said"].sum() / 3600),
        measured_hours=float(both["seconds_took"].sum() / 3600),
        ratio=float(ratio.median()),
        low=float(low),
        high=float(high),
        near=float((ratio - 1).abs().le(NEAR).mean()),
    )
