"""The page's charts as files that do not move: SVG and PNG, for papers and slides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import (
    draw_law,
    draw_points,
    legend_below,
    loss_axes,
    size_colours,
    sizes_axis,
)
from routelaw.fitting.selection import mean_error
from routelaw.fitting.slopes import law_slopes, slopes_by_size
from routelaw.laws import equivalence
from routelaw.laws.law import Array
from routelaw.report.analysis import Analysis
from routelaw.report.charts import CURVE_POINTS
from routelaw.report.run_figures import COLUMNS, draw_curves, draw_load, safe, technique_legend
from routelaw.report.sections import Source
from routelaw.runs.table import RunTable

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
