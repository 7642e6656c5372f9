"""Kaplan et al.'s law of training curves, L(N, S) = (N_c/N)^α_N + (S_c/S)^α_S, in the paper's three attempts."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import selection, style
from routelaw.figures.along_training import Slopes, size_slopes, step_axis
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import loss_ticks
from routelaw.fitting.fit import Fit
from routelaw.fitting.points import Points
from routelaw.laws import get_law
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE

LAW = "kaplan2020"
EARLY = 0.4
"""The share of training that one fit takes alone and another leaves out: 100,000 of the paper's 250,000 steps."""
LOOKS = (("#000000", "-"), (style.OTHER_COLOURS[0], "--"), (style.GREY, "-."))
"""All steps, the late ones and the early ones, in the colours of the paper's figure."""


@lru_cache(maxsize=1)
def three_fits(table: RunTable) -> dict[str, Fit]:
    points = selection.points_of(table, DENSE, get_law(LAW))
    steps = np.unique(points.x["step"])
    planned = planned_steps(table, float(steps[-1]))
    split = steps[np.abs(steps - EARLY * planned).argmin()]
    late = points.x["step"] > split
    if late.all() or not late.any():
        raise CannotDraw("the dense runs were evaluated at one step only, and Kaplan's law follows training.")
    masks = {
        "all steps": np.ones_like(late),
        f"the last {planned - split:,.0f} steps": late,
        f"the first {split:,.0f} steps": ~late,
    }
    fits = {name: selection.fit_of(LAW, points.where(mask)) for name, mask in masks.items()}
    for name, fit in fits.items():
        with np.errstate(over="ignore"):
            error = rmsle(fit, points)
        if not np.isfinite(error):
            raise CannotDraw(f"Kaplan's law is not determined by {name}: fitted to them it has no loss for the others.")
    return fits


def planned_steps(table: RunTable, last: float) -> float:
    """Steps that the runs were planned for, where the table says so; else the last one evaluated."""
    frame = selection.comparable(table).frame
    ends = frame[(frame["router"] == DENSE) & (frame["step"] == last)]
    planned = (ends["tokens_planned"].astype(float) / ends["tokens"].astype(float) * last).dropna()
    return max(last, float(np.round(planned.min()))) if len(planned) else last


def rmsle(fit: Fit, points: Points) -> float:
    """Error of a fit on points it may not have seen."""
    residual = np.log10(fit.predict(active_params=points.x["active_params"], step=points.x["step"])) - points.log_loss
    return float(np.sqrt((residual**2).mean()))


def implied_slope(fit: Fit, active_params: Array, step: float) -> float:
    """The slope a that a straight line in log-log would have, were the losses at this step the law's own."""
    loss = fit.predict(active_params=active_params, step=np.full(active_params.shape, step))
    return float(np.polyfit(np.log10(active_params), np.log10(loss), 1)[0])


def draw_kaplan_fits(table: RunTable) -> Picture:
    fits = three_fits(table)
    measured = size_slopes(table)
    picture, grid = style.panels(2, rows=2, width=3.9, height=3.1)
    everything = fits["all steps"].points
    for panel, (name, fit) in zip(grid, fits.items(), strict=False):
        _curves(panel, fit, everything, planned_steps(table, float(everything.x["step"].max())))
        panel.set_title(f"fitted to {name}")
        errors = f"RMSE of log10 L: {1e4 * fit.rmsle:.0f}·10⁻⁴ on these, {1e4 * rmsle(fit, everything):.0f}·10⁻⁴ on all"
        panel.text(0.03, 0.03, errors, transform=panel.transAxes, fontsize=7.5)
    grid[0].legend(ncols=3, loc="upper right")
    _slopes(grid[3], measured, fits)
    style.letter_panels(grid)
    style.say_above(picture, selection.left_out({}, {DENSE: fits["all steps"]}))
    return picture


def _curves(axes: Axes, fit: Fit, everything: Points, planned: float) -> None:
    """Measured losses as points, coloured by size; the fit as lines; the steps it was fitted to shaded."""
    for size, shade in zip(everything.sizes, style.shades(len(everything.sizes)), strict=True):
        own = everything.where(everything.size == size)
        look = {"linestyle": "", "marker": "o", "markersize": 2.4, "color": shade}
        axes.plot(own.x["step"], own.loss, label=style.safe(size), **look)
        steps = np.geomspace(own.x["step"].min(), own.x["step"].max(), 80)
        axes.plot(steps, fit.predict(active_params=own.x["active_params"][0], step=steps), color=shade, linewidth=1)
    axes.axvspan(fit.points.x["step"].min(), fit.points.x["step"].max(), color="#f2f2f2", zorder=0)
    axes.set_xscale("log")
    unit = step_axis(axes, planned)
    first = float(everything.x["step"].min())
    ticks = [first, *(t for t in style.round_values(first, planned) if 1.3 * first < t < planned / 1.3)]
    style.named_ticks(axes.xaxis, {t: f"{t / unit:g}" for t in [*ticks, planned]})
    # Room above the points for the legend and below them for the errors.
    low, high = (round(loss * 20) / 20 for loss in (everything.loss.min() / 1.07, everything.loss.max() * 1.11))
    style.log_loss_axis(axes, loss_ticks(low, high, 8), style.loss_label(everything.target))
    axes.set_ylim(low, high)


def _slopes(axes: Axes, measured: Slopes, fits: dict[str, Fit]) -> None:
    """Measured a(S) beside what each fit implies: the form does let a change with S."""
    unit = step_axis(axes, measured.step_S[-1])
    look = style.router_look("dense", markersize=3, label="measured")
    axes.plot(measured.step_S / unit, measured.slope_S, linestyle="", **look)
    sizes = np.unique(fits["all steps"].points.x["active_params"])
    for (colour, line), (name, fit) in zip(LOOKS, fits.items(), strict=True):
        slopes = [implied_slope(fit, sizes, step) for step in measured.step_S]
        axes.plot(measured.step_S / unit, slopes, color=colour, linestyle=line, label=f"fit to {name}")
    axes.set_ylabel("a, slope in log N")
    axes.legend()


FIGURES = (
    Figure(
        name="kaplan_fits",
        title="Kaplan's L(N, S) on dense training curves, three ways",
        caption=(
            "L(N, S) = (N_c/N)^α_N + (S_c/S)^α_S fitted to the losses of the dense models along training (points; "
            "seeds averaged; step 0 left out), by least squares on log L: to all steps (a), to the later ones alone "
            "(b), and without those (c). Lines: the fits; shaded: the steps fitted. S is the plain step at one batch "
            "size, not S_min. Where losses turn down towards the end of the learning-rate schedule, or level off, the "
            "form cannot follow, and fitted to some steps it misses the others. (d) The slope in log N at each step, "
            "measured and as the fits imply it: −α_N·(N_c/N)^α_N/L, whose size grows with S."
        ),
        draw=draw_kaplan_fits,
        paper="Appendix figure bad_fits (c)",
        on_release=(
            "The later steps are the last 150,000 of 250,000. Small models level off and large ones turn down towards "
            "the end; the form allows neither. The paper takes the form to imply the same slope at all steps and so to "
            "be refuted by the measured a(S). It does not: in all three fits the slope grows by more than half of what "
            "is measured. What speaks against the form is that it grows too little late in training, and the curves "
            "themselves. The 130M seeds are averaged. The paper's own fits had a seventh size, 870M, that was not "
            "released."
        ),
    ),
)
