"""Figures of the main sweep: the law, its ranking among others beside the noise floor, and the blind test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator

from experiments.miniature.laws import Standing, routers_of
from experiments.miniature.study import Study
from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.loss_curves import routed_techniques
from routelaw.figures.main_results import draw_effective, draw_levels, draw_sizes
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.noise import NoiseFloor
from routelaw.fitting.points import select_points

LAW = "saturated"
LAW_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#7B4FA3",
    "#8C510A",
    "#999999",
    "#000000",
)


def draw_main(study: Study) -> Picture:
    fits = _fits(study)
    first = fits["s-base"] if "s-base" in fits else next(iter(fits.values()))
    picture, axes = style.panels(3, width=3.6, height=3.5)
    picture.set_layout_engine("constrained", w_pad=0.1)
    draw_sizes(axes[0], first)
    draw_levels(axes[1], first)
    draw_effective(axes[2], fits)
    for panel, letter in zip(axes, "abc", strict=True):
        style.panel_letter(panel, letter)
    return picture


def _fits(study: Study) -> dict[str, Fit]:
    known = routers_of(study)
    fits = {}
    for router in [r for r in routed_techniques(study.table) if r in known]:
        try:
            fits[router] = fit_law(LAW, select_points(study.table, router))
        except InputError:
            continue
    if not fits:
        raise InputError("no router has enough sizes and expert counts for a law.")
    return fits


def draw_ranking(made: Sequence[Standing], paper: Sequence[Standing], noise: NoiseFloor | None) -> Picture:
    """Leave-size-out error by law, ours with its interval and the paper's runs beside, over the noise of the seeds."""
    routers = list(dict.fromkeys(s.router for s in made if s.leave_size_out is not None))
    if not routers:
        raise InputError("no law could be judged on a size left out.")
    picture, axes = style.panels(len(routers), width=3.5, height=3.4, sharex=True)
    for panel, router in zip(axes, routers, strict=True):
        own = [s for s in made if s.router == router and s.leave_size_out is not None]
        _ranked(panel, own, {s.law: s for s in paper if s.router == router})
        if noise is not None:
            panel.axvspan(1e4 * noise.low, 1e4 * noise.high, color="#eeeeee", zorder=0)
            panel.axvline(1e4 * noise.sd, color=style.GREY, linewidth=0.9, linestyle=":", zorder=1)
        panel.set_xscale("log")
        panel.set_xlabel("RMSE of log10 L on a size left out (10⁻⁴)")
        panel.set_title(style.router_label(router))
    axes[0].plot([], [], "o", color=style.GREY, label="our runs, 90 %")
    axes[0].plot([], [], "x", color=style.GREY, label="the paper's runs")
    if noise is not None:
        axes[0].plot([], [], ":", color=style.GREY, label="noise of seeds (band: 90 %)")
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3)
    return picture


def _ranked(axes: Axes, own: Sequence[Standing], paper: Mapping[str, Standing]) -> None:
    rows = np.arange(len(own))
    colour = style.router_colour(own[0].router)
    for row, s in zip(rows, own, strict=True):
        if s.low and s.high:
            axes.hlines(row, 1e4 * s.low, 1e4 * s.high, color=colour, linewidth=1.0, alpha=0.6)
        axes.plot(1e4 * (s.leave_size_out or np.nan), row, "o", color=colour, fillstyle="none" if s.behind else "full")
        if s.law in paper and paper[s.law].leave_size_out:
            axes.plot(1e4 * (paper[s.law].leave_size_out or np.nan), row, "x", color=style.GREY)
    axes.yaxis.set_major_locator(FixedLocator(list(rows)))
    axes.yaxis.set_major_formatter(FixedFormatter([f"{s.law} ({s.parameters})" for s in own]))
    axes.set_ylim(len(own) - 0.5, -0.5)


def draw_blind(scored: Mapping[str, Any]) -> Picture:
    """Predicted less measured loss of the largest size, with intervals, by law; one panel a router."""
    runs = pd.DataFrame(scored["runs"])
    laws = [row["law"] for row in scored["by_law"]]
    routers = list(dict.fromkeys(runs["router"]))
    picture, axes = style.panels(len(routers), width=3.5, height=3.3, sharey=True)
    for panel, router in zip(axes, routers, strict=True):
        panel.axhline(0, color="black", linewidth=0.8)
        for place, law in enumerate(laws):
            own = runs[(runs["router"] == router) & (runs["law"] == law)].sort_values("experts")
            if own.empty:
                continue
            x = own["experts"] * 2 ** (0.07 * (place - len(laws) / 2))
            low, middle, high = (100 * (own[c] / own["measured"] - 1) for c in ("low", "loss", "high"))
            colour = LAW_COLOURS[place % len(LAW_COLOURS)]
            panel.vlines(x, low, high, color=colour, linewidth=0.9, alpha=0.5)
            panel.plot(x, middle, "o", markersize=3, color=colour, label=law)
        style.experts_axis(panel, tuple(int(e) for e in sorted(runs["experts"].unique())))
        panel.tick_params(axis="x", labelsize=7.5)
        panel.set_title(f"{style.router_label(router)}, {scored['size']}")
    axes[0].set_ylabel("predicted over measured loss (%)")
    widest = 100 * float(np.abs(runs["loss"] / runs["measured"] - 1).quantile(0.98))
    axes[0].set_ylim(-2 * widest, 2 * widest)
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=5)
    return picture
