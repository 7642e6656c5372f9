"""How much verdicts owe to one run: the seed that lies farthest from its fellows, and what would be said without it.

Seeds are few, and squares make one run that went astray most of their spread; every interval that rests on the seeds is
then as wide as that run makes it. It is a run like the others, and left out of nothing; what depends on it is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.miniature.claim import Claim
from experiments.miniature.claims import judge_all
from experiments.miniature.study import VALIDATION, Study, final_rows
from routelaw.fitting.noise import NoiseFloor
from routelaw.fitting.points import SAME_MODEL


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
    last = final_rows(study.table).dropna(subset=[VALIDATION])
    groups = last.groupby([*SAME_MODEL, "tokens_planned"], dropna=False)[VALIDATION]
    last = last.assign(log_loss=np.log10(last[VALIDATION].astype(float)), seeds=groups.transform("size"))
    last = last[last["seeds"] > 2]
    if noise is None or last.empty:
        return None
    models = last.groupby([*SAME_MODEL, "tokens_planned"], dropna=False)["log_loss"]
    # Without one of n values their sum of squares is less by n / (n − 1) times the square of its distance to the mean.
    gone = (last["log_loss"] - models.transform("mean")) ** 2 * last["seeds"] / (last["seeds"] - 1)
    run = last.loc[gone.idxmax()]
    frame = study.table.frame
    other = replace(study, table=replace(study.table, frame=frame[frame["run_id"] != run["run_id"]]), noises={})
    floor = other.noise()
    if floor is None:
        return None
    known = {claim.said.name: claim for claim in claims}
    again = judge_all(other)
    changed = [(known[c.said.name], c.verdict) for c in again if known[c.said.name].verdict != c.verdict]
    share = float(gone.max() / (noise.sd**2 * noise.freedom))
    return Astray(str(run["run_id"]), str(run["router"]), str(run["size"]), int(run["experts"]), int(run["seed"]),
                  share, floor, changed)  # fmt: skip
