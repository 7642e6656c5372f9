"""Level curves for several K and R: apart in (N, E), nearly together in (F, B)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullFormatter

from routelaw.figures import selection, style
from routelaw.figures.architecture_variants import K, R, Variation, held_laws, varied
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import LineStyle, flops_unit, metric, metric_formatter, utilisation, well_apart
from routelaw.fitting import Points
from routelaw.laws.law import Array, Law
from routelaw.runs.table import RunTable

GRID = 70
COEFFICIENTS = 4
"""How many coefficients a law has whose saturation is held."""
LOOKS: tuple[LineStyle, ...] = (
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#E69F00", "linestyle": "--"},
    {"color": "#CC79A7", "linestyle": ":"},
    {"color": "#7B4FA3", "linestyle": "-."},
    {"color": "#8C510A", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
)
"""The usual architecture first, in S-BASE's own colour; then the others, in none that means another router."""

Coordinates = Callable[[Points], tuple[Array, Array]]
Inputs = Callable[[Array, Array], dict[str, Array]]


def sizes_and_experts(points: Points) -> tuple[Array, Array]:
    return points.x["active_params"], points.x["experts"]


def flops_and_utilisation(points: Points) -> tuple[Array, Array]:
    return points.x["flops_per_token"], utilisation(points)


def draw(table: RunTable) -> Picture:
    rows, why_not = [], []
    for knob in (K, R):
        try:
            rows.append(_row(table, varied(table, knob)))
        except CannotDraw as error:
            why_not.append(str(error))
    if not rows:
        raise CannotDraw(why_not[0])
    picture, axes = style.panels(2, rows=len(rows), width=3.9, height=3.1)
    for row, (vary, in_experts, in_compute) in enumerate(rows):
        left, right = axes[2 * row : 2 * row + 2]
        draw_panel(left, in_experts, vary, sizes_and_experts, _from_sizes)
        draw_panel(right, in_compute, vary, flops_and_utilisation, _from_flops)
        label_axes(left, right, vary.points)
        handles = [Line2D([], [], label=vary.label(value), **look) for value, look in plot_styles(vary).items()]
        right.legend(handles=handles, loc="center left", bbox_to_anchor=(1.02, 0.5))
    style.letter_panels(axes)
    style.say_above(picture, " ".join(f"Not drawn: {reason}" for reason in why_not))
    return picture


def _row(table: RunTable, vary: Variation) -> tuple[Variation, Law, Law]:
    models = len(vary.points) // len(vary.values)
    if models <= COEFFICIENTS:
        raise CannotDraw(
            f"{vary.router} has {models} models for each {vary.symbol} and a law of its own for each needs "
            f"{COEFFICIENTS + 1}: at several sizes and expert counts, the same for every {vary.symbol}."
        )
    return (vary, *held_laws(table, vary.router))


def plot_styles(vary: Variation) -> dict[float, LineStyle]:
    usual_first = sorted(vary.values, key=lambda value: value != vary.usual)[: len(LOOKS)]
    looks = dict(zip(usual_first, LOOKS, strict=False))
    return {value: looks[value] for value in vary.values if value in looks}


def _from_sizes(active: Array, experts: Array) -> dict[str, Array]:
    return {"active_params": active, "experts": experts}


def _from_flops(flops: Array, ratio: Array) -> dict[str, Array]:
    return {"flops_per_token": flops, "total_params": ratio * flops}


def draw_panel(axes: Axes, law: Law, vary: Variation, coordinates: Coordinates, inputs: Inputs) -> None:
    """One law for each value of the knob, fitted to its own runs; the title says how one law for all would do."""
    points = vary.points
    levels = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(points.loss.min(), points.loss.max())
    x, y = (np.geomspace(v.min() / 1.25, v.max() * 1.25, GRID) for v in coordinates(points))
    x_G, y_G = np.tile(x, GRID), np.repeat(y, GRID)
    # Scales before contours: labels of level curves are placed where the curves stand at that moment.
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    named = None
    for i, (value, look) in enumerate(plot_styles(vary).items()):
        group = vary.by_value()[value]
        loss = selection.fit_of(law, group).predict(**inputs(x_G, y_G)).reshape(GRID, GRID)
        colour, dashes = look["color"], look["linestyle"]
        curves = axes.contour(x, y, loss, levels=levels, colors=colour, linestyles=dashes, linewidths=1.5)
        named = curves if look is LOOKS[0] else named
        # Rings of different radius: in (N, E) the runs of all values stand at the same places.
        axes.plot(*coordinates(group), linestyle="none", marker="o", markersize=3.5 + 2.5 * i, fillstyle="none",
                  color=colour, markeredgewidth=1.1)  # fmt: skip
    if named is not None:
        for text in axes.clabel(named, fmt="%.3g", fontsize=7.5, zorder=5):
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    axes.set_title(f"one law for all {vary.symbol}: RMSLE {selection.fit_of(law, points).rmsle * 1e4:.0f}e-4")


def label_axes(left: Axes, right: Axes, points: Points) -> None:
    sizes = dict(zip(points.x["active_params"], points.size, strict=True))
    least, most = points.x["active_params"].min(), points.x["active_params"].max()
    named = {n: style.safe(str(sizes[n])) for n in well_apart(sorted(sizes))}
    between = [10.0**d for d in range(int(np.ceil(np.log10(least))), int(np.log10(most)) + 1)]
    named |= {n: metric(n) for n in between if all(abs(np.log10(n / known)) > 0.3 for known in sizes)}
    left.xaxis.set_major_locator(FixedLocator(list(named)))
    left.xaxis.set_major_formatter(FixedFormatter(list(named.values())))
    left.set_xlabel("active parameters N")
    left.set_ylabel("experts E")
    flops = points.x["flops_per_token"]
    unit, name = flops_unit(flops.max())
    ticks = style.round_values(flops.min() / 1.25, flops.max() * 1.25)
    right.xaxis.set_major_locator(FixedLocator(ticks))
    right.xaxis.set_major_formatter(FixedFormatter([f"{t / unit:g}" for t in ticks]))
    right.set_xlabel(f"F (forward {name} per token)")
    right.set_ylabel("B = P/F (parameters per FLOP)")
    for axes in (left, right):
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(metric_formatter())
        axes.yaxis.set_minor_formatter(NullFormatter())


FIGURES = (
    Figure(
        name="level_curves",
        title="Level curves for several K and R, in (N, E) and in (F, B)",
        caption=(
            "Curves of equal loss of the router with most models that differ in K alone (top) or in R alone (bottom), "
            "in size and experts (left) and in forward FLOPs per token and parameters per FLOP (right). Rings are the "
            "runs. Each colour is a law of its own, fitted to the runs of one K or R at sizes and expert counts that "
            "all have. Few runs cannot determine six parameters, so E_start and E_max (B_start and B_max on the right) "
            "are held at the fit to the router's main sweep and a, b, c, d are fitted. Where the colours lie apart on "
            "the left and together on the right, F and B say what N and E leave out. The titles give the error of one "
            "law (held likewise) for all at once."
        ),
        draw=draw,
        paper="Figure 5 (ben_topk_fits)",
        on_release=(
            "S-BASE, K of 1, 2, 4 and R of 1, ½, ¼; six runs each: 25M and 370M with 8, 64 and 256 experts. On the "
            "left the colours lie apart: more experts per token or more routed layers reach a loss with a smaller "
            "model. On the right they nearly coincide; R = ¼ departs most, at large B. Departs from print: the printed "
            "sweep had 15M, 370M and 870M models, the release has 25M and 370M, so nothing is known between; six runs "
            "that contradict their labels in R are left out."
        ),
    ),
)
