"""Saturated and bilinear fits to every router, and all routers' predictions overlaid."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D

from routelaw.figures import loss_curves, selection, style
from routelaw.figures.figure import Figure
from routelaw.fitting import Fit, Points
from routelaw.runs.table import RunTable

SATURATED: loss_curves.LineStyle = {"linestyle": ":", "linewidth": 1.6}
BILINEAR: loss_curves.LineStyle = {"linestyle": "-", "linewidth": 0.9, "color": style.GREY}


def draw(table: RunTable) -> Picture:
    saturated, why_not = selection.for_each_routed(table, lambda r: selection.fit_of("saturated", selected(table, r)))
    colours = loss_curves.size_colours(*(fit.points for fit in saturated.values()))
    picture, axes = style.grid_of_panels(len(saturated) + 1, width=3.0, height=3.5, sharey=True)
    for panel, (router, fit) in zip(axes, saturated.items(), strict=False):
        loss_curves.draw_law(panel, selection.fit_of("bilinear", fit.points), **BILINEAR)
        loss_curves.draw_law(panel, fit, colours, **SATURATED)
        loss_curves.draw_points(panel, fit.points, colours)
        panel.set_title(style.router_label(router))
    draw_overlay(axes[-1], saturated)
    loss_curves.loss_axes(*axes, target=selection.target_of(table))
    for panel in axes:
        loss_curves.experts_axis(panel)
    style.label_outer(axes)
    axes[-1].set_xlim(left=0.3)
    style.say_above(picture, selection.left_out(why_not, saturated))
    loss_curves.legend_below(
        picture, colours, {"saturated law": {"color": "black", **SATURATED}, "bilinear law": BILINEAR}
    )
    return picture


def selected(table: RunTable, router: str) -> Points:
    return selection.several_experts(selection.points_of(table, router))


def draw_overlay(axes: Axes, fits: dict[str, Fit]) -> None:
    """Predictions only, a colour per router: which one is lowest at each size and E."""
    looks = style.router_looks(fits)
    for router, fit in fits.items():
        loss_curves.draw_law(axes, fit, linestyle=":", linewidth=1.6, color=looks[router]["color"])
    any_fit = next(iter(fits.values()))
    sizes = {active: size for size, active, _ in any_fit.points.by_size()}
    for active in loss_curves.well_apart(list(sizes)):
        first = float(any_fit.predict(active_params=active, experts=1.0)[0])
        axes.annotate(style.safe(sizes[active]), (1, first), xytext=(-3, 0), textcoords="offset points", ha="right",
                      va="center", fontsize=7.5, color="#444444")  # fmt: skip
    handles = [
        Line2D([], [], linestyle=":", linewidth=2, color=looks[r]["color"], label=style.router_label(r)) for r in fits
    ]
    axes.legend(handles=handles, loc="upper right")
    axes.set_title("all techniques, saturated law")


FIGURES = (
    Figure(
        name="joint_curves",
        title="Joint fits in size and experts",
        caption=(
            "Loss against the number of experts for every router and size, with the saturated law (dotted, six "
            "parameters per router) and the bilinear law (grey, four). In the last panel the saturated laws of all "
            "routers without the points. The saturated law leaves the straight grey lines where the gain from experts "
            "bends, at few experts or at many. Last evaluation of each run, the usual K and R, dense runs as E = 1, "
            "seeds averaged; the optimum of each fit."
        ),
        draw=draw,
        paper="Figure 2 (joint_curves)",
        on_release=(
            "It leaves them at both ends: at few experts most for HASH, at many experts most for S-BASE. From 130M on "
            "S-BASE is predicted lowest at every E that routes; at the smaller sizes RL-R overtakes it at the largest "
            "E. HASH is last wherever there is routing. K = 1, R = 0.5; the seeds are those of the dense 130M model. "
            "Departs from print in the order of the panels, in the models that were not released (S-BASE 130M/E256; "
            "HASH 130M/E8, 130M/E256, 25M/E32), and in using the optimum of the fit."
        ),
    ),
)
