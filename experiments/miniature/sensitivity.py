"""How much verdicts owe to one run: the seed that makes the largest part of the noise of its size, and what would be
said without it.

Seeds are few, and squares make one run that went astray most of their spread; every interval that rests on the seeds of
that size is then as wide as that run makes it. It is a run like the others, and left out of nothing; what depends on it
is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from experiments.miniature.claim import Claim
from experiments.miniature.claims import judge_all
from experiments.miniature.study import ALL_BUT_SEED, VALIDATION, Study
from routelaw.fitting.noise import NoiseFloor


@dataclass(frozen=True)
class Astray:
    """The run without which seeds of its size would differ the least."""

    run_id: str
    router: str
    size: str
    experts: int
    seed: int
    share: float
    """Of the sum of squares of the seeds of its size, what would be gone."""
    without: NoiseFloor
    """Of its size."""
    changed: Sequence[tuple[Claim, str]]
    """Claims and the verdicts that they would have."""


def most_astray(study: Study, claims: Sequence[Claim]) -> Astray | None:
    """None where no model has three seeds: of two nobody can tell which one is astray."""
    models = study.finals.groupby(ALL_BUT_SEED, dropna=False)[f"log_{VALIDATION}"]
    seeds = models.transform("count")
    # Without one of n values their sum of squares is less by n / (n − 1) times the square of its distance to the mean.
    gone = (study.finals[f"log_{VALIDATION}"] - models.transform("mean")) ** 2 * seeds / (seeds - 1)
    squares = {size: noise.sd**2 * noise.freedom for size in study.seeded_sizes if (noise := study.noise(size))}
    share = (gone / study.finals["size"].map(squares))[seeds > 2].dropna()
    if share.empty:
        return None
    run = study.finals.loc[share.idxmax()]
    frame = study.table.frame
    other = replace(study, table=replace(study.table, frame=frame[frame["run_id"] != run["run_id"]]))
    floor = other.noise(str(run["size"]))
    if floor is None:
        return None
    known = {claim.said.name: claim for claim in claims}
    changed = [(known[c.said.name], c.verdict) for c in judge_all(other) if known[c.said.name].verdict != c.verdict]
    return Astray(str(run["run_id"]), str(run["router"]), str(run["size"]), int(run["experts"]), int(run["seed"]),
                  float(share.max()), floor, changed)  # fmt: skip
