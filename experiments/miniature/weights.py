"""What the weights of the routers' losses do: loss and spread of tokens by balance weight, and by entropy weight, too.

Over-subscription is the share of assignments beyond an even load of their routing group, drops are those beyond the
capacity; both are means over the routed blocks at the end of training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.miniature.study import VALIDATION, WEIGHTS, Study, parts_of
from routelaw.laws.law import Array

LOSS, EXCESS, DROPS = f"log_{VALIDATION}", "oversubscribed", "dropped"
CROSSED = "rl-r"
"""The technique that has an entropy weight."""
PLACE = ["router", "size", "experts"]


def weighted(study: Study) -> pd.DataFrame:
    """Runs of which nothing but balance and entropy weights was varied, with the loss and how tokens were spread."""
    rows = study.usual_shape
    rows = rows[rows["balance"].notna() & rows["variant"].map(lambda v: set(parts_of(v)) <= WEIGHTS)]
    return rows.assign(**{name: rows["run_id"].map(study.spreads[name]).astype(float) for name in (EXCESS, DROPS)})


def by_balance(study: Study, column: str = LOSS) -> pd.DataFrame:
    """A column by (router, size, E) and balance weight, at the usual entropy weight; seeds averaged."""
    rows = weighted(study)
    usual_entropy = rows[rows["variant"] == ""].groupby("router")["entropy"].first()
    usual = rows["entropy"].isna() | np.isclose(rows["entropy"], rows["router"].map(usual_entropy).astype(float))
    return rows[usual].groupby([*PLACE, "balance"])[column].mean().unstack("balance")


def varied(table: pd.DataFrame) -> pd.DataFrame:
    """The places of `by_balance` with three weights or more."""
    return table[table.notna().sum(axis=1) > 2]


def crosses(study: Study, column: str = LOSS) -> dict[tuple[str, int], pd.DataFrame]:
    """By (size, E) where both weights were varied: a column of RL-R, a row for each entropy weight, a column for each
    balance weight that has several of them."""
    rows = weighted(study)
    found = {}
    for (size, experts), own in rows[rows["router"] == CROSSED].groupby(["size", "experts"]):
        grid = own.groupby(["entropy", "balance"])[column].mean().unstack("balance")
        grid = grid.loc[:, grid.notna().sum() > 1]
        if grid.shape[0] > 1 and grid.shape[1] > 1:
            found[str(size), int(experts)] = grid
    return found


def spread_noise(study: Study, routers: Sequence[str], size: str, experts: int) -> tuple[float, int] | None:
    """Standard deviation of over-subscription over seeds, pooled over models of these routers and E, of the size whose
    seeds stand for this one, and its degrees of freedom; None where no such model has two seeds."""
    rows = weighted(study)
    rows = rows[rows["size"] == study.seeds_for(size)]
    rows = rows[rows["router"].isin(routers) & (rows["experts"] == experts)].dropna(subset=[EXCESS])
    groups: list[Array] = [g.to_numpy(float) for _, g in rows.groupby([*PLACE, "variant"])[EXCESS] if len(g) > 1]
    freedom = sum(len(g) - 1 for g in groups)
    return (float(np.sqrt(sum(((g - g.mean()) ** 2).sum() for g in groups) / freedom)), freedom) if freedom else None
