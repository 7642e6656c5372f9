"""All claims, and how much their verdicts owe to one run or one size.

Seeds are few, and squares make one outlier most of their spread; every interval that rests on the seeds of that size is
then as wide as that run makes it. It is a run like the others, and left out of nothing; what depends on it is named.
Sizes are few, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.miniature.analysis.study import Study
from routelaw.fitting.claims import FAILS, HOLDS, OPEN, Claim, JudgedClaim
from routelaw.fitting.matched_runs import ALL_BUT_SEED, VALIDATION
from routelaw.fitting.noise import NoiseFloor
from routelaw.studies import claims_on_architecture, claims_on_balance, claims_on_losses, claims_on_training

CLAIMS: tuple[Claim, ...] = (
    *claims_on_losses.CLAIMS,
    *claims_on_losses.COEFFICIENT_CLAIMS,
    *claims_on_architecture.CLAIMS,
    *claims_on_balance.CLAIMS,
    *claims_on_training.CLAIMS,
)
"""The main sweep first, then K and R, weights, training."""


def judge_all(study: Study) -> list[JudgedClaim]:
    return [claim(study) for claim in CLAIMS]


def judge_one(name: str, study: Study) -> JudgedClaim:
    return next(claim for claim in CLAIMS if claim.name == name)(study)


def counts(claims: Sequence[JudgedClaim]) -> dict[str, int]:
    found = Counter(claim.verdict for claim in claims)
    return {verdict: found[verdict] for verdict in (HOLDS, FAILS, OPEN)}


Change = tuple[JudgedClaim, str]
"""A claim and the verdict that it would have."""


@dataclass(frozen=True)
class Outlier:
    """The run without which seeds of its size would differ the least."""

    run_id: str
    router: str
    size: str
    experts: int
    seed: int
    share: float
    """Share of the sum of squares of its size's seeds that would be gone."""
    without: NoiseFloor
    """The noise of its size."""
    changed: Sequence[Change]


def largest_outlier(study: Study, claims: Sequence[JudgedClaim]) -> Outlier | None:
    """None where no model has three seeds: of two nobody can tell which one is the outlier."""
    models = study.finals.groupby(ALL_BUT_SEED, dropna=False)[f"log_{VALIDATION}"]
    seeds = models.transform("count")
    # Without one of n values their sum of squares is less by n / (n − 1) times the square of its distance to the mean.
    gone = (study.finals[f"log_{VALIDATION}"] - models.transform("mean")) ** 2 * seeds / (seeds - 1)
    squares = {size: noise.sd**2 * noise.freedom for size in study.seeded_sizes if (noise := study.noise(size))}
    share = (gone / study.finals["size"].map(squares))[seeds > 2].dropna()
    if share.empty:
        return None
    run = study.finals.loc[share.idxmax()]
    other = _without(study, "run_id", run["run_id"])
    floor = other.noise(str(run["size"]))
    if floor is None:
        return None
    changed = [(c, now.verdict) for c in claims if (now := c.claim(other)).verdict != c.verdict]
    return Outlier(str(run["run_id"]), str(run["router"]), str(run["size"]), int(run["experts"]), int(run["seed"]),
                  float(share.max()), floor, changed)  # fmt: skip


def decided_by_size(study: Study, claims: Sequence[JudgedClaim]) -> dict[str, list[Change]]:
    """What would be said otherwise without one of the sizes swept over E, where there are runs left to say it of. The
    law's coefficients are not tried again: refitting takes the longest, and they hang on every size."""
    swept = set(study.swept.frame["size"])
    found: dict[str, list[Change]] = {}
    for size in [size for size in study.active_params if size in swept]:
        other = _without(study, "size", size)
        again = [(c, c.claim(other)) for c in claims if c.claim not in claims_on_losses.COEFFICIENT_CLAIMS]
        found[size] = [(c, now.verdict) for c, now in again if now.ours and now.verdict != c.verdict]
    return {size: changed for size, changed in found.items() if changed}


def _without(study: Study, column: str, value: object) -> Study:
    frame = study.table.frame
    return replace(study, table=replace(study.table, frame=frame[frame[column] != value]))
