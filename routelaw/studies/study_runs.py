"""What the claims of a study are judged on: a run table and, where they were recorded, how tokens were spread over
experts and how fast models train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import pandas as pd

from routelaw.figures.loss_curves import routed_techniques
from routelaw.figures.matched import WEIGHT
from routelaw.figures.robustness import DEFAULT_WEIGHTS
from routelaw.fitting.matched_runs import VALIDATION, MatchedRuns, one_recipe
from routelaw.fitting.points import one_corpus
from routelaw.runs.table import RunTable
from routelaw.runs.variants import DEFAULT, parts_of, relative_to_usual

PAPER_ROUTERS = ("s-base", "rl-r", "hash")
PAPER_LAW = "saturated"
"""The paper's own: bilinear in log N and the log of Ê, which runs out at both ends."""
WEIGHT_DEFAULTS = {key.removesuffix(WEIGHT): defaults for key, defaults in DEFAULT_WEIGHTS.items()}
"""A column of the weights of each run, and what it is by default."""
BALANCE_DEFAULTS = WEIGHT_DEFAULTS["balance"]
WEIGHTS = {"balance_weight", "entropy_weight", "policy_weight"}
SPREAD = ["oversubscribed", "dropped", "router_entropy"]
LAST_PART = 0.8
"""Share of a run's steps after which the spread of tokens is averaged."""


@dataclass(frozen=True, eq=False)
class StudyRuns(MatchedRuns):
    """A variant of "" is what is usual in the table (`of`)."""

    routing: pd.DataFrame | None = None
    """run_id, step, block, oversubscribed, dropped, …: every routed block as it was logged."""
    speeds: pd.DataFrame | None = None
    """run_id and tokens_per_second of models trained by themselves."""

    notes: tuple[str, ...] = ()
    """What was taken for usual, a sentence each."""

    @classmethod
    def of(cls, table: RunTable, target: str = VALIDATION, routing: pd.DataFrame | None = None) -> Self:
        """The runs of any table: variants as differences from what is usual in it, weights in columns, and the loss
        asked for in the place of the validation loss."""
        left_out: list[str] = []
        table = replace(table, frame=one_recipe(one_corpus(table.frame, left_out), left_out))
        relative = relative_to_usual(table)
        notes = relative.notes[len(table.notes) :]
        notes = (*notes, f"Left out: {'; '.join(left_out)}.") if left_out else notes
        frame = with_weights(relative.frame, table.frame["variant"])
        if target != VALIDATION:
            frame[VALIDATION] = frame[target]
            notes = (*notes, f"Judged on {target}.")
        return cls(replace(relative, frame=frame), routing=routing, notes=notes)

    @property
    def routers(self) -> list[str]:
        """Those that claims about all routers are judged on."""
        return routed_techniques(self.table)

    @cached_property
    def spreads(self) -> pd.DataFrame:
        """How each run spread its tokens at the end: what was logged in its last fifth, over all routed blocks."""
        if self.routing is None or self.routing.empty:
            return pd.DataFrame(columns=SPREAD, dtype=float)
        last = self.routing.groupby("run_id")["step"].transform("max")
        late = self.routing[self.routing["step"] > LAST_PART * last]
        return late.groupby("run_id")[[c for c in SPREAD if c in late]].mean()

    @property
    def known_speeds(self) -> pd.DataFrame | None:
        return self.speeds

    @cached_property
    def own_speeds(self) -> pd.Series | None:
        """Tokens per second of runs that had the device for themselves; None where none is known to."""
        known = self.known_speeds
        return None if known is None or known.empty else known.set_index("run_id")["tokens_per_second"]


def with_weights(frame: pd.DataFrame, variants: pd.Series) -> pd.DataFrame:
    """The frame with the weights of each run in columns, from its variant as it was written."""
    parts = variants.map(parts_of)
    columns = {
        column: parts.map(lambda p, name=f"{column}_weight": _number(p, name)).fillna(frame["router"].map(defaults))
        for column, defaults in WEIGHT_DEFAULTS.items()
    }
    return frame.assign(**columns)


def _number(parts: Mapping[str, str], name: str) -> float:
    """NaN where it is not named, or no number."""
    return float(pd.to_numeric(parts.get(name, DEFAULT).replace(DEFAULT, "nan"), errors="coerce"))
