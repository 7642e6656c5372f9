"""b(N): how the slope in log E flattens as models grow."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D

from routelaw.figures import selection, style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import sizes_axis
from routelaw.fitting import Fit
from routelaw.fitting.slopes import slopes_by_size
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable


def draw(table: RunTable) -> Picture:
    found, why_not = selection.for_each_routed(table, lambda router: slopes_of(table, router))
    looks = style.router_looks(found)
    picture, (axes,) = style.panels(1, width=4.6, height=3.4)
    handles = []
    for router, (bilinear, active, slopes) in found.items():
        axes.plot(active, slopes, linestyle="none", markersize=5, **looks[router])
        joint = bilinear.params
        line = np.geomspace(active.min(), active.max(), 20)
        axes.plot(line, joint["b"] + joint["c"] * np.log10(line), linestyle=":", color=looks[router]["color"])
        handles.append(Line2D([], [], linestyle=":", label=style.router_label(router), **looks[router]))
    sizes_axis(axes, *(bilinear.points for bilinear, *_ in found.values()))
    axes.set_ylabel("slope b(N) of log L in log E")
    axes.legend(handles=handles, loc="best")
    style.say_above(picture, selection.left_out(why_not))
    return picture


def slopes_of(table: RunTable, router: str) -> tuple[Fit, Array, Array]:
    """The bilinear fit to a router, and the sizes with expert counts enough for a slope of their own, with that."""
    bilinear = selection.fit_of("bilinear", selection.points_of(table, router))
    slopes = slopes_by_size(bilinear.points)
    if not slopes:
        raise CannotDraw(f"no size of {router} has three expert counts, dense runs included.")
    active, slope = np.array([row[1:] for row in slopes]).T
    return bilinear, active, slope


FIGURES = (
    Figure(
        name="expert_slope",
        title="The gain from experts shrinks with size",
        caption=(
            "Marks: the slope b of a power law in E fitted to each size alone. Dotted: b + c·log N of the bilinear law "
            "fitted to all sizes of the router at once. Closer to zero means that more experts help less. The usual K "
            "and R, every E trained with the dense run as E = 1, seeds averaged."
        ),
        draw=draw,
        paper="Figure 3 (alpha_es)",
        on_release=(
            "The slopes rise almost linearly in log N for all routers, S-BASE being the steepest at every size but the "
            "smallest. The marks lie above their line at both ends and below it between, so the gain fades slowly at "
            "first and faster later. K = 1, R = 0.5, every E from 1 to 512. Departs from print: all six sizes are "
            "shown (the printed table has five columns, of which the one headed 25M holds the 55M model), and b is the "
            "derivative itself, without the minus sign of the printed definition."
        ),
    ),
)
