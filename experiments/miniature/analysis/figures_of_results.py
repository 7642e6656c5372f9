"""Figures of the main sweep: the law, its ranking among others beside the noise floor, and the blind test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from experiments.miniature.analysis.laws import HOPELESS, LawResult, routers_of
from experiments.miniature.analysis.study import Study
from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.loss_curves import metric_formatter
from routelaw.figures.main_results import draw_effective, draw_levels, draw_sizes
from routelaw.figures.matched import LINES
from routelaw.figures.routing_frequency import frequency_axis, frequency_points, plot_over_frequency
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.matched_runs import PERCENT, VALIDATION
from routelaw.fitting.noise import NoiseFloor
from routelaw.fitting.points import select_points
from routelaw.studies.claims_on_architecture import ROUTER, k_excess
from routelaw.studies.claims_on_training import own_slope, zero_shot_losses
from routelaw.studies.study_runs import PAPER_LAW, PAPER_ROUTERS

LAW_LOOKS = (("black", "o"), ("#7a5195", "D"), ("#8c8c8c", "s"))
"""Colours that no router has, for routers stand in the same legend."""
COMPARED = (PAPER_LAW, "irreducible")
"""The paper's law and the one that does best on the paper's runs, shown beside the best of the blind test."""
LEAST, SHOWN = 3.0, 1e4 * HOPELESS
"""In 1e-4 of log10 L: errors beyond are drawn at this edge, intervals end there."""
NOTHING = "no such runs in the table"


def main_fit(study: Study) -> Fit:
    """What two panels of the main figure show: S-BASE's, or that of the first router that has one."""
    return next(iter(_fits(study).values()))


def draw_main(study: Study) -> Picture:
    fits, first = _fits(study), main_fit(study)
    picture, axes = style.panels(3, width=3.6, height=3.5)
    picture.set_layout_engine("constrained", w_pad=0.1)
    draw_sizes(axes[0], first)
    draw_levels(axes[1], first)
    draw_effective(axes[2], fits)
    style.letter_panels(axes)
    return picture


def _fits(study: Study) -> dict[str, Fit]:
    fits = {}
    for router in routers_of(study):
        try:
            fits[router] = fit_law(PAPER_LAW, select_points(study.swept, router))
        except InputError:
            continue
    if not fits:
        raise InputError("no router has enough sizes and expert counts for a law.")
    return fits


def draw_ranking(made: Sequence[LawResult], paper: Sequence[LawResult], noise: NoiseFloor | None) -> Picture:
    """Leave-size-out error by law, ours with its interval and the paper's runs beside, over the noise of the seeds."""
    routers = list(dict.fromkeys(s.router for s in made if s.leave_size_out is not None))
    if not routers:
        raise InputError("no law could be judged on a size left out.")
    picture, axes = _grid(len(routers))
    for panel, router in zip(axes, routers, strict=True):
        own = [s for s in made if s.router == router and s.leave_size_out is not None]
        _ranked(panel, own, {s.law: s for s in paper if s.router == router})
        if noise is not None:
            panel.axvspan(1e4 * noise.low, 1e4 * noise.high, color="#eeeeee", zorder=0)
            panel.axvline(1e4 * noise.sd, color=style.GREY, linewidth=0.9, linestyle=":", zorder=1)
        _decades(panel)
        panel.set_xlabel("RMSE of log10 L (10⁻⁴)")
        panel.set_title(style.router_label(router))
    axes[0].plot([], [], "o", color=style.GREY, label="our runs, 90 %")
    axes[0].plot([], [], "x", color=style.GREY, label="the paper's runs")
    if noise is not None:
        axes[0].plot([], [], ":", color=style.GREY, label="noise of seeds (band: 90 %)")
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3)
    return picture


def _ranked(axes: Axes, own: Sequence[LawResult], paper: Mapping[str, LawResult]) -> None:
    rows = np.arange(len(own))
    colour = style.router_colour(own[0].router)
    for row, s in zip(rows, own, strict=True):
        error, look = 1e4 * (s.leave_size_out or np.nan), {"color": colour, "fillstyle": "none" if s.behind else "full"}
        if s.low is not None and s.high is not None:
            ends = np.clip([1e4 * s.low, 1e4 * s.high], LEAST, SHOWN)
            axes.hlines(row, *ends, color=colour, linewidth=1.0, alpha=0.6)
        if error > SHOWN:
            axes.plot(SHOWN, row, ">", **look)
        else:
            axes.plot(error, row, "o", **look)
        if s.law in paper and paper[s.law].leave_size_out:
            axes.plot(1e4 * (paper[s.law].leave_size_out or np.nan), row, "x", color=style.GREY)
    axes.yaxis.set_major_locator(FixedLocator(list(rows)))
    axes.yaxis.set_major_formatter(FixedFormatter([f"{s.law} ({s.parameters})" for s in own]))
    axes.set_ylim(len(own) - 0.5, -0.5)


def _grid(count: int) -> tuple[Picture, list[Axes]]:
    """So many panels, three to a row."""
    columns = min(count, 3)
    picture, axes = style.panels(columns, -(-count // columns), width=3.7, height=3.2)
    for spare in axes[count:]:
        spare.set_visible(False)
    return picture, list(axes[:count])


def _decades(axes: Axes) -> None:
    """Logarithmic errors, with 1, 3, 10, 30 … named."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def draw_blind(scored: Mapping[str, Any]) -> Picture:
    """Error of every law on the largest size; then, by router, the runs under the best law and two to compare it to."""
    runs = pd.DataFrame(scored["runs"])
    routers = list(dict.fromkeys(runs["router"]))
    picture, axes = _grid(1 + len(routers))
    _blind_errors(axes[0], scored)
    shown = list(dict.fromkeys([scored["by_law"][0]["law"], *COMPARED]))
    widest = 0.0
    for panel, router in zip(axes[1:], routers, strict=True):
        panel.axhline(0, color="black", linewidth=0.8)
        for place, (law, (colour, mark)) in enumerate(zip(shown, LAW_LOOKS, strict=False)):
            own = runs[(runs["router"] == router) & (runs["law"] == law)].sort_values("experts")
            low, middle, high = (100 * (own[c] / own["measured"] - 1) for c in ("low", "loss", "high"))
            x = own["experts"] * 2 ** (0.16 * (place - (len(shown) - 1) / 2))
            panel.vlines(x, low, high, color=colour, linewidth=1.2, alpha=0.5)
            panel.plot(x, middle, mark, markersize=3.5, color=colour, label=law)
            widest = max(widest, float(middle.abs().max()))
        style.experts_axis(panel, tuple(int(e) for e in sorted(runs["experts"].unique())))
        panel.tick_params(axis="x", labelsize=7.5)
        panel.set_title(f"{style.router_label(router)}, {scored['size']}")
        panel.set_ylabel("predicted over measured (%)")
    for panel in axes[1:]:
        panel.set_ylim(-2.5 * widest, 2.5 * widest)
    routers_named, laws_named = (axes[i].get_legend_handles_labels()[0] for i in (0, 1))
    handles = [*routers_named, *laws_named]
    picture.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return picture


def _blind_errors(axes: Axes, scored: Mapping[str, Any]) -> None:
    laws = [row["law"] for row in scored["by_law"]]
    for row in scored["by_law_and_router"]:
        axes.plot(1e4 * row["rmse"], laws.index(row["law"]), linestyle="", **style.router_look(row["router"]))
    for router in dict.fromkeys(row["router"] for row in scored["by_law_and_router"]):
        axes.plot([], [], linestyle="", **style.router_look(router, label=style.router_label(router)))
    if scored["noise"]:
        axes.axvline(
            1e4 * scored["noise"], color=style.GREY, linestyle=":", label=f"noise of seeds of {scored['seeds_of']}"
        )
    _decades(axes)
    axes.yaxis.set_major_locator(FixedLocator(list(range(len(laws)))))
    axes.yaxis.set_major_formatter(FixedFormatter(laws))
    axes.set_ylim(len(laws) - 0.5, -0.5)
    axes.set_xlabel(f"RMSE of log10 L at {scored['size']} (10⁻⁴)")


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
            look = style.router_look(router, linestyle=line, label=f"{style.router_label(router)} {size}")
            plot_over_frequency(axes, points, **look)
            seen |= set(points.x["routing_frequency"])
    frequency_axis(axes, tuple(Fraction(r).limit_denominator(32) for r in sorted(seen)))
    axes.set_title(f"E = {experts}")
    axes.set_ylabel("validation loss (nats per token)")


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
            axes[0].plot(10**x, 10**y, style.router_mark(router), markersize=3, color=colours[target], alpha=0.6)
        axes[0].plot([], [], "o", color=colours[target], label=target.removeprefix("loss_"))
    for axis in (axes[0].xaxis, axes[0].yaxis):
        axis.set_major_locator(MaxNLocator(6))
    axes[0].set_xlabel("validation loss (nats per token)")
    axes[0].set_ylabel("zero-shot loss (nats per token)")
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=len(targets))
    _draw_own_slopes(axes[1], study, targets, routers)
    style.letter_panels(axes)
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
            x, half = place + place // len(routers), slope.half(DEFAULT_LEVEL)
            axes.errorbar(x, slope.gap, half, capsize=2, **style.router_look(router))
    middles = [i * (len(routers) + 1) + (len(routers) - 1) / 2 for i in range(len(targets))]
    axes.set_xticks(middles, [t.removeprefix("loss_") for t in targets], rotation=20)
    axes.set_ylabel("slope in log N beyond validation's (90 %)")
    for router in routers:
        axes.plot([], [], linestyle="", **style.router_look(router, label=style.router_label(router)))
    axes.legend(loc="best")
