"""N̄_max(N): the best a routed model of size N can do, in dense parameters, and where routing stops helping."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import metric_formatter, params_axis, routed_techniques
from routelaw.fitting import Fit, fit_law, select_points
from routelaw.laws import equivalence
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable

SIZES = np.geomspace(1e7, 1e13, 61)


def max_effective(fit: Fit, sizes: Array) -> Array:
    return np.array([equivalence.max_effective_params(fit.law, fit.params_BP, float(n))[0] for n in sizes])


def draw(table: RunTable) -> Picture:
    picture, (axes,) = style.panels(1, width=5.2, height=4.0)
    trained: list[float] = []
    axes.plot(SIZES, SIZES, color=style.GREY, linewidth=0.9, label="dense, and routed beyond $N_{cut}$")
    for router in routed_techniques(table):
        fit = fit_law("saturated", select_points(table, router))
        trained += fit.points.x["active_params"].tolist()
        colour = style.router_colour(router)
        cut = float(equivalence.cutoff(fit.law, fit.params_BP)[0])
        label = style.router_label(router)
        sizes = SIZES
        if SIZES[0] < cut < SIZES[-1]:
            sizes = np.append(SIZES[cut > SIZES], cut)
            label += f": $N_{{cut}}$ = {cut / 1e9:.0f}B"
            axes.plot([cut], [cut], marker=style.router_mark(router), color=colour, markersize=6,
                      markeredgecolor="white", zorder=4)  # fmt: skip
            axes.plot([cut, cut], [SIZES[0], cut], color=colour, linewidth=0.8, linestyle=":")
        axes.plot(sizes, max_effective(fit, sizes), color=colour, label=label)
    axes.axvspan(min(trained), max(trained), color="#f2f2f2", zorder=0, linewidth=0)
    axes.annotate("sizes trained", (max(trained), SIZES[0]), xytext=(-4, 4), textcoords="offset points", ha="right",
                  fontsize=7, color="#555555")  # fmt: skip
    params_axis(axes, "active parameters N")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(metric_formatter())
    axes.set_ylabel(r"largest effective parameters $\bar{N}_{max}$")
    axes.set_xlim(SIZES[0], SIZES[-1])
    axes.set_ylim(SIZES[0], SIZES[-1])
    axes.legend(loc="upper left")
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
            "slopes: the 95 % profile interval spans more than a decade for S-BASE, and laws with an irreducible loss "
            "have no cut-off in sight. Fits to K = 1, R = 0.5, dense runs as E = 1, 130M seeds averaged. Departs from "
            "print, which gives N_cut of 937B, 85B and 83B for S-BASE, RL-R and HASH (section on large N); N̄_max is "
            "reached at Ê = E_max, which is E → ∞ and not E = E_max."
        ),
        draw=draw,
        paper="Figure 6 (epc_max)",
    ),
)
