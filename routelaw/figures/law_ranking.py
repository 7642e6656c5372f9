"""Which law predicts a model size it has not seen? Every law, every router, ranked by that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.points import select_points
from routelaw.fitting.validation import held_out_residuals
from routelaw.laws import all_laws
from routelaw.laws.law import Law
from routelaw.laws.power_sum import PowerSum
from routelaw.runs.table import RunTable

ROUTERS = ("s-base", "rl-r", "hash")
MARKS = {"in_sample": ("|", "in sample"), "leave_size_out": ("o", "leave-size-out"), "largest": (">", "1.3B held out")}
HOLD_OUT_SEARCHES = 16
"""Starts followed for each size left out, beside the optimum of all. 100 find the same in five times the time."""
PUBLISHED = "saturated"
"""The paper's own law, set in bold."""


@dataclass(frozen=True)
class Errors:
    """RMSLE, in log10 L."""

    in_sample: float
    leave_size_out: float
    largest: float
    """On the largest size, with that size left out."""


def competing_laws() -> list[Law]:
    """Laws of the final loss of all sizes and expert counts: not the dense law, nor one size, nor training curves."""
    return [
        law
        for law in all_laws().values()
        if not law.along_training and ("total_params" in law.inputs or {"active_params", "experts"} <= set(law.inputs))
    ]


@lru_cache(maxsize=1)
def competing_fits(table: RunTable) -> dict[tuple[str, str], Fit]:
    """By (law, router): every competing law on the same points, K = 1 and R = 1/2, dense runs as E = 1."""
    points = {router: select_points(table, router, mixed=False) for router in ROUTERS}
    return {(law.name, router): fit_law(law, points[router]) for law in competing_laws() for router in ROUTERS}


@lru_cache(maxsize=1)
def ranking_errors(table: RunTable) -> dict[tuple[str, str], Errors]:
    """In sample, each size out, and the largest out. Leave-one-out would cost most of the time and is not drawn."""
    return {key: _errors(fit) for key, fit in competing_fits(table).items()}


def _errors(fit: Fit) -> Errors:
    if isinstance(fit.law, PowerSum):
        fit = replace(fit, law=replace(fit.law, searches=min(fit.law.searches, HOLD_OUT_SEARCHES)))
    residual_N = held_out_residuals(fit, fit.points.size)
    largest_N = fit.points.size == fit.points.sizes[-1]
    return Errors(
        fit.rmsle, float(np.sqrt((residual_N**2).mean())), float(np.sqrt((residual_N[largest_N] ** 2).mean()))
    )


def draw_law_ranking(table: RunTable) -> Picture:
    picture, axes = style.panels(len(ROUTERS), width=3.9, height=3.4, sharex=True)
    errors = ranking_errors(table)
    for panel, router in zip(axes, ROUTERS, strict=True):
        own = {law: e for (law, r), e in errors.items() if r == router}
        _ranked(panel, router, dict(sorted(own.items(), key=lambda item: item[1].leave_size_out)))
    axes[0].set_xlim(0, 1.05e4 * max(max(e.leave_size_out, e.largest) for e in errors.values()))
    for mark, label in MARKS.values():
        axes[0].plot([], [], linestyle="", marker=mark, color=style.GREY, markersize=5, label=label)
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return picture


def _ranked(axes: Axes, router: str, errors: dict[str, Errors]) -> None:
    rows = np.arange(len(errors))
    colour = style.router_colour(router)
    for kind, (mark, _) in MARKS.items():
        values = [1e4 * getattr(e, kind) for e in errors.values()]
        main = kind == "leave_size_out"
        look = {"color": colour if main else style.GREY, "markersize": 6 if main or mark == "|" else 4.5}
        axes.plot(values, rows, linestyle="", marker=mark, zorder=3 if main else 2, **look)
    ends = [(1e4 * e.in_sample, 1e4 * max(e.leave_size_out, e.largest)) for e in errors.values()]
    axes.hlines(rows, [low for low, _ in ends], [high for _, high in ends], color="#cccccc", linewidth=0.9, zorder=1)
    for row, e in zip(rows, errors.values(), strict=True):
        text = f"{1e4 * e.leave_size_out:.1f}"
        axes.annotate(
            text, (1e4 * e.leave_size_out, row), (0, 4), textcoords="offset points", ha="center", fontsize=6.5
        )
    laws = all_laws()
    axes.yaxis.set_major_locator(FixedLocator(list(rows)))
    axes.yaxis.set_major_formatter(FixedFormatter([f"{name} ({len(laws[name].parameters)})" for name in errors]))
    for label, name in zip(axes.get_yticklabels(), errors, strict=True):
        label.set_fontweight("bold" if name == PUBLISHED else "normal")
    axes.set_ylim(len(errors) - 0.5, -0.7)
    axes.set_xlabel("RMSE of log10 L (10⁻⁴)")
    axes.set_ylabel("law (parameters)")
    axes.set_title(style.router_label(router))


FIGURES = (
    Figure(
        name="law_ranking",
        title="Laws ranked by how well they predict a size they have not seen",
        caption=(
            "Every law of the final validation loss, fitted per router to K = 1, R = 1/2 with the dense runs as E = 1 "
            "(the 130M seeds averaged), best on top. Dots with numbers: leave-size-out, the error on each model size "
            "predicted from the other five; bars: error on the points fitted; triangles: error on the 1.3B models "
            "predicted from the smaller ones. In brackets the number of parameters; bold, the paper's law. Laws with "
            "an irreducible loss lead for every router; with as many parameters as the paper's law and no interaction "
            "of N and E, irreducible has about half its error. More parameters than that buy little here, and nothing "
            "for S-BASE. The compute law reads FLOPs and total parameters, abnar2025 total parameters; both stand on "
            "the same points as the rest."
        ),
        draw=draw_law_ranking,
    ),
)
