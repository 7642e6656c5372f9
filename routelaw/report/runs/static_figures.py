"""The page's charts, training curves and expert load as files that do not move: SVG and PNG, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import (
    draw_law,
    draw_points,
    legend_below,
    loss_axes,
    metric_formatter,
    size_colours,
    sizes_axis,
)
from routelaw.fitting.selection import mean_error
from routelaw.fitting.slopes import law_slopes, slopes_by_size
from routelaw.laws import equivalence
from routelaw.laws.law import Array
from routelaw.report.runs.analysis import Analysis, PlotStyle
from routelaw.report.runs.charts import CURVE_POINTS
from routelaw.report.runs.sections import Source
from routelaw.runs.table import RunTable

COLUMNS = 3
REACH = 3
"""Octaves of load drawn either side of an even share."""


def safe(text: str) -> str:
    """Names as they stand: Matplotlib would read mathematics between dollar signs."""
    return text.replace("$", r"\$")


def draw_curves(source: Source) -> Picture:
    looks = source.analysis.looks if source.analysis else {}
    data = source.curves
    if data is None:
        raise InputError("no run has more than one evaluation.")
    picture, (axes,) = style.panels(1, width=6.0, height=3.8)
    kind = "validation" if any(len(c["validation"][0]) > 1 for c in data["curves"]) else "training"
    for curve in data["curves"]:
        colour = looks[curve["router"]].colour if curve["router"] in looks else style.GREY
        axes.plot(*curve[kind], color=colour, linewidth=0.8, alpha=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(metric_formatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.set_xlabel("tokens seen" if data["abscissa"] == "tokens" else "step")
    axes.set_ylabel("loss (nats per token)")
    shown = {curve["router"] for curve in data["curves"]}
    technique_legend(picture, {key: look for key, look in looks.items() if key in shown})
    return picture


def draw_load(source: Source) -> Picture:
    """The run of each technique with most experts, in its last routed block."""
    data = source.maps.data
    if data is None:
        raise InputError("no run has logged a routed layer.")
    by_run = {row.run_id: row for row in source.rows}
    chosen: dict[tuple[str, str], dict] = {}
    for run in sorted(data["runs"], key=lambda r: (by_run[r["run"]].experts or 0, by_run[r["run"]].active_params or 0)):
        chosen[by_run[run["run"]].router, by_run[run["run"]].variant] = run
    runs = list(chosen.values())[: 3 * COLUMNS]
    columns = min(COLUMNS, len(runs))
    picture, axes = style.panels(columns, -(-len(runs) // columns), width=3.2, height=2.4)
    scale = Normalize(-REACH, REACH)
    for panel, run in zip(axes, runs, strict=False):
        layer = run["layers"][-1]
        share = np.maximum(np.array(layer["load"], float), 1) / 100
        panel.imshow(np.log2(share), aspect="auto", cmap="RdBu_r", norm=scale, interpolation="nearest")
        panel.set_title(safe(f"{run['label']}, block {layer['block']}"), fontsize=8)
        panel.grid(False)
        panel.xaxis.set_major_locator(FixedLocator([0, len(run["steps"]) - 1]))
        panel.xaxis.set_major_formatter(FixedFormatter([str(run["steps"][0]), str(run["steps"][-1])]))
        panel.set_xlabel("step")
        panel.set_ylabel("expert")
    for panel in axes[len(runs) :]:
        panel.remove()
    image = ScalarMappable(scale, "RdBu_r")
    bar = picture.colorbar(image, ax=list(axes[: len(runs)]), ticks=[-3, -2, -1, 0, 1, 2, 3], shrink=0.9)
    bar.ax.set_yticklabels(["⅛", "¼", "½", "even", "2×", "4×", "8×"])
    return picture


def technique_legend(picture: Picture, looks: dict[str, PlotStyle]) -> None:
    handles = [Line2D([], [], color=k.colour, marker=k.mark, label=safe(k.label)) for k in looks.values()]
    if handles:
        picture.legend(handles=handles, loc="outside lower center", ncols=4)


FEW_TICKS = 10


def draw_static_figures(source: Source, folder: Path) -> list[str]:
    """Draw what this source allows; returns the names of the files written."""
    analysis = source.analysis
    drawings: dict[str, Callable[[], Picture]] = {"curves": lambda: draw_curves(source)}
    drawings["expert_load"] = lambda: draw_load(source)
    if analysis is not None:
        drawings["losses"] = lambda: draw_losses(analysis)
        drawings["laws"] = lambda: draw_ranking(analysis)
        drawings["effective"] = lambda: draw_effective(analysis)
        drawings["slopes"] = lambda: draw_slopes(analysis)
    fitted_already = RunTable(pd.DataFrame(), source.report_data.source)
    written = []
    for name, draw in drawings.items():
        figure = Figure(name, name, "", lambda _, draw=draw: draw())
        with suppress(InputError):  # the page says what is missing, and why
            written += [path.name for path in figure.save(fitted_already, folder)]
    return written


def draw_losses(analysis: Analysis) -> Picture:
    """A panel for each technique, a colour for each size, the selected law where it was fitted."""
    if not analysis.points:
        raise InputError("no routed technique has a finished run.")
    colours = size_colours(*analysis.points.values())
    columns = min(COLUMNS, len(analysis.points))
    rows = -(-len(analysis.points) // columns)
    picture, axes = style.panels(columns, rows, width=3.3, height=3.1, sharey=True)
    used = axes[: len(analysis.points)]
    for panel, (key, points) in zip(used, analysis.points.items(), strict=True):
        if judged := analysis.judged.get(key):
            draw_law(panel, judged.fit, colours, linestyle="-", linewidth=1.0)
        draw_points(panel, points, colours, joined=key not in analysis.judged)
        panel.set_title(safe(analysis.looks[key].label))
        _experts_axis(panel, points.x["experts"])
    if len({float(loss) for points in analysis.points.values() for loss in points.loss}) > 1:
        loss_axes(*used)
    for panel in used:
        panel.set_ylabel("loss (nats per token)")
        panel.label_outer()
    for panel in axes[len(analysis.points) :]:
        panel.remove()
    named = {safe(size): colour for size, colour in colours.items()}
    law = (
        {f"law {safe(analysis.law.name)}": {"color": "black", "linewidth": 1.0}}
        if analysis.judged and analysis.law
        else {}
    )
    legend_below(picture, named, law)
    return picture


def draw_ranking(analysis: Analysis) -> Picture:
    rows = {key: [r for r in own if r.validation.leave_size_out is not None] for key, own in analysis.ranked.items()}
    names = {r.fit.law.name: len(r.fit.law.parameters) for own in rows.values() for r in own}
    if not names:
        raise InputError("no law could be judged on a size left out.")
    order = sorted(names, key=lambda name: (mean_error(analysis.ranked, name), names[name]))
    picture, (axes,) = style.panels(1, width=6.0, height=1.2 + 0.32 * len(order))
    fitted = [key for key, own in rows.items() if own]
    least = min(r.validation.leave_size_out or 1.0 for own in rows.values() for r in own) / 10
    for nth, key in enumerate(fitted):
        offset = 0.5 * (nth / max(len(fitted) - 1, 1) - 0.5)
        look = analysis.looks[key]
        errors = [1e4 * (r.validation.leave_size_out or 0.0) for r in rows[key]]
        places = [order.index(r.fit.law.name) + offset for r in rows[key]]
        for r, place in zip(rows[key], places, strict=True):
            if r.interval:
                axes.plot([1e4 * max(e, least) for e in r.interval], [place, place], color=look.colour, linewidth=0.8)
        axes.plot(errors, places, linestyle="none", color=look.colour, marker=look.mark, label=safe(look.label))
    axes.set_xscale("log")
    axes.yaxis.set_major_locator(FixedLocator(list(range(len(order)))))
    axes.yaxis.set_major_formatter(FixedFormatter([f"{safe(name)} ({names[name]})" for name in order]))
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.set_xlabel("leave-size-out error of log10 L (10⁻⁴)")
    picture.legend(loc="outside lower center", ncols=4)
    return picture


def draw_effective(analysis: Analysis) -> Picture:
    """N̄/N over E under the selected law: a line for each size, the largest the heaviest."""
    if not analysis.judged:
        raise InputError("no law could be fitted.")
    picture, (axes,) = style.panels(1, width=5.2, height=3.6)
    for key, judged in analysis.judged.items():
        fit, look = judged.fit, analysis.looks[key]
        experts = np.geomspace(1, fit.points.x["experts"].max(), CURVE_POINTS)
        widths = np.linspace(0.7, 2.2, len(fit.points.sizes))
        for width, (_, active, _) in zip(widths, fit.points.by_size(), strict=True):
            params = np.broadcast_to(fit.params_BP, (CURVE_POINTS, fit.params_BP.shape[1]))
            log_loss = np.log10(fit.predict(active_params=active, experts=experts))
            ratio = equivalence.size_for_loss(fit.law, params, log_loss, 1.0) / active
            axes.plot(
                experts, np.where((ratio > 0) & (ratio < 1e12), ratio, np.nan), color=look.colour, linewidth=width
            )
    drawn = np.concatenate([np.asarray(drawn.get_ydata(), float) for drawn in axes.lines])
    ticks = MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]).tick_values(np.nanmin(drawn), np.nanmax(drawn))
    style.log_loss_axis(axes, tuple(t for t in ticks if t > 0), "effective over active parameters, N̄/N")
    axes.yaxis.set_minor_locator(NullLocator())
    _experts_axis(axes, np.concatenate([j.fit.points.x["experts"] for j in analysis.judged.values()]))
    technique_legend(picture, {key: analysis.looks[key] for key in analysis.judged})
    return picture


def draw_slopes(analysis: Analysis) -> Picture:
    slopes = {key: slopes_by_size(points) for key, points in analysis.points.items()}
    if not any(slopes.values()):
        raise InputError("no size has three expert counts.")
    picture, (axes,) = style.panels(1, width=5.0, height=3.4)
    for key, measured in slopes.items():
        look = analysis.looks[key]
        axes.plot(
            [n for _, n, _ in measured],
            [b for *_, b in measured],
            linestyle="none",
            color=look.colour,
            marker=look.mark,
        )
        if judged := analysis.judged.get(key):
            sizes = judged.fit.points.x["active_params"]
            grid = np.geomspace(sizes.min(), sizes.max(), CURVE_POINTS)
            axes.plot(grid, law_slopes(judged.fit, grid), color=look.colour, linewidth=1.0)
    sizes_axis(axes, *analysis.points.values())
    axes.set_ylabel("slope b(N) of log L in log E")
    technique_legend(picture, {key: analysis.looks[key] for key, measured in slopes.items() if measured})
    return picture


def _experts_axis(axes: Axes, experts: Array) -> None:
    values = sorted({int(e) for e in experts})
    style.experts_axis(axes, tuple(v for v in values if len(values) <= FEW_TICKS or v & (v - 1) == 0))
    axes.xaxis.set_minor_locator(NullLocator())
