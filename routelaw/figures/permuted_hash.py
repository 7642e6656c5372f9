"""Token ids permuted anew in every layer: does HASH gain from more paths through the model?"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.matched import (
    LOG_LOSS,
    PAPER_CUTOFF,
    experts_axis,
    in_order,
    legend_once,
    legend_panels,
    loss_label,
    matched_runs,
    noise_band,
)
from routelaw.fitting.matched_runs import MatchedRuns
from routelaw.runs.table import RunTable
from routelaw.runs.variants import DEFAULT

PERMUTED = "permuted"
PLACE = ["router", "size", "experts", "routing_frequency", "k"]


def permuted_pairs(runs: MatchedRuns) -> pd.DataFrame:
    """log10 L of `permuted` and `plain` models by router, size, E, R and K, where both were trained."""
    usual = {"": "plain", PERMUTED: PERMUTED}
    reverse = {f"{PERMUTED}={DEFAULT}": "plain", "": PERMUTED}  # where permuting is what is usual
    rows, found = runs.one_length, []
    for _, own in rows.groupby("router"):
        names = reverse if f"{PERMUTED}={DEFAULT}" in set(own["variant"]) else usual
        known = own.assign(kind=own["variant"].map(names)).dropna(subset=["kind"])
        pairs = known.groupby([*PLACE, "kind"])[LOG_LOSS].mean().unstack("kind")
        found.append(pairs.reindex(columns=["plain", PERMUTED]).dropna())
    return pd.concat(found)


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    pairs = permuted_pairs(runs)
    if pairs.empty:
        raise CannotDraw("No router was trained with permuted token ids and without them at equal size, E and R.")
    sizes = in_order(runs, pairs.index.get_level_values("size"))
    picture, axes = legend_panels(2, len(sizes), width=3.2, height=3.0)
    frequencies = sorted(set(pairs.index.get_level_values("routing_frequency")))
    shades = dict(zip(frequencies, style.shades(len(frequencies)), strict=True))
    for row, size in enumerate(sizes):
        own = pairs[pairs.index.get_level_values("size") == size]
        left, right = axes[2 * row : 2 * row + 2]
        _draw_losses(left, own, shades)
        left.set_ylabel(loss_label(table))
        _draw_differences(right, own, shades)
        if noise := runs.noise(size):
            noise_band(right, runs, size, float(np.sqrt(2)) * noise.nats)
        for panel in (left, right):
            experts_axis(panel, own.index.get_level_values("experts"))
            panel.set_title(f"{' and '.join(map(style.router_label, dict.fromkeys(_routers(own))))}, {size}")
        legend_once(right, left)
    return picture


def _routers(pairs: pd.DataFrame) -> list[str]:
    return [str(router) for router in pairs.index.get_level_values("router")]


def _lines(pairs: pd.DataFrame) -> list[tuple[str, float, pd.DataFrame]]:
    """Router, R and the models of a line, by E."""
    frequency = pairs.index.get_level_values("routing_frequency").to_numpy(float)
    return [
        (
            str(router),
            r,
            pairs[(pairs.index.get_level_values("router") == router) & (frequency == r)].groupby("experts").mean(),
        )
        for router in dict.fromkeys(_routers(pairs))
        for r in sorted(set(frequency[pairs.index.get_level_values("router") == router]))
    ]


def _draw_losses(axes: Axes, pairs: pd.DataFrame, shades: dict) -> None:
    for router, frequency, own in _lines(pairs):
        look = {"color": shades[frequency], "marker": style.router_mark(router)}
        name = f"R = {Fraction(frequency).limit_denominator(64)}"
        axes.plot(own.index, 10 ** own["plain"], label=name, **look)
        axes.plot(own.index, 10 ** own[PERMUTED], linestyle="--", fillstyle="none", **look)
    for line, filling, name in (("-", "full", "plain"), ("--", "none", PERMUTED)):
        axes.plot([], [], color=style.GREY, linestyle=line, fillstyle=filling, marker="o", label=name)


def _draw_differences(axes: Axes, pairs: pd.DataFrame, shades: dict) -> None:
    for router, frequency, own in _lines(pairs):
        gap = 10 ** own[PERMUTED] - 10 ** own["plain"]
        axes.plot(own.index, gap, color=shades[frequency], marker=style.router_mark(router))
    axes.axhline(0, color="black", linewidth=0.8)
    for sign in (-1, 1):
        name = f"± {PAPER_CUTOFF:g} nats, the paper's cut-off" if sign > 0 else None
        axes.axhline(sign * PAPER_CUTOFF, color="black", linewidth=0.8, linestyle=":", label=name)
    axes.set_ylabel("permuted less plain (nats)")


FIGURES = (
    Figure(
        name="permuted_hash",
        title="Token ids permuted in every layer",
        caption=(
            "Left: loss of models whose layers permute the ids of tokens before they look up an expert (open marks, "
            "dashed) and of those that do not, by E and by the share R of blocks that are routed. Right: the "
            "difference of the two. Grey band: one standard deviation of the difference of two runs that only their "
            "seeds tell apart; dotted: the 0.02 nats that the paper used as its cut-off."
        ),
        draw=draw,
        released=False,
    ),
)
