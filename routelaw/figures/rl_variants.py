"""Variants of routing by reinforcement: greedy, sampled from the nucleus, with a learned baseline."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.matched import (
    experts_axis,
    in_order,
    legend_once,
    legend_panels,
    matched_runs,
    noise_band,
    noise_sd,
    percent,
    words_of,
)
from routelaw.fitting.matched_runs import PERCENT, MatchedRuns
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of

OPTION = "variant"
"""The option of a router that names its variant, such as `variant=G` of RL-R."""
MARKS = "osD^vPX*"


def variant_gaps(runs: MatchedRuns) -> dict[tuple[str, str], pd.Series]:
    """log10 L of each (router, variant) less that of the router as usual, by size and E."""
    rows = runs.one_length
    named = rows[rows["variant"].map(lambda text: OPTION in parts_of(text)).astype(bool)]
    gaps = {
        (str(router), str(variant)): runs.beside_usual(router, variant, ("k", "routing_frequency"))
        for router, variant in set(zip(named["router"], named["variant"], strict=True))
    }
    ordered = sorted(gaps, key=lambda key: (key[0], words_of(key[1])))
    return {key: gaps[key].groupby(["size", "experts"]).mean() for key in ordered if len(gaps[key])}


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    gaps = variant_gaps(runs)
    if not gaps:
        raise CannotDraw("No router was trained both as usual and as another of its variants at equal size and E.")
    sizes = in_order(runs, {size for gap in gaps.values() for size, _ in gap.index})
    routers = {router for router, _ in gaps}
    picture, axes = legend_panels(len(sizes), width=3.2, height=3.2, sharey=True)
    for panel, size in zip(axes, sizes, strict=True):
        seen: set[int] = set()
        for place, ((router, variant), gap) in enumerate(gaps.items()):
            if size in gap.index.get_level_values("size"):
                own = gap.xs(size, level="size").sort_index()
                colour = style.SPARE_COLOURS[place % len(style.SPARE_COLOURS)]
                name = words_of(variant) if len(routers) == 1 else f"{style.router_label(router)} {words_of(variant)}"
                panel.plot(own.index, percent(own), color=colour, marker=MARKS[place % len(MARKS)], label=name)
                seen |= set(own.index)
        panel.axhline(0, color="black", linewidth=0.8, label="the usual variant")
        noise_band(panel, runs, size, PERCENT * noise_sd(runs, size, 2))
        experts_axis(panel, seen)
        panel.set_title(f"{' and '.join(map(style.router_label, sorted(routers)))}, {size}")
    axes[0].set_ylabel("loss over the usual variant (%)")
    legend_once(axes[-1], *axes[:-1])
    return picture


FIGURES = (
    Figure(
        name="rl_variants",
        title="Variants of routing by reinforcement",
        caption=(
            "Loss of each variant over that of the router as it is usual in the table, at equal size and E: above "
            "zero the usual variant is better. In RL-R G takes the most probable experts, S samples from the nucleus "
            "and B, the default, learns a baseline. Grey band: one standard deviation of the difference of two runs "
            "that only their seeds tell apart."
        ),
        draw=draw,
        paper="Appendix figure basic_rl",
        released=False,
    ),
)
