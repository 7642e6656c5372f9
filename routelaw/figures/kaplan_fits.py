"""Kaplan et al.'s law of training curves, L(N, S) = (N_c/N)^α_N + (S_c/S)^α_S, in the paper's three attempts."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.along_training import size_slopes
from routelaw.figures.figure import Figure
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.points import Points, select_points
from routelaw.laws import get_law
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable

LAW = "kaplan2020"
SPLIT = 100_000
"""The last 150,000 of 250,000 steps lie beyond this one."""
LOOKS = {
    "all steps": ("#000000", "-"),
    "the last 150,000 steps": (style.OTHER_COLOURS[0], "--"),
    "the first 100,000 steps": (style.GREY, "-."),
}
"""Which steps a fit takes, in the colours of the paper's figure."""


@lru_cache(maxsize=1)
def three_fits(table: RunTable) -> dict[str, Fit]:
    points = select_points(table, "dense", get_law(LAW))
    late = points.x["step"] > SPLIT
    masks = (np.ones_like(late), late, ~late)
    return {name: fit_law(LAW, points.where(mask)) for name, mask in zip(LOOKS, masks, strict=True)}


def rmsle(fit: Fit, points: Points) -> float:
    """Error of a fit on points it may not have seen."""
    residual = np.log10(fit.predict(active_params=points.x["active_params"], step=points.x["step"])) - points.log_loss
    return float(np.sqrt((residual**2).mean()))


def implied_slope(fit: Fit, active_params: Array, step: float) -> float:
    """The slope a that a straight line in log-log would have, were the losses at this step the law's own."""
    loss = fit.predict(active_params=active_params, step=np.full(active_params.shape, step))
    return float(np.polyfit(np.log10(active_params), np.log10(loss), 1)[0])


def draw_kaplan_fits(table: RunTable) -> Picture:
    picture, grid = style.panels(2, rows=2, width=3.9, height=3.1)
    fits = three_fits(table)
    everything = fits["all steps"].points
    for panel, (name, fit) in zip(grid, fits.items(), strict=False):
        _curves(panel, fit, everything)
        panel.set_title(f"fitted to {name}")
        errors = f"RMSE of log10 L: {1e4 * fit.rmsle:.0f}·10⁻⁴ on these, {1e4 * rmsle(fit, everything):.0f}·10⁻⁴ on all"
        panel.text(0.03, 0.03, errors, transform=panel.transAxes, fontsize=7.5)
    grid[0].legend(ncols=3, loc="upper right")
    _slopes(grid[3], table, fits)
    style.letter_panels(grid)
    return picture


def _curves(axes: Axes, fit: Fit, everything: Points) -> None:
    """Measured losses as points, coloured by size; the fit as lines; the steps it was fitted to shaded."""
    for size, shade in zip(everything.sizes, style.shades(len(everything.sizes)), strict=True):
        own = everything.where(everything.size == size)
        axes.plot(own.x["step"], own.loss, linestyle="", marker="o", markersize=2.4, color=shade, label=size)
        steps = np.geomspace(own.x["step"].min(), own.x["step"].max(), 80)
        axes.plot(steps, fit.predict(active_params=own.x["active_params"][0], step=steps), color=shade, linewidth=1)
    axes.axvspan(fit.points.x["step"].min(), fit.points.x["step"].max(), color="#f2f2f2", zorder=0)
    axes.set_xscale("log")
    style.named_ticks(axes.xaxis, {1e4: "10", 2e4: "20", 5e4: "50", 1e5: "100", 2.5e5: "250"})
    axes.set_xlabel("step (thousands)")
    style.log_loss_axis(axes, (2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75))
    axes.set_ylim(2.1, 3.95)


def _slopes(axes: Axes, table: RunTable, fits: dict[str, Fit]) -> None:
    """Measured a(S) beside what each fit implies: the form does let a change with S."""
    measured = size_slopes(table)
    look = style.router_look("dense", markersize=3, label="measured")
    axes.plot(measured.step_S / 1e3, measured.slope_S, linestyle="", **look)
    sizes = np.unique(fits["all steps"].points.x["active_params"])
    for name, fit in fits.items():
        slopes = [implied_slope(fit, sizes, step) for step in measured.step_S]
        axes.plot(measured.step_S / 1e3, slopes, color=LOOKS[name][0], linestyle=LOOKS[name][1], label=f"fit to {name}")
    axes.set_xlabel("step (thousands)")
    axes.set_ylabel("a, slope in log N")
    axes.legend()


FIGURES = (
    Figure(
        name="kaplan_fits",
        title="Kaplan's L(N, S) on dense training curves, three ways",
        caption=(
            "L(N, S) = (N_c/N)^α_N + (S_c/S)^α_S fitted to the validation losses of the dense models along training "
            "(points; the 130M seeds averaged; step 0 left out), by least squares on log L: to all steps (a), to the "
            "last 150,000 alone (b), and without those (c). Lines: the fits; shaded: the steps fitted. S is the plain "
            "step at one batch size, not S_min. Small models level off and large ones turn down towards the end of the "
            "learning-rate schedule; the form allows neither, and fitted to some steps it misses the others. (d) The "
            "slope in log N at each step, measured and as the fits imply it. The paper takes the form to imply the "
            "same slope at all steps and so to be refuted by the measured a(S). It does not: its slope is "
            "−α_N·(N_c/N)^α_N/L, whose size grows with S, in all three fits by more than half of what is measured. "
            "What speaks against the form is that it grows too little late in training, and the curves themselves. "
            "The paper's own fits had a seventh size, 870M, that was not released."
        ),
        draw=draw_kaplan_fits,
        paper="Appendix figure bad_fits (c)",
    ),
)
