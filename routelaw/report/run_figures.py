"""Pictures of runs rather than of laws: training curves, and the load of experts over training."""

from __future__ import annotations

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, NullFormatter

from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.loss_curves import metric_formatter
from routelaw.report.sections import Source
from routelaw.report.techniques import PlotStyle

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
