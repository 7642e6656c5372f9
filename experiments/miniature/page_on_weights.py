"""The part of the page on the routers' weights: over-subscription, drops and loss by balance and entropy weight."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from experiments.miniature import claims_on_balance
from experiments.miniature.claim import Claim
from experiments.miniature.effects import PERCENT
from experiments.miniature.study import Study
from experiments.miniature.weights import CROSSED, DROPS, EXCESS, LOSS, by_balance, crosses, varied
from routelaw.figures.style import router_label
from routelaw.report.page import Block, Bullets, Entry, Grid, Text


def blocks_on_weights(study: Study, claims: Sequence[Claim]) -> list[Block]:
    judged = {test.said.name for test in claims_on_balance.TESTS}
    lines = [
        f"{c.said.statement}: {c.verdict}. {c.why[:1].upper()}{c.why[1:]}" for c in claims if c.said.name in judged
    ]
    blocks: list[Block] = [Bullets(lines)]
    if study.routing is None:
        blocks.append(Text("How tokens were spread was not recorded: the tables have losses alone."))
    tables = [*_by_balance(study), *_by_both(study)]
    if tables:
        meaning = (
            "Over-subscription: the share of assignments beyond an even load of their group, over all routed blocks at "
            "the end of training. Above it the share dropped for lack of capacity; below, the loss over the best of "
            "the row or, for both weights, of the table."
        )
        return [*blocks, *tables, Text(meaning, "soft")]
    return [*blocks, Text("No router was trained with several balance weights and the rest as usual.")]


def _by_balance(study: Study) -> list[Block]:
    losses, shares, drops = (by_balance(study, column) for column in (LOSS, EXCESS, DROPS))
    rows = []
    for place, own in varied(losses).iterrows():
        router, size, experts = place  # pyrefly: ignore
        name = f"{router_label(router)} {size}, E = {experts}"
        rows.append([Entry(name), *_cells(own - own.min(), shares.loc[place], drops.loc[place])])
    return [Grid(["balance weight", *(f"{w:g}" for w in losses.columns)], rows)] if rows else []


def _by_both(study: Study) -> list[Block]:
    shares, drops = (crosses(study, column) for column in (EXCESS, DROPS))
    made: list[Block] = []
    for (size, experts), losses in crosses(study).items():
        unknown = pd.DataFrame(index=losses.index, columns=losses.columns, dtype=float)
        share, drop = (grids.get((size, experts), unknown).reindex_like(losses) for grids in (shares, drops))
        over_best = losses - losses.min().min()
        rows = [[Entry(f"{e:g}"), *_cells(over_best.loc[e], share.loc[e], drop.loc[e])] for e in losses.index]
        name = f"{router_label(CROSSED)} {size}, E = {experts}: entropy weight"
        made.append(Grid([name, *(f"balance {w:g}" for w in losses.columns)], rows))
    return made


def _cells(over_best: pd.Series, shares: pd.Series, drops: pd.Series) -> list[Entry]:
    return [_cell(over_best[weight], shares.get(weight), drops.get(weight)) for weight in over_best.index]


def _cell(over_best: float, share: float | None, drop: float | None) -> Entry:
    if pd.isna(over_best):
        return Entry("–")
    said = ["–" if value is None or pd.isna(value) else f"{value:.1%}" for value in (share, drop)]
    return Entry(said[0], under=f"+{PERCENT * over_best:.2f} %", over=f"dropped {said[1]}")
