"""Saturated and bilinear fits to every router, and all routers' predictions overlaid."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D

from routelaw.figures import loss_curves, style
from routelaw.figures.figure import Figure
from routelaw.fitting import Fit, fit_law, select_points
from routelaw.runs.table import RunTable

SATURATED: loss_curves.LineStyle = {"linestyle": ":", "linewidth": 1.6}
BILINEAR: loss_curves.LineStyle = {"linestyle": "-", "linewidth": 0.9, "color": style.GREY}


def draw(table: RunTable) -> Picture:
    selections = {router: select_points(table, router) for router in loss_curves.routed_techniques(table)}
    colours = loss_curves.size_colours(*selections.values())
    picture, axes = style.panels(len(selections) + 1, width=3.0, height=3.5, sharey=True)
    saturated = {router: fit_law("saturated", points) for router, points in selections.items()}
    for panel, (router, points) in zip(axes, selections.items(), strict=False):
        loss_curves.draw_law(panel, fit_law("bilinear", points), **BILINEAR)
        loss_curves.draw_law(panel, saturated[router], colours, **SATURATED)
        loss_curves.draw_points(panel, points, colours)
        panel.set_title(style.router_label(router))
    draw_overlay(axes[-1], saturated)
    loss_curves.loss_axes(*axes)
    for panel in axes:
        loss_curves.experts_axis(panel)
        panel.label_outer()
    axes[-1].set_xlim(left=0.3)
    loss_curves.legend_below(
        picture, colours, {"saturated law": {"color": "black", **SATURATED}, "bilinear law": BILINEAR}
    )
    return picture


def draw_overlay(axes: Axes, fits: dict[str, Fit]) -> None:
    """Predictions only, a colour per router: which one is lowest at each size and E."""
    for router, fit in fits.items():
        loss_curves.draw_law(axes, fit, linestyle=":", linewidth=1.6, color=style.router_colour(router))
    any_fit = next(iter(fits.values()))
    for size, active, _ in any_fit.points.by_size():
        first = float(any_fit.predict(active_params=active, experts=1.0)[0])
        axes.annotate(size, (1, first), xytext=(-3, 0), textcoords="offset points", ha="right", va="center",
                      fontsize=7.5, color="#444444")  # fmt: skip
    handles = [
        Line2D([], [], linestyle=":", linewidth=2, color=style.router_colour(r), label=style.router_label(r))
        for r in fits
    ]
    axes.legend(handles=handles, loc="upper right")
    axes.set_title("all techniques, saturated law")


FIGURES = (
    Figure(
        name="joint_curves",
        title="Joint fits in size and experts",
        caption=(
            "Validation loss against the number of experts for every router and size, with the saturated law (dotted, "
            "six parameters per router) and the bilinear law (grey, four). In the last panel the saturated laws of all "
            "routers without the points. The saturated law leaves the straight grey lines at both ends: at few experts "
            "most for HASH, at many experts most for S-BASE. From 130M on S-BASE is predicted lowest at every E that "
            "routes; at the smaller sizes RL-R overtakes it at the largest E. HASH is last wherever there is routing. "
            "Last evaluation of each run, K = 1, R = 0.5, dense runs as E = 1 with the 130M seeds averaged. Departs "
            "from print in the order of the panels, in the models that were not released (S-BASE 130M/E256; HASH "
            "130M/E8, 130M/E256, 25M/E32), and in using the optimum of the fit."
        ),
        draw=draw,
        paper="Figure 2 (joint_curves)",
    ),
)
