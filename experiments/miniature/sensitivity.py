"""How much verdicts owe to one run: the seed that lies farthest from its fellows, and what would be said without it.

Seeds are few, and squares make one run that went astray most of their spread; every interval that rests on the seeds is
then as wide as that run makes it. It is a run like the others, and left out of nothing; what depends on it is named.
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
    """The run without which seeds would differ least."""

    run_id: str
    router: str
    size: str
    experts: int
    seed: int
    share: float
    """Of the seeds' sum of squares, what would be gone."""
    without: NoiseFloor
    changed: Sequence[tuple[Claim, str]]
    """Claims and the verdicts that they would have."""


def most_astray(study: Study, claims: Sequence[Claim]) -> Astray | None:
    """None where no model has three seeds: of two nobody can tell which one is astray."""
    noise = study.noise()
    models = study.finals.groupby(ALL_BUT_SEED, dropna=False)[f"log_{VALIDATION}"]
    seeds = models.transform("count")
    # Without one of n values their sum of squares is less by n / (n − 1) times the square of its distance to the mean.
    gone = (study.finals[f"log_{VALIDATION}"] - models.transform("mean")) ** 2 * seeds / (seeds - 1)
    gone = gone[seeds > 2].dropna()
    if noise is None or gone.empty:
        return None
    run = study.finals.loc[gone.idxmax()]
    frame = study.table.frame
    other = replace(study, table=replace(study.table, frame=frame[frame["run_id"] != run["run_id"]]), noises={})
    floor = other.noise()
    if floor is None:
        return None
    known = {claim.said.name: claim for claim in claims}
    changed = [(known[c.said.name], c.verdict) for c in judge_all(other) if known[c.said.name].verdict != c.verdict]
    share = float(gone.max() / (noise.sd**2 * noise.freedom))
    return Astray(str(run["run_id"]), str(run["router"]), str(run["size"]), int(run["experts"]), int(run["seed"]),
                  share, floor, changed)  # fmt: skip
