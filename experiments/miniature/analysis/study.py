"""What the claims are judged on (routelaw/studies/study_runs.py), and what the runs cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.miniature.studies import (
    ALLOCATIONS,
    BETWEEN,
    COSTS,
    DATA,
    LARGEST,
    MAIN,
    OF_RATES,
    PREDICTIONS,
    ROUTING,
    SPEEDS,
    TABLE,
)
from routelaw.fitting.matched_runs import final_rows
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable
from routelaw.runs.variants import DEFAULT, parts_of, variant_of
from routelaw.studies.study_runs import PAPER_ROUTERS, StudyRuns, with_weights

PREDICTED = "predicted*.json"
"""What `routelaw sweep … --dry-run --json` said of each sweep."""
NEAR = 0.25


@dataclass(frozen=True, eq=False)
class Study(StudyRuns):
    costs: pd.DataFrame | None = None
    """run_id, seconds, tokens_per_second, device, …"""
    predicted: pd.DataFrame | None = None
    """run_id and seconds, as a dry run predicted them."""
    rates: pd.DataFrame | None = None
    """The last row of every finished run that is about learning rates."""
    allocations: pd.DataFrame | None = None
    """began and seconds, of those that recorded how long they held the device."""

    @property
    def routers(self) -> list[str]:
        return list(PAPER_ROUTERS)

    @cached_property
    def swept(self) -> RunTable:
        """The table of the sizes that were swept over E. A law is of one family of models: the deep one, which some
        studies have, is of another."""
        frame = self.table.frame
        ours = pd.concat([in_study(frame, study) for study in (MAIN, BETWEEN, LARGEST)], axis=1).any(axis=1)
        if not ours.any():
            return self.table
        return replace(self.table, frame=frame[frame["size"].isin(set(frame["size"][ours]))])

    @property
    def known_speeds(self) -> pd.DataFrame | None:
        if self.speeds is None and self.costs is not None:
            return self.costs[sharers(self.costs) == 1]
        return self.speeds


def sharers(costs: pd.DataFrame) -> pd.Series:
    """How many runs shared the device with each, itself among them; NaN where that was not recorded."""
    return costs.get("runs_at_a_time", pd.Series(1.0, costs.index)).astype(float)


def read_study(folder: Path) -> Study:
    """A folder with data/runs.csv.gz and, where they are there, data/costs.csv and the like, and predictions/."""
    data = folder / DATA.name
    costs, routing, speeds, allocations = (
        pd.read_csv(data / name) if (data / name).is_file() else None for name in (COSTS, ROUTING, SPEEDS, ALLOCATIONS)
    )
    said = sorted((folder / PREDICTIONS.name).glob(PREDICTED))
    rows = [row for path in said for row in json.loads(path.read_text("utf-8"))["runs"]]
    predicted = pd.DataFrame(rows)[["run_id", "seconds"]].drop_duplicates("run_id") if rows else None
    rates = final_rows(plain(read_runs(data / OF_RATES))) if (data / OF_RATES).is_file() else None
    table = replace(read_runs(data / TABLE), source=TABLE)
    return Study(plain(table), routing=routing, speeds=speeds, costs=costs, predicted=predicted, rates=rates,
                 allocations=allocations)  # fmt: skip


def plain(table: RunTable) -> RunTable:
    """The table with variants as differences from what is usual here, and the weights of each run in columns.

    Usual is what all runs of a router in the main sweep have in common: their groups, their positions, weights chosen
    for the length of training. For a router without such runs it is what the whole main sweep has in common; in a table
    without a main sweep, what all runs of the router have. A run that lacks one of those has it at the technique's own
    default, `balance_weight=default`.
    """
    frame = table.frame.copy()
    parts = frame["variant"].map(parts_of)
    main = in_study(frame, MAIN)
    for _, own in parts.groupby(frame["router"]):
        usual = _common(own[main] if main[own.index].any() else parts[main] if main.any() else own)
        frame.loc[own.index, "variant"] = own.map(lambda p, usual=usual: _difference(p, usual))
    return replace(table, frame=with_weights(frame, table.frame["variant"]))


def in_study(frame: pd.DataFrame, study: str) -> pd.Series:
    """Which rows are of runs of a study; none where the table does not say."""
    if "studies" not in frame:
        return pd.Series(False, frame.index)
    return frame["studies"].map(lambda own: study in str(own).split()).astype(bool)


def _common(parts: pd.Series) -> dict[str, str]:
    return dict(set.intersection(*(set(p.items()) for p in parts)))


def _difference(parts: Mapping[str, str], usual: Mapping[str, str]) -> str:
    own = {key: value for key, value in parts.items() if usual.get(key) != value}
    return variant_of(own | dict.fromkeys(set(usual) - set(parts), DEFAULT))


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
