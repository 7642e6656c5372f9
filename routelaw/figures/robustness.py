"""How much a technique depends on the weights of its losses: balance, entropy, policy gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import routed_techniques
from routelaw.figures.matched import (
    LOG_LOSS,
    OWN_VARIANT,
    WEIGHT,
    dense_loss,
    in_order,
    legend_once,
    legend_panels,
    loss_label,
    matched_runs,
    noise_band,
    noise_sd,
)
from routelaw.fitting.matched_runs import MatchedRuns
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of
from routelaw.specs.names import DENSE

DEFAULT_WEIGHTS = {
    "balance_weight": {"switch": 1e-2, "s-base": 1e-2, "base": 1e-2, "rl-r": 1.0},
    "entropy_weight": {"rl-r": 5e-4},
    "policy_weight": {"rl-r": 1e-2},
}
"""The weight of a technique whose runs do not name one; another variant of it may have another."""
FEW = 3
"""Settings of its weights with which a technique is shown to depend on them."""
PLACE = ["size", "experts", "k", "routing_frequency"]


def weighted_runs(runs: MatchedRuns) -> pd.DataFrame:
    """Routed models of which nothing but weights was varied, seeds averaged: a column for each weight that several
    values of were tried, NaN where a technique has no such weight or its default is not known."""
    rows = runs.one_length
    alone = [all(key.endswith(WEIGHT) for key in parts_of(str(variant))) for variant in rows["variant"]]
    rows = rows[np.array(alone, bool) & (rows["router"] != DENSE)]
    parts = [parts_of(str(variant)) for variant in rows[OWN_VARIANT]]
    keys = sorted({key for own in parts for key in own if key.endswith(WEIGHT)})
    for key in keys:
        named = pd.to_numeric(pd.Series([own.get(key) for own in parts], rows.index), errors="coerce")
        default = (
            rows["router"].map(DEFAULT_WEIGHTS.get(key, {})).mask(np.array(["variant" in own for own in parts], bool))
        )
        rows = rows.assign(**{key: named.fillna(default).astype(float)})
    models = [*PLACE, "router", "variant", *keys]
    made = rows.groupby(models, dropna=False)[[LOG_LOSS]].mean().reset_index()
    single = [key for key in keys if made.groupby("router")[key].nunique().max() < 2]
    return made.drop(columns=single)


def places(runs: MatchedRuns) -> Iterator[tuple[tuple[str, int], pd.DataFrame]]:
    """(size, E) with the models there, where a technique was trained with at least three settings; smallest first."""
    rows = weighted_runs(runs)
    sizes = {size: place for place, size in enumerate(in_order(runs, rows["size"]))}
    ordered = rows.assign(place=rows["size"].map(sizes)).sort_values(["place", *PLACE[1:]], kind="stable")
    for _, own in ordered.drop(columns="place").groupby(PLACE, sort=False):
        if own.groupby("router").size().max() >= FEW:
            yield (str(own["size"].iloc[0]), int(own["experts"].iloc[0])), own


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    found = list(places(runs))
    if not found:
        raise CannotDraw(f"No router was trained with {FEW} settings of its losses' weights at equal size and E.")
    weights = [str(key) for key in found[0][1] if str(key).endswith(WEIGHT)]
    columns = 1 + len(weights)
    picture, axes = legend_panels(columns, len(found), width=2.8, height=3.1, legend=2.6)
    routers = [r for r in routed_techniques(table) if any(r in set(own["router"]) for _, own in found)]
    colours = style.router_colours(routers)
    for row, ((size, experts), own) in enumerate(found):
        first, *others = axes[row * columns : (row + 1) * columns]
        _draw_spread(first, runs, size, own, colours)
        first.set_ylabel(loss_label(table))
        first.set_title(f"{size}, E = {experts}")
        losses = 10 ** own[LOG_LOSS]
        room = 0.06 * (losses.max() - losses.min()) or 0.01
        for panel, key in zip(others, weights, strict=True):
            _draw_weight(panel, own, key, weights, colours)
            panel.set_ylim(losses.min() - room, losses.max() + room)
        legend_once(axes[(row + 1) * columns - 1], first)
    return picture


def _draw_spread(axes: Axes, runs: MatchedRuns, size: str, rows: pd.DataFrame, colours: dict[str, str]) -> None:
    """Every setting of every technique, the usual one in a ring; the dense model as a line."""
    present = [router for router in colours if router in set(rows["router"])]
    for place, router in enumerate(present):
        own = rows[rows["router"] == router].sort_values(LOG_LOSS)
        x = place + np.linspace(-0.2, 0.2, len(own)) if len(own) > 1 else [place]
        look = {"color": colours[router], "marker": style.router_mark(router)}
        axes.plot(x, 10 ** own[LOG_LOSS], linestyle="none", label=style.router_label(router), **look)
        usual = (own["variant"] == "").to_numpy()
        axes.plot(np.asarray(x)[usual], 10 ** own[LOG_LOSS][usual], "o", color="black", fillstyle="none", markersize=9)
    axes.plot([], [], "o", color="black", fillstyle="none", markersize=9, linestyle="none", label="as usual")
    if dense := dense_loss(runs, size):
        label = style.router_label(DENSE)
        axes.axhline(dense, color=style.router_colour(DENSE), linestyle="--", linewidth=1, label=label)
    best = float(10 ** rows[LOG_LOSS].min())
    noise_band(axes, runs, size, noise_sd(runs, size) * float(np.log(10)) * best, best)
    axes.set_xticks(range(len(present)), [style.router_label(router) for router in present])
    axes.set_xlim(-0.6, len(present) - 0.4)


def _draw_weight(axes: Axes, rows: pd.DataFrame, key: str, weights: list[str], colours: dict[str, str]) -> None:
    """Loss over one weight: a line joins models of one technique whose other weights are equal."""
    known = rows.dropna(subset=[key])
    others = [other for other in weights if other != key]
    for (router, *_), own in known.groupby(["router", *others], dropna=False):
        if len(own) > 1:
            line = own.sort_values(key)
            look = {"color": colours[str(router)], "marker": style.router_mark(str(router)), "linewidth": 1.0}
            axes.plot(line[key], 10 ** line[LOG_LOSS], alpha=0.8, **look)
    weight_axis(axes, known[key])
    axes.set_xlabel(f"{key.removesuffix(WEIGHT)} weight")


def weight_axis(axes: Axes, values: pd.Series) -> None:
    """Logarithmic, with zero a decade left of the smallest weight and a straight scale between."""
    positive = values[values > 0]
    if positive.empty:
        return
    least = float(positive.min())
    if (values == 0).any():
        axes.set_xscale("symlog", linthresh=least, linscale=1.0)
    else:
        axes.set_xscale("log")
    style.named_ticks(axes.xaxis, {float(value): f"{value:g}" for value in sorted(set(values))})
    axes.tick_params(axis="x", labelsize=7.5, rotation=30)


FIGURES = (
    Figure(
        name="robustness",
        title="How much a technique depends on the weights of its losses",
        caption=(
            "Models of one size and E that differ in nothing but the weights of their losses. First: all settings of "
            "each technique by their loss, in rings those that are usual in the table. Then the loss over each "
            "weight that was varied; a line joins models whose other weights are equal. A weight that a run does not "
            "name stands at its technique's default. Grey band: one standard deviation of the noise of seeds about "
            "the lowest loss."
        ),
        draw=draw,
        paper="Appendix figure robustness",
        released=False,
    ),
)
