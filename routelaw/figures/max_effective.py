"""N̄_max(N): the best a routed model of size N can do, in dense parameters, and where routing stops helping."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Picture

from routelaw.figures import selection, style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import metric, metric_formatter, params_axis
from routelaw.figures.main_results import saturated_fit
from routelaw.fitting import Fit
from routelaw.laws import equivalence
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable

DECADES = 6
"""From the one in which the smallest size lies."""


def max_effective(fit: Fit, sizes: Array) -> Array:
    return np.array([equivalence.max_effective_params(fit.law, fit.params_BP, float(n))[0] for n in sizes])


def draw(table: RunTable) -> Picture:
    fits, why_not = selection.for_each_routed(table, lambda router: saturated_fit(table, router))
    trained = np.concatenate([fit.points.x["active_params"] for fit in fits.values()])
    first = 10.0 ** np.floor(np.log10(trained.min()))
    grid = np.geomspace(first, first * 10.0**DECADES, 10 * DECADES + 1)
    looks = style.router_looks(fits)
    picture, (axes,) = style.panels(1, width=5.2, height=4.0)
    axes.plot(grid, grid, color=style.GREY, linewidth=0.9, label="dense, and routed beyond $N_{cut}$")
    for router, fit in fits.items():
        look = looks[router]
        cut = float(equivalence.cutoff(fit.law, fit.params_BP)[0])
        label = style.router_label(router)
        sizes = grid
        if grid[0] < cut < grid[-1]:
            sizes = np.append(grid[cut > grid], cut)
            label += f": $N_{{cut}}$ = {metric(cut, max(2, len(f'{cut / 1e9:.0f}')))}"
            axes.plot([cut], [cut], markersize=6, markeredgecolor="white", zorder=4, **look)
            axes.plot([cut, cut], [grid[0], cut], color=look["color"], linewidth=0.8, linestyle=":")
        elif cut <= grid[0]:
            label += ": routing helps at no size drawn"
            sizes = grid[:0]
        largest = max_effective(fit, sizes)
        seen = np.isfinite(largest)
        axes.plot(sizes[seen], largest[seen], color=look["color"], label=label)
    axes.axvspan(trained.min(), trained.max(), color="#f2f2f2", zorder=0, linewidth=0)
    axes.annotate("sizes trained", (trained.max(), grid[0]), xytext=(-4, 4), textcoords="offset points", ha="right",
                  fontsize=7, color="#555555")  # fmt: skip
    params_axis(axes, "active parameters N")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(metric_formatter())
    axes.set_ylabel(r"largest effective parameters $\bar{N}_{max}$")
    axes.set_xlim(grid[0], grid[-1])
    axes.set_ylim(grid[0], grid[-1])
    axes.legend(loc="upper left")
    style.say_above(picture, selection.left_out(why_not, fits))
    return picture


FIGURES = (
    Figure(
        name="max_effective",
        title="The largest effective size a routed model can reach",
        caption=(
            "N̄_max(N), the dense size that a model of N active parameters equals with unlimited experts, under each "
            "router's saturated law. Below N_cut (mark and dotted drop) it lies above the grey diagonal, so routing "
            "helps; from there on the best is not to route. The lines are straight on these axes and never exceed "
            "N_cut. Everything to the right of the shaded band is extrapolation, and N_cut is a quotient of two fitted "
            "slopes. Fits to the usual K and R, dense runs as E = 1, seeds averaged."
        ),
        draw=draw,
        paper="Figure 6 (epc_max)",
        on_release=(
            "The 95 % profile interval of N_cut spans more than a decade for S-BASE, and laws with an irreducible loss "
            "have no cut-off in sight. K = 1, R = 0.5. Departs from print, which gives N_cut of 937B, 85B and 83B for "
            "S-BASE, RL-R and HASH (section on large N); N̄_max is reached at Ê = E_max, which is E → ∞ and not "
            "E = E_max."
        ),
    ),
)
