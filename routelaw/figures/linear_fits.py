"""Straight lines in log E: size by size, jointly with and without interaction, and with one slope for all sizes."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.errors import InputError
from routelaw.figures import loss_curves, selection, style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.fitting import Fit, Points, fit_law
from routelaw.fitting.slopes import affine_by_size
from routelaw.laws.law import Array
from routelaw.laws.saturation import EXPERTS
from routelaw.runs.table import RunTable

PER_SIZE: loss_curves.LineStyle = {"linestyle": "--", "linewidth": 1.2}
BILINEAR: loss_curves.LineStyle = {"linestyle": ":", "linewidth": 1.7}
SEPARABLE: loss_curves.LineStyle = {"linestyle": "-", "linewidth": 0.9, "color": style.GREY}


def draw(table: RunTable) -> Picture:
    fits, why_not = selection.for_each_routed(table, lambda router: both_fits(table, router))
    colours = loss_curves.size_colours(*(separable.points for separable, _ in fits.values()))
    picture, axes = style.grid_of_panels(len(fits), width=3.3, height=3.6, sharey=True)
    for panel, (router, (separable, bilinear)) in zip(axes, fits.items(), strict=True):
        points = separable.points
        worst = np.abs(points.loss * (10**separable.residual_N - 1)).max()
        loss_curves.draw_law(panel, separable, **SEPARABLE)
        loss_curves.draw_law(panel, bilinear, colours, **BILINEAR)
        draw_per_size(panel, points, colours)
        loss_curves.draw_points(panel, points, colours)
        panel.set_title(f"{style.router_label(router)} (separable misses by up to {worst:.2f})")
        loss_curves.experts_axis(panel)
    loss_curves.loss_axes(*axes, target=selection.target_of(table))
    style.label_outer(axes)
    style.say_above(picture, selection.left_out(why_not))
    lines = {"power law of one size": {"color": "black", **PER_SIZE}, "bilinear": {"color": "black", **BILINEAR}}
    loss_curves.legend_below(picture, colours, {**lines, "separable": SEPARABLE})
    return picture


def both_fits(table: RunTable, router: str) -> tuple[Fit, Fit]:
    points = selection.several_experts(selection.points_of(table, router))
    return selection.fit_of("separable", points), selection.fit_of("bilinear", points)


def draw_per_size(axes: Axes, points: Points, colours: loss_curves.Colours) -> None:
    """A line for each size that has expert counts enough for one."""
    grid = loss_curves.expert_grid(points)
    for size, _, group in points.by_size():
        with suppress(InputError):
            axes.plot(grid, fit_law("experts", group).predict(experts=grid), color=colours[size], **PER_SIZE)


def draw_affine(table: RunTable, router: str = "hash") -> Picture:
    points = with_slopes(selection.points_of(table, router))
    colours = loss_curves.size_colours(points)
    fit = selection.fit_of("saturated", points)
    start, ceiling = np.array([fit.params["e_start"]]), np.array([fit.params["e_max"]])
    picture, (left, right) = style.panels(2, width=3.9, height=3.6, sharey=True)
    effective = 10 ** EXPERTS.log_effective(points.x["experts"], start, ceiling)[0]
    draw_affine_panel(left, points, points.x["experts"], colours)
    draw_affine_panel(right, points, effective, colours)
    loss_curves.experts_axis(left)
    ticks = style.powers_of_two(*right.dataLim.intervalx)
    style.experts_axis(right, ticks[:-1] if ticks[-1] > ceiling[0] and len(ticks) > 2 else ticks)
    right.tick_params(axis="x", labelsize=7.5)
    right.set_xlabel("effective experts Ê (saturated)")
    loss_curves.loss_axes(left, right, target=points.target)
    for panel in (left, right):
        panel.label_outer()
    style.say_above(picture, selection.left_out({}, {router: fit}))
    loss_curves.legend_below(
        picture, colours, {"slope of its own": {"color": "black", **PER_SIZE}, "shared slope": SEPARABLE}
    )
    return picture


def with_slopes(points: Points) -> Points:
    """The sizes that have several expert counts, without which a size has no slope."""
    enough = [size for size, _, group in points.by_size() if len(np.unique(group.x["experts"])) > 1]
    if not enough:
        raise CannotDraw(f"no size of {points.router} has several expert counts, dense runs included.")
    return points.where(np.isin(points.size.astype(str), enough))


def draw_affine_panel(axes: Axes, points: Points, x_N: Array, colours: loss_curves.Colours) -> None:
    log_x = np.log10(x_N)
    own, shared = affine_by_size(log_x, points)
    ends = np.geomspace(x_N.min(), x_N.max(), 20)
    errors = []
    for lines, look in ((shared, SEPARABLE), (own, PER_SIZE)):
        misses = [
            lines[s][0] * x + lines[s][1] - y for s, x, y in zip(points.size, log_x, points.log_loss, strict=True)
        ]
        errors.append(f"{np.sqrt(np.mean(np.square(misses))) * 1e4:.0f}")
        for size, (slope, intercept) in lines.items():
            full: loss_curves.LineStyle = {"color": colours[size], **look}
            axes.plot(ends, 10 ** (slope * np.log10(ends) + intercept), **full)
    for size, _, group in points.by_size():
        axes.plot(x_N[points.size == size], group.loss, linestyle="none", marker=style.router_mark(points.router),
                  color=colours[size], zorder=3)  # fmt: skip
    axes.set_title(f"RMSLE (1e-4): own slopes {errors[1]}, shared {errors[0]}")


FIGURES = (
    Figure(
        name="linear_fits",
        title="Power laws in the number of experts",
        caption=(
            "Loss against experts with three fits that are straight lines here: a power law fitted to each size alone "
            "(dashed), the bilinear law fitted to all sizes of a router (dotted) and the separable law (grey), whose "
            "lines are parallel. Where the dashed slopes flatten with size the bilinear law follows them, and the grey "
            "lines cannot. Points that weave around every straight line are what saturation mends. Last evaluation of "
            "each run, the usual K and R, dense runs as E = 1 and part of every fit, seeds averaged. Each title has "
            "the largest error of the separable law."
        ),
        draw=draw,
        paper="Figure 4 (linear_fits)",
        on_release=(
            "The dashed slopes do flatten with size, and the grey lines promise too much to large models with many "
            "experts and too little to small ones. The points weave around every straight line, under it at E = 1, "
            "over it at 4, under it near 64 to 128. K = 1, R = 0.5. Departs from print in showing all six sizes, 55M "
            "among them, where the printed table of slopes has five, and in the size of the separable law's errors: "
            "the text speaks of over 0.2 nats, the largest on the released runs stands in each title."
        ),
    ),
    Figure(
        name="hash_affine_fits",
        title="HASH: affine fits with a shared slope",
        caption=(
            "HASH losses with a straight line in log E for every size (dashed), and the same with the single slope "
            "that fits all sizes best (grey), each size keeping its own intercept. Left against E, right against the "
            "effective experts Ê of HASH's saturated fit; titles give the error over all points. What weaves around "
            "its line on the left and lies on it on the right is saturation in E. The usual K and R, dense runs as "
            "E = 1, seeds averaged."
        ),
        draw=draw_affine,
        paper="Appendix figure (fig3_hash)",
        on_release=(
            "On the left every size weaves around its line: under it at E = 1, over it at 4 to 16, under it at 128 and "
            "256. On the right the points straighten and the misses all but vanish, while one slope for all sizes is "
            "nearly as wrong as before. K = 1, R = 0.5. Departs from print in having two panels: the printed figure is "
            "a single one that does not say which abscissa it uses, and the text's remark that the ends are no longer "
            "missed holds for Ê."
        ),
    ),
)
