"""Runs that are matched: of equal size and E and alike in all but what is compared, and how far apart they are.

Any run table can be asked for the losses of a technique by size and E, for the difference of two techniques or of a
variant and the usual one, and for the noise of its seeds.

Runs of a size are not independent, so sizes are the clusters. The interval of a mean difference is the wider of two:
Student's over the means of sizes, and what the seed noise of these sizes alone would give. With fewer than three sizes
the first is Student's over the pairs of runs, and speaks of those sizes only; with fewer than three pairs the seed
noise stands alone, and without seeds there is no interval then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from routelaw.fitting.claims import Effect, student
from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import DEFAULT_LEVEL, Draws, bootstrap
from routelaw.fitting.noise import SAME_LENGTH, SAME_MODEL, NoiseFloor, mean_noise, noise_floor, telling_apart
from routelaw.fitting.points import keep
from routelaw.laws.law import Array
from routelaw.runs.table import FINISHED, RunTable, last_rows, last_status

VALIDATION = "loss_validation"
ALL_BUT_SEED = [*SAME_MODEL, "tokens_planned"]
"""What runs have in common that differ in nothing but their seed."""
PERCENT = 100 * np.log(10)
"""A small difference of log10 L in percent of the loss."""
FEWEST_SIZES = 3
NoiseOf = Callable[[str], NoiseFloor | None]
"""The noise of a run of a size, or another cluster; None where there are no seeds."""


@dataclass(frozen=True, eq=False)
class MatchedRuns:
    table: RunTable
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

    @property
    def swept(self) -> RunTable:
        """The runs of one family of models: what laws are fitted to and techniques are compared on."""
        return self.table

    @cached_property
    def usual_shape(self) -> pd.DataFrame:
        """`one_length` with K = 1 and R = 1/2, and the dense runs."""
        rows = self.one_length
        usual = (rows["k"] == 1) & np.isclose(rows["routing_frequency"], 0.5)
        return rows[usual | (rows["router"] == "dense")]

    def losses(self, router: str, target: str = VALIDATION, **columns: str | float) -> pd.Series:
        """log10 L by (size, experts) of the sizes swept, seeds averaged: the technique's defaults, K = 1 and R = 1/2
        unless told."""
        wanted: dict[str, str | float] = {"variant": "", "k": 1, "routing_frequency": 0.5, **columns}
        rows = self.one_length[self.one_length["size"].isin(set(self.swept.frame["size"]))]
        rows = rows[rows["router"] == router]
        if router == "dense":
            wanted = {"variant": wanted["variant"]}
        for column, value in wanted.items():
            rows = rows[np.isclose(rows[column], value) if isinstance(value, float) else rows[column] == value]
        return rows.groupby(["size", "experts"])[f"log_{target}"].mean().dropna()

    def gains(self, router: str, target: str = VALIDATION) -> pd.Series:
        """log10 of the dense model's loss over the routed one's, by (size, experts)."""
        dense, routed = self.losses("dense", target).droplevel("experts"), self.losses(router, target)
        routed = routed[routed.index.get_level_values("size").isin(dense.index)]
        return routed.rsub(dense.loc[routed.index.get_level_values("size")].to_numpy())

    def beside_usual(self, router: str, variant: str, columns: tuple[str, ...] = ()) -> pd.Series:
        """log10 L of a variant less that of the usual one, by size and E (and further columns)."""
        rows = self.one_length[self.one_length["router"] == router]
        keys = ["size", "experts", *columns]
        own, usual = (rows[rows["variant"] == v].groupby(keys)[f"log_{VALIDATION}"].mean() for v in (variant, ""))
        return (own - usual).dropna()

    def mean_gap(self, gap: pd.Series, level: float = DEFAULT_LEVEL) -> Effect:
        """The mean of a difference of log10 L by size (and more), over sizes."""
        return mean_effect(gap.to_numpy(), list(gap.index.get_level_values("size")), self.noise, level=level)

    @cached_property
    def active_params(self) -> dict[str, float]:
        """Active parameters of each size, smallest first."""
        smallest = self.finals.groupby("size")["active_params"].min().sort_values()
        return {str(size): float(active) for size, active in smallest.items()}

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


def finished_runs(table: RunTable) -> pd.DataFrame:
    """All rows of the runs that finished, by step: on the way there a row says `running`."""
    return table.frame[last_status(table.frame) == FINISHED].sort_values("step", kind="stable")


def final_rows(table: RunTable) -> pd.DataFrame:
    """Last rows of finished runs; a loss that was not measured there is the last that was."""
    frame = finished_runs(table)
    filled = frame.groupby("run_id", sort=False)[table.losses].ffill()
    return frame.assign(**{c: filled[c] for c in table.losses}).groupby("run_id", sort=False).tail(1)


def one_recipe(frame: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    """Each model under one recipe: of several, which would be averaged as if they were seeds, the one of most runs. A
    recipe is what a table says besides: learning rate, batch, vocabulary and the like."""
    last = last_rows(frame)
    length = last["tokens_planned"].fillna(last["tokens"]).fillna(last["step"])
    last = last.assign(tokens_planned=length)  # runs of several lengths are several models
    model = last.groupby(ALL_BUT_SEED, dropna=False).ngroup()
    told = [name for name in telling_apart(last) if name not in ALL_BUT_SEED]
    differ = [name for name in told if (last[name].groupby(model).nunique(dropna=False) > 1).any()]
    if not differ:
        return frame
    recipe = last.groupby(differ, dropna=False).ngroup()
    by_use = recipe.map(recipe.value_counts().rank(method="first"))  # of equally many, the same one everywhere
    others = last["run_id"][by_use < by_use.groupby(model).transform("max")]
    why = f"of models that were trained with another {' and '.join(differ)}, too"
    return keep(frame, ~frame["run_id"].isin(set(others)), why, left_out)


def resample_sizes_and_runs(fit: Fit, draws: int, seed: int) -> tuple[Draws, Draws]:
    """Refits to resampled sizes, and to resampled runs: each is blind to something, sizes to the common pattern in E,
    runs to what those of a size share. All fits draw the same sizes, if they have the same, so that what these share
    cancels in a difference; runs are independent, and so are their seeds."""
    return bootstrap(fit, draws=draws), bootstrap(fit, "case-bootstrap", draws, seed=seed)


def mean_effect(
    differences: Array, clusters: Sequence[object], noise: NoiseOf, *, level: float = DEFAULT_LEVEL, unit: str = "sizes"
) -> Effect:
    """Mean over clusters of the mean difference within, each between two runs. `unit`: what a cluster is."""
    values, names = np.asarray(differences, float), np.asarray([str(c) for c in clusters])
    groups = {name: values[names == name] for name in dict.fromkeys(names.tolist())}
    means = np.array([g.mean() for g in groups.values()])
    variances = [2 / len(g) for g in groups.values()]
    of_mean = float(np.sqrt(np.mean(variances) / len(groups)))
    units, unit = (values, "pairs") if len(means) < FEWEST_SIZES else (means, unit)
    spread = None
    if len(units) >= FEWEST_SIZES:
        spread = student(len(units) - 1, level) * float(np.std(units, ddof=1)) / np.sqrt(len(units))
    floor = _mean_noise(groups, variances, noise)
    return _wider(float(means.mean()), spread, f"{len(units)} {unit}", of_mean, floor, level, "Fewer than three pairs")


def slopes_by_experts(log_loss: pd.DataFrame) -> tuple[pd.Series, float]:
    """b, the slope of log10 L in log10 E, of every row (a column for each E); and how many times the noise of one run a
    slope carries."""
    x = np.log10(log_loss.columns.to_numpy(float))
    centred = x - x.mean()
    total = (centred**2).sum()
    return log_loss @ centred / total, float(1 / np.sqrt(total))


def _mean_noise(clusters: Iterable[str], weights: Sequence[float], noise: NoiseOf) -> NoiseFloor | None:
    floors = [floor for cluster in clusters if (floor := noise(cluster)) is not None]
    return mean_noise(floors, weights) if len(floors) == len(weights) else None


def shared_effect(differences: Array, noise: NoiseFloor, level: float = DEFAULT_LEVEL) -> Effect:
    """Mean difference of several runs to one, whose noise does not average out; the interval is that of the seeds."""
    half = student(noise.freedom, level) * noise.sd * float(np.sqrt(1 + 1 / len(differences)))
    basis = f"Interval from seed noise with {noise.freedom:.0f} degrees of freedom."
    return Effect.around(float(np.mean(differences)), half, basis)


def slope_effect(
    x: Array, y: Array, sizes: Sequence[str], noise_of_y: float, noise: NoiseOf, level: float = DEFAULT_LEVEL
) -> Effect:
    """Slope of y in x, one point a size; each y carries `noise_of_y` times the noise of a run."""
    centred = x - x.mean()
    total = float((centred**2).sum())
    slope = float((centred * y).sum() / total)
    spread = None
    if len(x) > FEWEST_SIZES:
        residual = y - y.mean() - slope * centred
        spread = student(len(x) - 2, level) * float(np.sqrt((residual**2).sum() / (len(x) - 2) / total))
    noises = noise_of_y / float(np.sqrt(total))
    floor = _mean_noise(sizes, (centred**2).tolist(), noise)
    return _wider(slope, spread, f"{len(x)} sizes", noises, floor, level, "Fewer than four sizes")


def _wider(
    value: float, spread: float | None, of: str, noises: float, noise: NoiseFloor | None, level: float, few: str
) -> Effect:
    """The wider of `spread`, None with too few, and what `noises` times the noise of a run gives."""
    halves = {} if spread is None else {of: spread}
    if noise is not None:
        seeds = f"seed noise with {noise.freedom:.0f} degrees of freedom"
        halves[seeds] = student(noise.freedom, level) * noise.sd * noises
    if not halves:
        return Effect.around(value, np.inf, f"{few} and no seeds: no interval.")
    by = max(halves, key=halves.__getitem__)
    return Effect.around(value, halves[by], f"Interval from {by}.")
