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
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import (
    draw_points,
    legend_below,
    loss_axes,
    metric_formatter,
    size_colours,
    sizes_axis,
)
from routelaw.laws.law import Array
from routelaw.report.runs.analysis import Analysis, PlotStyle
from routelaw.report.runs.chart_data import effective_series, loss_series, ranked_laws, slope_series
from routelaw.report.runs.sections import Source
from routelaw.runs.table import RunTable

COLUMNS, FEW_TICKS = 3, 10
REACH = 3
"""Octaves of load drawn either side of an even share."""


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
        style.named_ticks(panel.xaxis, {0: str(run["steps"][0]), len(run["steps"]) - 1: str(run["steps"][-1])})
        panel.set_xlabel("step")
        panel.set_ylabel("expert")
    for panel in axes[len(runs) :]:
        panel.remove()
    image = ScalarMappable(scale, "RdBu_r")
    bar = picture.colorbar(image, ax=list(axes[: len(runs)]), ticks=[-3, -2, -1, 0, 1, 2, 3], shrink=0.9)
    bar.ax.set_yticklabels(["⅛", "¼", "½", "even", "2×", "4×", "8×"])
    return picture


def draw_losses(analysis: Analysis) -> Picture:
    """A panel for each technique, a colour for each size, the selected law where it was fitted."""
    if not analysis.points:
        raise InputError("no routed technique has a finished run.")
    shown = {key: points for key, points in analysis.points.items() if key in analysis.most_trained}
    colours, selected = size_colours(*shown.values()), analysis.selected
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    picture, axes = style.panels(columns, rows, width=3.3, height=3.1, sharey=True)
    used = axes[: len(shown)]
    for panel, (key, points) in zip(used, shown.items(), strict=True):
        for series in loss_series(analysis):
            if series.technique == key and not series.measured and series.law == selected:
                panel.plot(series.x, series.y, color=colours[series.size], linewidth=1.0)
        draw_points(panel, points, colours, joined=key not in analysis.judged)
        panel.set_title(safe(analysis.looks[key].label))
        _experts_axis(panel, points.x["experts"])
    if len({float(loss) for points in shown.values() for loss in points.loss}) > 1:
        loss_axes(*used)
    for panel in used:
        panel.set_ylabel("loss (nats per token)")
        panel.label_outer()
    for panel in axes[len(shown) :]:
        panel.remove()
    named = {safe(size): colour for size, colour in colours.items()}
    law = {f"law {safe(selected)}": {"color": "black", "linewidth": 1.0}} if analysis.judged else {}
    legend_below(picture, named, law)
    return picture


def draw_ranking(analysis: Analysis) -> Picture:
    ranked = ranked_laws(analysis)
    rows = {key: own for key, own in ranked.rows.items() if own}
    if not rows:
        raise InputError("no law could be judged on a size left out.")
    names = [f"{safe(name)} ({parameters})" for name, parameters in ranked.parameters.items()]
    picture, (axes,) = style.panels(1, width=6.0, height=1.2 + 0.32 * len(names))
    least = min(error for own in rows.values() for _, _, error, *_ in own) / 10
    for key, own in rows.items():
        look = analysis.looks[key]
        places, errors, lows, highs = np.array([row[1:] for row in own]).T
        axes.hlines(places, np.maximum(lows, least), np.maximum(highs, least), color=look.colour, linewidth=0.8)
        axes.plot(errors, places, linestyle="none", color=look.colour, marker=look.mark, label=safe(look.label))
    axes.set_xscale("log")
    style.named_ticks(axes.yaxis, dict(enumerate(names)))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("leave-size-out error of log10 L (10⁻⁴)")
    picture.legend(loc="outside lower center", ncols=4)
    return picture


def draw_effective(analysis: Analysis) -> Picture:
    """N̄/N over E under the selected law: a line for each size, the largest the heaviest."""
    if not analysis.judged:
        raise InputError("no law could be fitted.")
    picture, (axes,) = style.panels(1, width=5.2, height=3.6)
    lines = [series for series in effective_series(analysis) if series.law == analysis.selected and not series.measured]
    for key, judged in analysis.judged.items():
        own = [series for series in lines if series.technique == key]
        for width, series in zip(np.linspace(0.7, 2.2, len(judged.fit.points.sizes)), own, strict=True):
            axes.plot(series.x, series.y / series.active_params, color=analysis.looks[key].colour, linewidth=width)
    drawn = np.concatenate([series.y / series.active_params for series in lines])
    ticks = MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]).tick_values(np.nanmin(drawn), np.nanmax(drawn))
    style.log_loss_axis(axes, tuple(t for t in ticks if t > 0), "effective over active parameters, N̄/N")
    axes.yaxis.set_minor_locator(NullLocator())
    _experts_axis(axes, np.concatenate([j.fit.points.x["experts"] for j in analysis.judged.values()]))
    technique_legend(picture, {key: analysis.looks[key] for key in analysis.judged})
    return picture


def draw_slopes(analysis: Analysis) -> Picture:
    shown = [series for series in slope_series(analysis) if series.measured or series.law == analysis.selected]
    measured = [series.technique for series in shown if series.measured]
    if not measured:
        raise InputError("no size has three expert counts.")
    picture, (axes,) = style.panels(1, width=5.0, height=3.4)
    for series in shown:
        look = analysis.looks[series.technique]
        how = {"linestyle": "none", "marker": look.mark} if series.measured else {"linewidth": 1.0}
        axes.plot(series.x, series.y, color=look.colour, **how)
    sizes_axis(axes, *analysis.points.values())
    axes.set_ylabel("slope b(N) of log L in log E")
    technique_legend(picture, {key: analysis.looks[key] for key in measured})
    return picture


def _experts_axis(axes: Axes, experts: Array) -> None:
    values = sorted({int(e) for e in experts})
    style.experts_axis(axes, tuple(v for v in values if len(values) <= FEW_TICKS or v & (v - 1) == 0))
    axes.xaxis.set_minor_locator(NullLocator())


def technique_legend(picture: Picture, looks: dict[str, PlotStyle]) -> None:
    handles = [Line2D([], [], color=k.colour, marker=k.mark, label=safe(k.label)) for k in looks.values()]
    if handles:
        picture.legend(handles=handles, loc="outside lower center", ncols=4)


def safe(text: str) -> str:
    """Names as they stand: Matplotlib would read mathematics between dollar signs."""
    return text.replace("$", r"\$")
