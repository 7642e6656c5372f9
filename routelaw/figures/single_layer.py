"""A single routed block: do routers still differ, and does it matter which block it is?"""

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
    OWN_VARIANT,
    dense_loss,
    experts_axis,
    in_order,
    legend_once,
    legend_panels,
    loss_label,
    matched_runs,
    noise_name,
    noise_sd,
)
from routelaw.fitting.matched_runs import MatchedRuns
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of
from routelaw.specs.names import DENSE

PLACEMENT = "placement"
USUAL_FREQUENCY = 0.5
LOOKS = {"even": ("-", "full"), "interior": ("--", "none")}
"""Line and filling of the marks for a placement."""
OTHER_LOOK = (":", "none")
WORDS = {"even": "placed evenly", "interior": "placed inside"}


def fewest_routed(runs: MatchedRuns) -> pd.DataFrame:
    """K = 1 models of each size with its smallest share of routed blocks, below 1/2; `placement` says which these
    are."""
    rows = runs.one_length
    alone = rows["variant"].map(lambda text: set(parts_of(text)) <= {PLACEMENT}).astype(bool)
    few = (rows["routing_frequency"] < USUAL_FREQUENCY) & ~np.isclose(rows["routing_frequency"], USUAL_FREQUENCY)
    rows = rows[alone & few & (rows["router"] != DENSE) & (rows["k"] == 1)]
    rows = rows[rows["routing_frequency"] == rows.groupby("size")["routing_frequency"].transform("min")]
    placed = rows[OWN_VARIANT].map(lambda text: parts_of(text).get(PLACEMENT, "even"))
    return rows.assign(**{PLACEMENT: placed.astype(str)})


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    rows = fewest_routed(runs)
    if rows.empty:
        raise CannotDraw("No routed model with K = 1 has less than half of its blocks routed.")
    sizes = in_order(runs, rows["size"])
    picture, axes = legend_panels(len(sizes), width=3.2, height=3.2)
    for panel, size in zip(axes, sizes, strict=True):
        own = rows[rows["size"] == size]
        _draw_size(panel, runs, size, own)
        share = Fraction(float(own["routing_frequency"].iloc[0])).limit_denominator(64)
        panel.set_title(f"{size}, R = {share}")
        panel.set_ylabel(loss_label(table))
    legend_once(axes[-1], *axes[:-1])
    return picture


def _draw_size(axes: Axes, runs: MatchedRuns, size: str, rows: pd.DataFrame) -> None:
    if dense := dense_loss(runs, size):
        axes.axhline(dense, color=style.router_colour(DENSE), linestyle="--", linewidth=0.9, label="Dense")
    sd = noise_sd(runs, size)
    for (router, placement), own in rows.groupby(["router", PLACEMENT]):
        loss = 10 ** own.groupby("experts")[LOG_LOSS].mean()
        line, filling = LOOKS.get(str(placement), OTHER_LOOK)
        look = style.router_look(str(router), linestyle=line, fillstyle=filling)
        half = sd * np.log(10) * loss if sd else None
        axes.errorbar(loss.index, loss, half, capsize=2, elinewidth=0.8, **look)
        axes.plot(
            [], [], linestyle="none", color=look["color"], marker=look["marker"], label=style.router_label(str(router))
        )
    for placement in dict.fromkeys(rows[PLACEMENT]):
        line, filling = LOOKS.get(placement, OTHER_LOOK)
        name = WORDS.get(placement, f"blocks {placement.replace('+', ', ')}")
        axes.plot([], [], color=style.GREY, marker="o", linestyle=line, fillstyle=filling, label=name)
    if sd:
        axes.plot([], [], "|", color=style.GREY, markersize=10, label=noise_name(runs, size))
    experts_axis(axes, rows["experts"])


FIGURES = (
    Figure(
        name="single_layer",
        title="A single routed block",
        caption=(
            "Loss over experts of the models that have the fewest routed blocks of their size: one, where R = 1/L. "
            "Filled marks: routed blocks placed evenly, a single one as the last block but one. Open marks: placed "
            "inside, a single one in the middle of the model. Bars: one standard deviation of the noise of seeds, "
            "where the table has some. The dense model shows what routing gains at all."
        ),
        draw=draw,
        paper="Appendix figure num_expert_layers (a)",
        released=False,
    ),
)
