"""One routed block of several FFWs per expert, or as many routed blocks of one?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import metric_formatter
from routelaw.figures.matched import (
    BESIDE,
    LOG_LOSS,
    OWN_VARIANT,
    dense_loss,
    in_order,
    legend_panels,
    loss_label,
    matched_runs,
    noise_name,
    noise_sd,
)
from routelaw.fitting.matched_runs import MatchedRuns
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of, variant_of
from routelaw.specs.names import DENSE

STACKED = "ffws_per_expert"
MODEL = ["router", "size", OWN_VARIANT, "experts", "k", "routing_frequency", "active_params"]


@dataclass(frozen=True)
class StackedPair:
    """A model of several FFWs per expert and the one that has these FFWs in routed blocks of their own; the columns of
    `MODEL` and the mean over seeds of log10 L."""

    stacked: pd.Series
    interleaved: pd.Series

    @property
    def gap(self) -> float:
        """log10 of the loss of the stacked model over the other's."""
        return float(self.stacked[LOG_LOSS] - self.interleaved[LOG_LOSS])


def stacked_pairs(rows: pd.DataFrame) -> Iterator[StackedPair]:
    """Each stacked model with the one that differs in it and in having more routed blocks, the nearest by active
    parameters: stacking adds FFWs, so its size has a name of its own."""
    models = rows.groupby(MODEL, as_index=False)[LOG_LOSS].mean()
    for _, stacked in models[models[OWN_VARIANT].map(lambda text: STACKED in parts_of(text)).astype(bool)].iterrows():
        rest = variant_of({key: value for key, value in parts_of(stacked[OWN_VARIANT]).items() if key != STACKED})
        same = (models[["router", "experts", "k"]] == stacked[["router", "experts", "k"]]).all(axis=1)
        others = models[same & (models[OWN_VARIANT] == rest)]
        others = others[others["routing_frequency"] > stacked["routing_frequency"]]
        if len(others):
            nearest = np.log(others["active_params"].astype(float) / stacked["active_params"]).abs().idxmin()
            yield StackedPair(stacked, others.loc[nearest])


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    pairs = list(stacked_pairs(runs.one_length))
    if not pairs:
        raise CannotDraw(
            "No router was trained with several FFWs per expert (ffws_per_expert) and, at equal E, with more routed "
            "blocks of one FFW."
        )
    places = {(str(pair.interleaved["size"]), int(pair.stacked["experts"])) for pair in pairs}
    sizes = in_order(runs, {size for size, _ in places})
    ordered = sorted(places, key=lambda place: (sizes.index(place[0]), place[1]))
    picture, axes = legend_panels(len(ordered), width=3.1, height=3.2, legend=2.4)
    for panel, (size, experts) in zip(axes, ordered, strict=True):
        here = [p for p in pairs if (p.interleaved["size"], p.stacked["experts"]) == (size, experts)]
        _draw_pairs(panel, runs, here)
        panel.set_title(f"{size}, E = {experts}")
        panel.set_ylabel(loss_label(table))
    axes[-1].legend(**BESIDE)
    return picture


def _draw_pairs(axes: Axes, runs: MatchedRuns, pairs: list[StackedPair]) -> None:
    size = str(pairs[0].interleaved["size"])
    sd = noise_sd(runs, size)
    for place, pair in enumerate(pairs):
        colour, mark = (make(str(pair.stacked["router"])) for make in (style.router_colour, style.router_mark))
        losses = [float(10 ** own[LOG_LOSS]) for own in (pair.stacked, pair.interleaved)]
        ends = place - 0.12, place + 0.12
        axes.plot(ends, losses, color=colour, linewidth=1, alpha=0.5)
        for x, loss, filling in zip(ends, losses, ("none", "full"), strict=True):
            half = sd * np.log(10) * loss or None
            axes.errorbar(x, loss, half, color=colour, marker=mark, fillstyle=filling, markersize=6, capsize=3)
    axes.set_xticks(range(len(pairs)), [style.router_label(str(pair.stacked["router"])) for pair in pairs])
    axes.set_xlim(-0.6, len(pairs) - 0.4)
    for pair, filling, name in ((pairs[0].stacked, "none", "stacked"), (pairs[0].interleaved, "full", "interleaved")):
        count = parts_of(pair[OWN_VARIANT]).get(STACKED, "1")
        active = metric_formatter()(float(f"{pair['active_params']:.3g}"))
        share = Fraction(float(pair["routing_frequency"])).limit_denominator(64)
        label = f"{name}: {count} FFW{'s' * (count != '1')} per expert,\nR = {share} ({active} active parameters)"
        axes.plot([], [], "o", color=style.GREY, fillstyle=filling, markersize=6, label=label)
    if sd:
        axes.plot([], [], "|", color=style.GREY, markersize=10, label=noise_name(runs, size))
    if loss := dense_loss(runs, size):
        axes.axhline(loss, color=style.router_colour(DENSE), linestyle="--", linewidth=1, label=f"Dense {size}")


FIGURES = (
    Figure(
        name="stacked_ffws",
        title="Stacked or interleaved: several FFWs per expert against several routed blocks",
        caption=(
            "Loss of models with several FFWs per expert in few routed blocks (open marks) and of models with these "
            "FFWs in more routed blocks, one per expert (filled), at equal E. R is the share of blocks that are "
            "routed. Stacking adds FFWs to the blocks that the model has, so the model that it is compared with is "
            "the nearest by active parameters. Bars: one standard deviation of the noise of seeds. Dashed: the dense "
            "model of the interleaved one's size."
        ),
        draw=draw,
        paper="Appendix figure num_expert_layers (b)",
        released=False,
    ),
)
