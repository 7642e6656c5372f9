"""Which law predicts a model size it has not seen? Every law, every router, ranked by that."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import PAPER_ROUTERS
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.points import select_points
from routelaw.fitting.selection import comparable_laws, hold_out_sizes
from routelaw.laws import all_laws
from routelaw.runs.table import RunTable

MARKS = {
    "in_sample": ("|", "in sample"),
    "leave_size_out": ("o", "leave-size-out"),
    "largest_size_out": (">", "1.3B held out"),
}
PUBLISHED = "saturated"
"""The paper's own law, set in bold."""


@lru_cache(maxsize=1)
def competing_fits(table: RunTable) -> dict[tuple[str, str], Fit]:
    """By (law, router): every competing law on the same points, K = 1 and R = 1/2, dense runs as E = 1."""
    points = {router: select_points(table, router, mixed=False) for router in PAPER_ROUTERS}
    return {(law.name, router): fit_law(law, points[router]) for law in comparable_laws() for router in PAPER_ROUTERS}


@lru_cache(maxsize=1)
def ranking_errors(table: RunTable) -> dict[tuple[str, str], dict[str, float]]:
    """In sample, each size out, and the largest out, by name. Leave-one-out would take most of the time and is not
    drawn."""
    found = {key: hold_out_sizes(fit).errors for key, fit in competing_fits(table).items()}
    return {key: {name: e for name, e in errors.items() if e is not None} for key, errors in found.items()}


def draw_law_ranking(table: RunTable) -> Picture:
    picture, axes = style.panels(len(PAPER_ROUTERS), width=3.9, height=3.4, sharex=True)
    errors = ranking_errors(table)
    for panel, router in zip(axes, PAPER_ROUTERS, strict=True):
        own = {law: e for (law, r), e in errors.items() if r == router}
        _ranked(panel, router, dict(sorted(own.items(), key=lambda item: item[1]["leave_size_out"])))
    axes[0].set_xlim(0, 1.05e4 * max(max(e["leave_size_out"], e["largest_size_out"]) for e in errors.values()))
    for mark, label in MARKS.values():
        axes[0].plot([], [], linestyle="", marker=mark, color=style.GREY, markersize=5, label=label)
    style.legend_of(axes[0], picture)
    return picture


def _ranked(axes: Axes, router: str, errors: dict[str, dict[str, float]]) -> None:
    rows = np.arange(len(errors))
    colour = style.router_colour(router)
    for kind, (mark, _) in MARKS.items():
        values = [1e4 * e[kind] for e in errors.values()]
        main = kind == "leave_size_out"
        look = {"color": colour if main else style.GREY, "markersize": 6 if main or mark == "|" else 4.5}
        axes.plot(values, rows, linestyle="", marker=mark, zorder=3 if main else 2, **look)
    ends = [(1e4 * e["in_sample"], 1e4 * max(e["leave_size_out"], e["largest_size_out"])) for e in errors.values()]
    axes.hlines(rows, [low for low, _ in ends], [high for _, high in ends], color="#cccccc", linewidth=0.9, zorder=1)
    for row, e in zip(rows, errors.values(), strict=True):
        at = 1e4 * e["leave_size_out"]
        axes.annotate(f"{at:.1f}", (at, row), (0, 4), textcoords="offset points", ha="center", fontsize=6.5)
    laws = all_laws()
    style.named_ticks(axes.yaxis, {i: f"{name} ({len(laws[name].parameters)})" for i, name in enumerate(errors)})
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
