"""Which runs are seeds of one model, and the noise floor: how far apart such runs are.

Two runs are seeds of one model only if nothing in the table tells them apart: neither how long they were trained nor
any column of `TELLS_APART`. Other columns of a table may describe runs or measure them, which nobody can tell by their
names: runs that differ there are averaged, and a warning names the columns.

No law can predict a run better than another seed of it would, and no difference between two runs that is smaller says
anything. Spreads of several models are pooled, each with as many degrees of freedom as it has seeds beyond the first;
where they are not of one distribution, at several sizes, say, their variances are averaged instead.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from routelaw.runs.table import (
    DESCRIPTION,
    FINISHED,
    LOSS_PREFIX,
    SOURCE,
    TELLS_APART,
    RunTable,
    last_rows,
    last_status,
)  # fmt: skip

DEFAULT_LEVEL = 0.9
"""The level of intervals, unless told otherwise."""
SAME_LENGTH = 1.05
"""Runs whose lengths differ by less than this factor count as equally long."""
SAME_MODEL = ["router", "variant", "size", "active_params", "experts", "k", "routing_frequency"]
LENGTHS = ("tokens_planned", "tokens", "step")
"""How long a run was trained, by the first of these columns that is given throughout."""
MEASURED = {
    "acc", "accuracy", "bpb", "bpc", "loss", "ppl", "perplexity", "score", "error", "seconds", "second",
    "hours", "days", "time", "date", "start", "started", "end", "ended", "finished", "ms", "speed", "throughput", "mfu",
    "memory", "bytes", "dropped", "id", "uuid", "hash", "name", "label", "labelled", "host",
    "hostname", "node", "device", "gpu", "machine", "git", "commit", "note", "notes", "comment", "path", "file",
    "folder", "url", "status", "studies", SOURCE,
}  # fmt: skip
"""Words in the name of a column that measures a run or names it, and does not say what was trained."""
FEWEST_NAMED = 4
"""Runs of which each has a value of its own in a column that names runs."""


def seed_groups(frame: pd.DataFrame) -> pd.Series:
    """The number of the model that each run is a seed of. `frame` has one row per run, or several at the same steps."""
    columns = [*SAME_MODEL, *telling_apart(frame)]
    model_N = frame.groupby(columns, sort=False, dropna=False).ngroup().to_numpy()
    name, length = _length_of(frame)
    # A plan is exact, and so is a table of last rows alone; last evaluations of equal runs may be a step apart.
    tolerance = SAME_LENGTH if name != "tokens_planned" and frame["step"].notna().all() else 1.0
    length_N = length.to_numpy(float, na_value=np.nan)
    group_N, group, model, shortest = np.empty(len(frame), int), -1, -1, 0.0
    for row in np.lexsort((length_N, model_N)):
        # Lengths are compared with the shortest of their group: of many, each near the next, the last are far apart.
        if model_N[row] != model or length_N[row] > tolerance * max(shortest, 1):
            group, model, shortest = group + 1, model_N[row], length_N[row]
        group_N[row] = group
    return pd.Series(group_N, index=frame.index)


def kept_apart(frame: pd.DataFrame, read: Collection[str] = ()) -> list[str]:
    """A warning where runs look like seeds of one model and differ in more than that, apart from the columns `read` by
    the law in question."""
    models = frame.groupby(SAME_MODEL, sort=False, dropna=False)
    several = seed_groups(frame).groupby(models.ngroup()).nunique() > 1
    if not several.any():
        return []
    name, length = _length_of(frame)
    columns = {name: length} if name else {}
    columns |= {name: frame[name] for name in telling_apart(frame)}
    number = models.ngroup()
    differ = [
        name for name, cells in columns.items() if (cells.groupby(number).nunique(dropna=False)[several] > 1).any()
    ]
    if "tokens" in read:
        differ = [name for name in differ if name not in LENGTHS]
    differ = [name for name in differ if name not in read]
    if not differ:
        return []
    count = int(several.sum())
    what = f"{count} models have" if count > 1 else "one model has"
    return [f"{what} runs that differ in {', '.join(differ)}: these are separate points, not seeds of one model."]


def averaged_in_doubt(frame: pd.DataFrame, weight_column: str | None = None) -> list[str]:
    """Warnings where runs are averaged that a column of the table tells apart, or that have the same seed."""
    runs = frame.assign(_model=seed_groups(frame)).drop_duplicates("run_id")
    group = runs["_model"]
    sentences = []
    described = [str(name) for name in runs if name != weight_column and _describes(str(name), runs)]
    differ = [name for name in described if (runs[name].groupby(group).nunique(dropna=False) > 1).any()]
    if differ:
        sentences.append(
            f"runs averaged as seeds of one model differ in {', '.join(differ)}: say so in the column variant where "
            "they are other models, or leave some of them out."
        )
    twice = runs.duplicated(["_model", "seed"], keep=False)
    # A table without seeds has 0 throughout.
    if twice.any() and (runs["seed"] != 0).any():
        first = runs[twice].sort_values("_model", kind="stable")["run_id"].iloc[:2]
        sentences.append(
            f"{int(twice.sum())} runs averaged as seeds of one model have the same seed ({' and '.join(first)}, say): "
            "are they copies of each other, or other models?"
        )
    return sentences


def telling_apart(frame: pd.DataFrame) -> list[str]:
    """The columns that say what a run is besides its model."""
    return [str(name) for name in frame if str(name).lower() in TELLS_APART]


def _describes(name: str, runs: pd.DataFrame) -> bool:
    """Whether a column that nobody knows may say what a run is."""
    if name in DESCRIPTION or name.startswith((LOSS_PREFIX, "_")) or name.lower() in TELLS_APART:
        return False
    words = set(name.lower().replace("-", "_").replace(" ", "_").split("_"))
    if name in MEASURED or words & MEASURED:
        return False
    return len(runs) < FEWEST_NAMED or runs[name].nunique(dropna=False) < len(runs)


def _length_of(frame: pd.DataFrame) -> tuple[str, pd.Series]:
    """The column that says how long runs were trained, and its values; steps of the same run are not lengths."""
    for name in LENGTHS[: -1 if frame["run_id"].duplicated().any() else None]:
        if frame[name].notna().all():
            return name, frame[name].astype(float)
    return "", pd.Series(np.nan, index=frame.index)


@dataclass(frozen=True)
class NoiseFloor:
    """Standard deviation of log10 L over seeds, pooled over models."""

    sd: float
    freedom: float
    """Degrees of freedom: seeds beyond the first of each model, or what these are worth in a mean of variances."""
    low: float
    high: float
    """Interval of the standard deviation, from the chi-square distribution."""
    models: int
    widest: float
    """Largest distance between two seeds of one model, in nats."""
    loss: float
    """Mean loss of these models, by which a spread of log10 L becomes one in nats."""

    @property
    def nats(self) -> float:
        return self.sd * self.loss * float(np.log(10))


def noise_floor(table: RunTable, target: str = "loss_validation", level: float = DEFAULT_LEVEL) -> NoiseFloor | None:
    """The spread over seeds at the end of finished runs; None where no model has two of them."""
    rows = table.frame[(last_status(table.frame) == FINISHED) & table.frame[target].notna()]
    last = last_rows(rows)
    seeds = [losses.to_numpy(float) for _, losses in last.groupby(seed_groups(last))[target] if len(losses) > 1]
    if not seeds:
        return None
    sd, freedom = pooled_sd([np.log10(losses) for losses in seeds])
    widest, loss = max(np.ptp(s) for s in seeds), np.mean(np.concatenate(seeds))
    return _floor(sd, freedom, len(seeds), float(widest), float(loss), level)


def pooled_sd(groups: Sequence[np.ndarray]) -> tuple[float, int]:
    """Standard deviation within groups of values, and its degrees of freedom."""
    freedom = sum(len(values) - 1 for values in groups)
    return float(np.sqrt(sum(float(((v - v.mean()) ** 2).sum()) for v in groups) / freedom)), freedom


def mean_noise(
    floors: Sequence[NoiseFloor], weights: Sequence[float] | None = None, level: float = DEFAULT_LEVEL
) -> NoiseFloor:
    """The root of the mean variance; a floor that is given several times counts as often. Its degrees of freedom are
    Satterthwaite's: as many as a single variance would need to be known as well."""
    share_F = np.asarray(weights or np.ones(len(floors)), float)
    share_F /= share_F.sum()
    distinct = dict.fromkeys(floors, 0.0)
    for floor, share in zip(floors, share_F, strict=True):
        distinct[floor] += share * floor.sd**2
    sd = float(np.sqrt(sum(distinct.values())))
    spread = sum(part**2 / floor.freedom for floor, part in distinct.items())
    freedom = sd**4 / spread if spread else float(sum(floor.freedom for floor in distinct))
    models, widest = sum(floor.models for floor in distinct), max(floor.widest for floor in distinct)
    return _floor(sd, freedom, models, widest, float(share_F @ [floor.loss for floor in floors]), level)


def _floor(sd: float, freedom: float, models: int, widest: float, loss: float, level: float) -> NoiseFloor:
    low, high = (sd * float(np.sqrt(freedom / special.chdtri(freedom, (1 - p * level) / 2))) for p in (1, -1))
    return NoiseFloor(sd, freedom, low, high, models, widest, loss)
