"""What the claims are judged on: the run table, what it cost, and the noise floor of its seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.miniature.ended import ALLOCATIONS, COSTS, OF_RATES, ROUTING, TABLE
from experiments.miniature.studies import BETWEEN, LARGEST, MAIN
from routelaw.fitting.noise import NoiseFloor, mean_noise, noise_floor
from routelaw.fitting.points import SAME_LENGTH, SAME_MODEL
from routelaw.runs.files import read_runs
from routelaw.runs.table import FINISHED, RunTable, last_status

VALIDATION = "loss_validation"
ALL_BUT_SEED = [*SAME_MODEL, "tokens_planned"]
"""What runs have in common that differ in nothing but their seed."""
PAPER_ROUTERS = ("s-base", "rl-r", "hash")
BALANCE_DEFAULTS = {"switch": 1e-2, "s-base": 1e-2, "base": 1e-2, "rl-r": 1.0}
"""Balance weight of a technique that no spec names one for."""
ENTROPY_DEFAULTS = {"rl-r": 5e-4}
WEIGHTS = {"balance_weight", "entropy_weight"}
DEFAULT = "default"
SPEEDS = "speeds.csv"
SPREAD = ["oversubscribed", "dropped", "router_entropy"]
LAST_PART = 0.8
"""Share of a run's steps after which the spread of tokens is averaged."""
PREDICTED = "predicted*.json"
"""What `routelaw sweep … --dry-run --json` said of each sweep."""


@dataclass(frozen=True, eq=False)
class Study:
    table: RunTable
    costs: pd.DataFrame | None = None
    """run_id, seconds, tokens_per_second, device, …"""
    predicted: pd.DataFrame | None = None
    """run_id and seconds, as a dry run predicted them."""
    routing: pd.DataFrame | None = None
    """run_id, step, block, oversubscribed, dropped, …: every routed block as it was logged."""
    rates: pd.DataFrame | None = None
    """The last row of every finished run that is about learning rates."""
    speeds: pd.DataFrame | None = None
    """run_id and tokens_per_second of models trained by themselves (speeds.py)."""
    allocations: pd.DataFrame | None = None
    """began and seconds, of those that recorded how long they held the device."""
    _floors: dict[tuple[str, str | None], NoiseFloor | None] = field(init=False, default_factory=dict, repr=False)

    @cached_property
    def finals(self) -> pd.DataFrame:
        """The last row of every finished run, with `log_<loss>` beside each loss that the run has there or before."""
        last = final_rows(self.table)
        return last.assign(**{f"log_{c}": np.log10(last[c].astype(float)) for c in self.table.losses})

    @cached_property
    def one_length(self) -> pd.DataFrame:
        """`finals` of the commonest length: a comparison holds for one length at a time."""
        plans = self.finals["tokens_planned"]
        if plans.isna().any() or plans.nunique() < 2:
            return self.finals
        share = plans.astype(float) / float(plans.mode().max())
        return self.finals[share.between(1 / SAME_LENGTH, SAME_LENGTH)]

    @cached_property
    def swept(self) -> RunTable:
        """The table of the sizes that were swept over E. A law is of one family of models: the deep one, which some
        studies have, is of another."""
        frame = self.table.frame
        ours = pd.concat([in_study(frame, study) for study in (MAIN, BETWEEN, LARGEST)], axis=1).any(axis=1)
        if not ours.any():
            return self.table
        return replace(self.table, frame=frame[frame["size"].isin(set(frame["size"][ours]))])

    @cached_property
    def _comparable(self) -> pd.DataFrame:
        """`one_length` of the sizes swept."""
        return self.one_length[self.one_length["size"].isin(set(self.swept.frame["size"]))]

    @cached_property
    def usual_shape(self) -> pd.DataFrame:
        """`one_length` with K = 1 and R = 1/2, and the dense runs."""
        rows = self.one_length
        usual = (rows["k"] == 1) & np.isclose(rows["routing_frequency"], 0.5)
        return rows[usual | (rows["router"] == "dense")]

    def losses(self, router: str, target: str = VALIDATION, **columns: object) -> pd.Series:
        """log10 L by (size, experts) of the sizes swept, seeds averaged: the technique's defaults, K = 1 and R = 1/2
        unless told."""
        wanted = {"variant": "", "k": 1, "routing_frequency": 0.5, **columns}
        rows = self._comparable[self._comparable["router"] == router]
        if router == "dense":
            wanted = {"variant": wanted["variant"]}
        for column, value in wanted.items():
            equal = np.isclose(rows[column], value) if column == "routing_frequency" else rows[column] == value
            rows = rows[equal]
        return rows.groupby(["size", "experts"])[f"log_{target}"].mean().dropna()

    def beside_usual(self, router: str, variant: str, columns: tuple[str, ...] = ()) -> pd.Series:
        """log10 L of a variant less that of the usual one, by size and E (and further columns)."""
        rows = self.one_length[self.one_length["router"] == router]
        keys = ["size", "experts", *columns]
        own, usual = (rows[rows["variant"] == v].groupby(keys)[f"log_{VALIDATION}"].mean() for v in (variant, ""))
        return (own - usual).dropna()

    @cached_property
    def spreads(self) -> pd.DataFrame:
        """How each run spread its tokens at the end: what was logged in its last fifth, over all routed blocks."""
        if self.routing is None:
            return pd.DataFrame(columns=SPREAD, dtype=float)
        last = self.routing.groupby("run_id")["step"].transform("max")
        late = self.routing[self.routing["step"] > LAST_PART * last]
        return late.groupby("run_id")[[c for c in SPREAD if c in late]].mean()

    @cached_property
    def active_params(self) -> dict[str, float]:
        """Active parameters of each size, smallest first."""
        return self.finals.groupby("size")["active_params"].min().sort_values().to_dict()

    @cached_property
    def own_speeds(self) -> pd.Series | None:
        """Tokens per second of runs that had the device for themselves; None where none is known to."""
        known = self.speeds
        if known is None and self.costs is not None:
            known = self.costs[sharers(self.costs) == 1]
        return None if known is None or known.empty else known.set_index("run_id")["tokens_per_second"]

    @cached_property
    def seeded_sizes(self) -> list[str]:
        """Sizes of models that were trained with several seeds, smallest first."""
        groups = self.finals.groupby(ALL_BUT_SEED, dropna=False)["run_id"]
        seeded = set(self.finals["size"][groups.transform("nunique") > 1])
        return [size for size in self.active_params if size in seeded]

    def seeds_for(self, size: str) -> str | None:
        """The size whose seeds stand for one: itself or, without seeds, the next smaller one that has some, which errs
        towards too much noise; the smallest for what is smaller than all of these; None where there are no seeds."""
        smaller = [s for s in self.seeded_sizes if self.active_params[s] <= self.active_params[size]]
        return [*self.seeded_sizes[:1], *smaller][-1] if self.seeded_sizes else None

    def noise(self, *sizes: str) -> NoiseFloor | None:
        """The noise of a run of these sizes, the mean over them: seeds of small models are further apart.
        Where no size is named, seeds of all sizes are pooled."""
        return self._noise(VALIDATION, self.table.frame[VALIDATION], sizes)

    def transfer_noise(self, target: str, *sizes: str) -> NoiseFloor | None:
        """The noise of a zero-shot loss over the validation loss: what both share of a seed cancels."""
        return self._noise(
            f"{target} over {VALIDATION}", self.table.frame[target] / self.table.frame[VALIDATION], sizes
        )

    def _noise(self, name: str, values: pd.Series, sizes: Sequence[str]) -> NoiseFloor | None:
        """The noise of a column, cached by the column's name."""
        if not sizes:
            return self._floor(name, values, None)
        floors = [self._floor(name, values, self.seeds_for(size)) for size in dict.fromkeys(sizes)]
        known = [floor for floor in floors if floor is not None]
        return mean_noise(known) if known else None

    def _floor(self, name: str, values: pd.Series, size: str | None) -> NoiseFloor | None:
        """The noise floor from the seeds of one size, or of all."""
        if (name, size) not in self._floors:
            frame = self.table.frame.assign(**{name: values})
            frame = frame if size is None else frame[frame["size"] == size]
            self._floors[name, size] = noise_floor(replace(self.table, frame=frame), name)
        return self._floors[name, size]

    def where(self, column: str, value: str) -> RunTable:
        """The runs of one router, or of one size, alone."""
        return replace(self.table, frame=self.table.frame[self.table.frame[column] == value])


def sharers(costs: pd.DataFrame) -> pd.Series:
    """How many runs shared the device with each, itself among them; NaN where that was not recorded."""
    return costs.get("runs_at_a_time", pd.Series(1.0, costs.index)).astype(float)


def read_study(folder: Path) -> Study:
    """A folder with runs.csv.gz and, where they are there, costs.csv, routing.csv.gz and the like."""
    costs, routing, speeds, allocations = (
        pd.read_csv(folder / name) if (folder / name).is_file() else None
        for name in (COSTS, ROUTING, SPEEDS, ALLOCATIONS)
    )
    rows = [row for path in sorted(folder.glob(PREDICTED)) for row in json.loads(path.read_text("utf-8"))["runs"]]
    predicted = pd.DataFrame(rows)[["run_id", "seconds"]].drop_duplicates("run_id") if rows else None
    rates = final_rows(plain(read_runs(folder / OF_RATES))) if (folder / OF_RATES).is_file() else None
    table = replace(read_runs(folder / TABLE), source=TABLE)
    return Study(plain(table), costs, predicted, routing, rates, speeds, allocations)


def finished_runs(table: RunTable) -> pd.DataFrame:
    """All rows of the runs that finished, by step: on the way there a row says `running`."""
    return table.frame[last_status(table.frame) == FINISHED].sort_values("step", kind="stable")


def final_rows(table: RunTable) -> pd.DataFrame:
    """Last rows of finished runs; a loss that was not measured there is the last that was."""
    frame = finished_runs(table)
    filled = frame.groupby("run_id", sort=False)[table.losses].ffill()
    return frame.assign(**{c: filled[c] for c in filled}).groupby("run_id", sort=False).tail(1)


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
    for column, defaults in (("balance", BALANCE_DEFAULTS), ("entropy", ENTROPY_DEFAULTS)):
        named = parts.map(lambda p, name=f"{column}_weight": float(p.get(name, DEFAULT).replace(DEFAULT, "nan")))
        frame[column] = named.fillna(frame["router"].map(defaults))
    return replace(table, frame=frame)


def in_study(frame: pd.DataFrame, study: str) -> pd.Series:
    """Which rows are of runs of a study; none where the table does not say."""
    if "studies" not in frame:
        return pd.Series(False, frame.index)
    return frame["studies"].map(lambda own: study in str(own).split()).astype(bool)


def _common(parts: pd.Series) -> dict[str, str]:
    return dict(set.intersection(*(set(p.items()) for p in parts)))


def _difference(parts: Mapping[str, str], usual: Mapping[str, str]) -> str:
    own = {key: value for key, value in parts.items() if usual.get(key) != value}
    own |= dict.fromkeys(set(usual) - set(parts), DEFAULT)
    return ",".join(f"{key}={own[key]}" if own[key] else key for key in sorted(own))


def parts_of(variant: str) -> dict[str, str]:
    """`a=1,shared_decisions` as {"a": "1", "shared_decisions": ""}."""
    pairs = (part.partition("=") for part in variant.split(",") if part)
    return {key: value for key, _, value in pairs}
