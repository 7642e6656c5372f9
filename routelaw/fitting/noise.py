"""The noise floor: how far apart runs are that differ in nothing but their seed.

No law can predict a run better than another seed of it would, and no difference between two runs that is smaller says
anything. Spreads of several models are pooled, each with as many degrees of freedom as it has seeds beyond the first;
where they are not of one distribution, at several sizes, say, their variances are averaged instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.points import seed_groups
from routelaw.runs.table import FINISHED, RunTable, last_status


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
    last = rows.sort_values("step", kind="stable").groupby("run_id", sort=False).tail(1)
    groups = last.groupby(seed_groups(last))[target]
    seeds = [losses.to_numpy(float) for _, losses in groups if len(losses) > 1]
    if not seeds:
        return None
    freedom = sum(len(s) - 1 for s in seeds)
    squares = sum(float(((np.log10(s) - np.log10(s).mean()) ** 2).sum()) for s in seeds)
    widest, loss = max(np.ptp(s) for s in seeds), np.mean(np.concatenate(seeds))
    return _floor(float(np.sqrt(squares / freedom)), freedom, len(seeds), float(widest), float(loss), level)


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
