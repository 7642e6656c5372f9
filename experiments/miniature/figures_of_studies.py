"""Figures of the studies beside the main sweep: K and R, lengths, seeds, zero-shot losses."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from experiments.miniature.claims_on_architecture import ROUTER, k_excess
from experiments.miniature.claims_on_losses import PAPER_SPREAD, seeds_along
from experiments.miniature.claims_on_training import (
    expert_slope_along,
    gap_by_length,
    lengths,
    own_slope,
    zero_shot_losses,
)
from experiments.miniature.effects import LEVEL, PERCENT
from experiments.miniature.study import PAPER_ROUTERS, VALIDATION, Study
from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.loss_curves import metric_formatter
from routelaw.figures.routing_frequency import frequency_axis, frequency_points, plot_over_frequency

NOTHING = "no such runs in the table"
LINES = ("-", "--", ":", "-.")
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
"""A legend of many lines, where it hides none of them."""


def draw_k_and_r(study: Study) -> Picture:
    """(a) excess of K > 1 over the K = 1 line at equal FLOPs; (b, …) loss by R, a panel for each E."""
    excess = k_excess(study)
    rows = study.one_length
    varied = rows[(rows["variant"] == "") & (rows["k"] == 1) & (rows["routing_frequency"] != 0.5)]
    experts = sorted(varied[varied["router"] != "dense"]["experts"].unique())
    if excess.empty and not experts:
        raise InputError(NOTHING)
    picture, axes = style.panels(1 + len(experts), width=3.3, height=3.1)
    _draw_excess(axes[0], study)
    for panel, e in zip(axes[1:], experts, strict=True):
        _draw_frequencies(panel, study, int(e), sorted(varied["size"].unique(), key=study.active_params.__getitem__))
    if experts:
        axes[1].legend(loc="best")
    return picture


def _draw_excess(axes: Axes, study: Study) -> None:
    excess = k_excess(study)
    axes.axhline(0, color="black", linewidth=0.8)
    if not excess.empty:
        groups = list(excess.groupby(["experts", "size"]))
        shades = dict(zip(sorted(excess["experts"].unique()), style.shades(excess["experts"].nunique()), strict=True))
        sizes = list(dict.fromkeys(excess["size"]))
        for (e, size), own in groups:
            own = own.sort_values("k")
            axes.plot([1, *own["k"]], [0.0, *(PERCENT * own["excess"])], "o", color=shades[e],
                      linestyle=LINES[sizes.index(size) % len(LINES)], label=f"E = {e}, {size}")  # fmt: skip
        axes.legend(loc="best")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(metric_formatter())
    axes.set_xlabel("experts per token K")
    axes.set_ylabel("loss over K = 1 at equal FLOPs (%)")
    axes.set_title(style.router_label(ROUTER))


def _draw_frequencies(axes: Axes, study: Study, experts: int, sizes: list[str]) -> None:
    seen: set[float] = set()
    for router, (size, line) in product((ROUTER, "hash"), zip(sizes, LINES, strict=False)):
        if router not in study.table.routers:
            continue
        points = frequency_points(study.table, router, size)
        points = points.where(points.x["experts"] == experts)
        if len(points) > 1:
            plot_over_frequency(axes, points, color=style.router_colour(router), marker=style.router_mark(router),
                                linestyle=line, label=f"{style.router_label(router)} {size}")  # fmt: skip
            seen |= set(points.x["routing_frequency"])
    frequency_axis(axes, tuple(Fraction(r).limit_denominator(32) for r in sorted(seen)))
    axes.set_title(f"E = {experts}")
    axes.set_ylabel("validation loss (nats per token)")


def draw_lengths(study: Study) -> Picture:
    """b, the slope of log L in log E, along training, for schedules of several lengths; and what S-BASE is behind HASH
    at the end of each."""
    found, gap = lengths(study), gap_by_length(study, "s-base")
    if not found:
        raise InputError(NOTHING)
    picture, axes = style.panels(len(found) + (not gap.empty), width=3.9, height=3.1)
    if not gap.empty:
        _draw_gap(axes[-1], gap)
    for panel, (size, rows) in zip(axes, found.items(), strict=False):
        slopes = expert_slope_along(rows)
        for plan, shade in zip(slopes.columns, style.shades(slopes.shape[1]), strict=True):
            own = slopes[plan].dropna()
            label = f"{metric_formatter()(float(f'{plan:.2g}'), 0)} tokens"
            panel.plot(own.index.astype(float), own, "o-", markersize=3, color=shade, label=label)
        _tokens_axis(panel, "tokens seen")
        panel.set_ylabel("b, slope of log L in log E")
        panel.set_title(f"HASH, {size}")
        panel.legend(loc="best")
    return picture


def _draw_gap(axes: Axes, gap: pd.DataFrame) -> None:
    axes.axhline(0, color="black", linewidth=0.8)
    for ((size, experts), own), shade in zip(gap.items(), style.shades(gap.shape[1]), strict=True):
        known = own.dropna()
        axes.plot(known.index.astype(float), known, "o-", markersize=3, color=shade, label=f"{size}, E = {experts}")
    _tokens_axis(axes, "tokens of the whole schedule")
    axes.set_ylabel("S-BASE less HASH (nats per token)")
    axes.legend(**BESIDE)


def _tokens_axis(axes: Axes, label: str) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(metric_formatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)


def draw_seeds(study: Study) -> Picture:
    """How far apart seeds are along training: a panel for each size, a line for each model."""
    apart = seeds_along(study)
    if apart.empty:
        raise InputError(NOTHING)
    sizes = [size for size in study.active_params if size in apart.columns.get_level_values(1)]
    picture, axes = style.panels(len(sizes), width=4.6 if len(sizes) == 1 else 3.4, height=3.2)
    experts = sorted({e for _, _, e in apart.columns})
    named = {}
    for panel, size in zip(axes, sizes, strict=True):
        for router, _, e in [column for column in apart.columns if column[1] == size]:
            known = apart[router, size, e].dropna()
            (line,) = panel.plot(known.index.astype(float), known, color=style.router_colour(router), markersize=3,
                                 marker=style.router_mark(router), linestyle=LINES[experts.index(e) % len(LINES)],
                                 label=f"{style.router_label(router)}, E = {e}")  # fmt: skip
            named.setdefault(line.get_label(), line)
        panel.axhline(PAPER_SPREAD, color="black", linewidth=0.8)
        panel.set_ylim(0, 1.05 * apart.max().max())
        panel.xaxis.set_major_formatter(metric_formatter())
        panel.set_xlabel("tokens seen")
        panel.set_title(size)
    axes[0].set_ylabel("largest distance of seeds (nats)")
    axes[-1].legend(handles=list(named.values()), **BESIDE)
    return picture


def draw_transfer(study: Study) -> Picture:
    """(a) zero-shot losses against validation, every run of the main sweep; (b) their slopes in log N less its own."""
    targets = zero_shot_losses(study)
    routers = [r for r in PAPER_ROUTERS if r in study.table.routers]
    if not targets or not routers:
        raise InputError(NOTHING)
    picture, axes = style.panels(2, width=4.2, height=3.3)
    colours = dict(zip(targets, style.SPARE_COLOURS, strict=False))  # no router's, for (b) has those
    for target in targets:
        for router in ("dense", *routers):
            x, y = study.losses(router, VALIDATION).align(study.losses(router, target), join="inner")
            axes[0].plot(10**x, 10**y, linestyle="", marker=style.router_mark(router), markersize=3,
                         color=colours[target], alpha=0.6)  # fmt: skip
        axes[0].plot([], [], "o", color=colours[target], label=target.removeprefix("loss_"))
    for axis in (axes[0].xaxis, axes[0].yaxis):
        axis.set_major_locator(MaxNLocator(6))
    axes[0].set_xlabel("validation loss (nats per token)")
    axes[0].set_ylabel("zero-shot loss (nats per token)")
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=len(targets))
    _draw_own_slopes(axes[1], study, targets, routers)
    for panel, letter in zip(axes, "ab", strict=True):
        style.panel_letter(panel, letter)
    return picture


def _draw_own_slopes(axes: Axes, study: Study, targets: list[str], routers: list[str]) -> None:
    slopes = {pair: own_slope(study, *reversed(pair)) for pair in product(targets, routers)}
    if not any(slopes.values()):
        axes.text(0.5, 0.5, "fewer than four sizes so far", ha="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    axes.axhline(0, color="black", linewidth=0.8)
    for place, ((_, router), slope) in enumerate(slopes.items()):
        if slope is not None:
            look = {"color": style.router_colour(router), "marker": style.router_mark(router)}
            axes.errorbar(place + place // len(routers), slope.gap, slope.half(LEVEL), capsize=2, **look)
    middles = [i * (len(routers) + 1) + (len(routers) - 1) / 2 for i in range(len(targets))]
    axes.set_xticks(middles, [t.removeprefix("loss_") for t in targets], rotation=20)
    axes.set_ylabel("slope in log N beyond validation's (90 %)")
    for router in routers:
        axes.plot([], [], marker=style.router_mark(router), linestyle="", color=style.router_colour(router),
                  label=style.router_label(router))  # fmt: skip
    axes.legend(loc="best")
