"""Two parts of the page: how far every law was off on the size that it predicted blindly, and what the weights of the
routers' losses do to over-subscription, drops and loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from experiments.miniature.analysis.study import Study
from routelaw.figures.style import router_label
from routelaw.fitting.claims import JudgedClaim
from routelaw.fitting.matched_runs import PERCENT, VALIDATION
from routelaw.report.page import Block, Bullets, Entry, Grid, Text
from routelaw.studies.claims_on_balance import (
    CLAIMS,
    CROSSED,
    DROPS,
    EXCESS,
    LOSS,
    by_balance,
    crosses,
    varied,
)
from routelaw.studies.study_runs import PAPER_LAW

WIDE = 10.0
"""Widths of intervals, as shares of the loss, that are not told apart."""


def blocks_on_blind(scored: Mapping[str, Any] | None, rates: pd.DataFrame) -> list[Block]:
    """`rates`: the models that were trained with several learning rates (figures_of_choices.py)."""
    if scored is None:
        return [Text("No predictions were written, or the size they are about is not trained yet.")]
    of_all = {row["law"]: row for row in scored["by_law"]}
    cells = {(row["law"], row["router"]): row for row in scored["by_law_and_router"]}
    routers = list(dict.fromkeys(row["router"] for row in scored["runs"]))
    columns = [of_all, *({law: cells[law, r] for law in of_all if (law, r) in cells} for r in routers)]
    best = [min(column, key=lambda law: column[law]["rmse"]) for column in columns]
    rows = [
        [Entry(law), *(_law_cell(column.get(law), law == b) for column, b in zip(columns, best, strict=True))]
        for law in of_all
    ]
    return [
        Text(_in_short(scored, of_all), "key"),
        Text(scored["preregistration"]["words"], "" if scored["preregistration"]["shown"] else "key"),
        Grid(["law", "all routers", *map(router_label, routers)], rows),
        Text(_meaning(scored) + _other_rates(rates, scored["size"]), "soft"),
    ]


def _in_short(scored: Mapping[str, Any], of_all: Mapping[str, Mapping[str, Any]]) -> str:
    law, best = next(iter(of_all.items()))
    words = f"{scored['size']} predicted from the smaller sizes alone. Best over all routers: {law}, wrong by "
    words += f"{PERCENT * best['rmse']:.2f} % of the loss"
    if scored["noise"]:
        words += f", where seeds of {scored['seeds_of']} differ by {PERCENT * scored['noise']:.2f} %"
    paper = of_all.get(PAPER_LAW)
    if paper is None or paper is best:
        return f"{words}."
    mean = PERCENT * paper["mean_error"]
    words += f". The paper's law, {PAPER_LAW}: {PERCENT * paper['rmse']:.2f} %"
    return f"{words}, on average {abs(mean):.2f} % too {'low' if mean < 0 else 'high'}."


def _meaning(scored: Mapping[str, Any]) -> str:
    of_runs = sorted({row["law"] for row in scored["by_law"] if "case-bootstrap" in row["intervals"]})
    words = (
        "RMSE of log10 L in 1e-4; above it the mean error (below zero: too low a loss was predicted), under it the "
        f"share of models inside the {scored['level']:.0%} intervals and the median width of these in % of the loss. "
        "Blue: the best of the column; red, of the others: a mean error beyond the noise of the measured runs, 90 %, "
        "with the prediction taken as exact, which from so few sizes it is not. The dense model counts with every "
        "router. The learning rate of this size is from a line through those of smaller ones: where that is not the "
        "best one losses are too high, and laws that predict low ones look worse than they are."
    )
    if of_runs:
        words += f" Intervals of {', '.join(of_runs)} are from resampled runs, not sizes, and too narrow."
    return words


def _other_rates(rates: pd.DataFrame, size: str) -> str:
    """What other learning rates did at the size, in words; empty where none was tried."""
    if rates.empty or not (rates["size"] == size).any():
        return ""
    over = []
    for (router, experts), own in rates[rates["size"] == size].groupby(["router", "experts"]):
        gap = own[VALIDATION][~own["chosen"]].min() - own[VALIDATION][own["chosen"]].min()
        over.append(f"{gap:+.3f} ({router_label(router)}{f' with E = {experts}' if experts > 1 else ''})")
    return f" Nats between it and the best of the other rates that were tried there: {', '.join(over)}."


def _law_cell(row: Mapping[str, Any] | None, best: bool) -> Entry:
    if row is None:
        return Entry("–")
    width = f"{100 * row['width']:.1f} %" if row["width"] < WIDE else f"over {100 * WIDE:.0f} %"
    return Entry(f"{1e4 * row['rmse']:.1f}", over=f"{1e4 * row['mean_error']:+.1f}",
                 under=f"{row['coverage']:.0%} inside, {width}",
                 tone="mine" if best else "bad" if row["beyond_noise"] else "")  # fmt: skip


def blocks_on_weights(study: Study, claims: Sequence[JudgedClaim]) -> list[Block]:
    lines = [f"{c.claim.statement}: {c.verdict}. {c.why[:1].upper()}{c.why[1:]}" for c in claims if c.claim in CLAIMS]
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
