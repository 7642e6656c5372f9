"""b(N): how the slope in log E flattens as models grow."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import routed_techniques, sizes_axis
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.slopes import slopes_by_size
from routelaw.runs.table import RunTable


def draw(table: RunTable) -> Picture:
    picture, (axes,) = style.panels(1, width=4.6, height=3.4)
    handles, selections = [], []
    for router in routed_techniques(table):
        points = select_points(table, router)
        selections.append(points)
        active, slopes = np.array([row[1:] for row in slopes_by_size(points)]).T
        look = style.router_look(router)
        axes.plot(active, slopes, linestyle="none", markersize=5, **look)
        joint = fit_law("bilinear", points).params
        line = np.geomspace(active.min(), active.max(), 20)
        axes.plot(line, joint["b"] + joint["c"] * np.log10(line), linestyle=":", color=look["color"])
        handles.append(Line2D([], [], linestyle=":", label=style.router_label(router), **look))
    sizes_axis(axes, *selections)
    axes.set_ylabel("slope b(N) of log L in log E")
    axes.legend(handles=handles, loc="upper left")
    return picture


FIGURES = (
    Figure(
        name="expert_slope",
        title="The gain from experts shrinks with size",
        caption=(
            "Marks: the slope b of a power law in E fitted to each size alone. Dotted: b + c·log N of the bilinear law "
            "fitted to all sizes of the router at once. Closer to zero means that more experts help less. The slopes "
            "rise almost linearly in log N for all routers, S-BASE being the steepest at every size but the smallest. "
            "The marks lie above their line at both ends and below it between, so the gain fades slowly at first and "
            "faster later. K = 1, R = 0.5, every E from 1 to 512 with the dense run as E = 1, 130M seeds averaged. "
            "Departs from print: all six sizes are shown (the printed table has five columns, of which the one headed "
            "25M holds the 55M model), and b is the derivative itself, without the minus sign of the printed "
            "definition."
        ),
        draw=draw,
        paper="Figure 3 (alpha_es)",
    ),
)
