"""Which law predicts a model size it has not seen? Every law, every router, ranked by that."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import selection, style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.fitting.fit import Fit
from routelaw.fitting.selection import comparable_laws, hold_out_sizes
from routelaw.laws import all_laws
from routelaw.runs.table import RunTable

MARKS = {"in_sample": ("|", "in sample"), "leave_size_out": ("o", "leave-size-out"), "largest_size_out": (">", "")}
LEAST_SIZES = 3
POINTS_PER_PARAMETER = 2
"""Laws with fewer points for each parameter are not tried: they would fit anything."""
PUBLISHED = "saturated"
"""The paper's own law, set in bold."""
SHOWN = 7.0
"""Times the best error on unseen sizes, in the middle of the routers: what lies beyond is drawn at the edge."""


@lru_cache(maxsize=1)
def competing_fits(table: RunTable) -> dict[tuple[str, str], Fit]:
    """By (law, router): every competing law on the same points, the usual K and R, dense runs as E = 1."""
    by_router, _ = selection.for_each_routed(table, lambda router: _fits_of(table, router))
    routers = list(by_router)
    laws = [law.name for law in comparable_laws()]
    return {(law, r): by_router[r][law] for law in laws for r in routers if law in by_router[r]}


def _fits_of(table: RunTable, router: str) -> dict[str, Fit]:
    points = selection.several_sizes(selection.points_of(table, router), LEAST_SIZES)
    points = selection.several_experts(points)
    found = {}
    reason = ""
    for law in comparable_laws():
        if len(points) < POINTS_PER_PARAMETER * len(law.parameters):
            reason = reason or f"{len(points)} points of {router} are too few for any law."
            continue
        try:
            found[law.name] = selection.fit_of(law, points)
        except CannotDraw as error:
            reason = str(error)
    if not found:
        raise CannotDraw(reason)
    return found


@lru_cache(maxsize=1)
def ranking_errors(table: RunTable) -> dict[tuple[str, str], dict[str, float]]:
    """In sample, each size out, and the largest out, by name. Leave-one-out would take most of the time and is not
    drawn."""
    found = {key: hold_out_sizes(fit).errors for key, fit in competing_fits(table).items()}
    return {key: {name: e for name, e in errors.items() if e is not None} for key, errors in found.items()}


def draw_law_ranking(table: RunTable) -> Picture:
    errors = {key: e for key, e in ranking_errors(table).items() if set(MARKS) <= set(e)}
    routers = list(dict.fromkeys(router for _, router in errors))
    if not routers:
        raise CannotDraw("no law is determined without one of the sizes, so none can be judged on a size left out.")
    picture, axes = style.grid_of_panels(len(routers), width=3.9, height=3.4, sharex=True)
    looks = style.router_looks(routers)
    best = [min(e["leave_size_out"] for (_, r), e in errors.items() if r == router) for router in routers]
    worst = max(max(e["leave_size_out"], e["largest_size_out"]) for e in errors.values())
    edge = 1e4 * min(worst, max(SHOWN * float(np.median(best)), 1.5 * max(best)))
    for panel, router in zip(axes, routers, strict=True):
        own = {law: e for (law, r), e in errors.items() if r == router}
        ranked = dict(sorted(own.items(), key=lambda item: item[1]["leave_size_out"]))
        _ranked(panel, router, looks[router]["color"], ranked, edge)
    axes[0].set_xlim(0, 1.05 * edge)
    largest = {competing_fits(table)[key].points.sizes[-1] for key in errors}
    held_out = style.safe(largest.pop()) if len(largest) == 1 else "largest size"
    for mark, label in MARKS.values():
        look = {"linestyle": "", "marker": mark, "color": style.GREY, "markersize": 5}
        axes[0].plot([], [], label=label or f"{held_out} held out", **look)
    style.legend_of(axes[0], picture)
    return picture


def _ranked(axes: Axes, router: str, colour: str, errors: dict[str, dict[str, float]], edge: float) -> None:
    rows = np.arange(len(errors))
    for kind, (mark, _) in MARKS.items():
        values = [min(1e4 * e[kind], edge) for e in errors.values()]
        main = kind == "leave_size_out"
        look = {"color": colour if main else style.GREY, "markersize": 6 if main or mark == "|" else 4.5}
        axes.plot(values, rows, linestyle="", marker=mark, zorder=3 if main else 2, **look)
    ends = np.array([(e["in_sample"], max(e["leave_size_out"], e["largest_size_out"])) for e in errors.values()])
    ends = np.minimum(1e4 * ends, edge)
    axes.hlines(rows, ends[:, 0], ends[:, 1], color="#cccccc", linewidth=0.9, zorder=1)
    for row, e in zip(rows, errors.values(), strict=True):
        at = 1e4 * e["leave_size_out"]
        axes.annotate(f"{at:.1f}", (min(at, edge), row), (0, 4), textcoords="offset points", ha="center", fontsize=6.5)
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
            "Every law of the final loss, fitted per router to the usual K and R with the dense runs as E = 1 (seeds "
            "averaged), best on top. Dots with numbers: leave-size-out, the error on each model size predicted from "
            "the others; bars: error on the points fitted; triangles: error on the largest size predicted from the "
            "smaller ones. In brackets the number of parameters; bold, the paper's law. Errors beyond the axis stand "
            "at its edge. Laws with fewer than two points for each parameter are not tried. The compute law reads "
            "FLOPs and total parameters, abnar2025 total parameters; both stand on the same points as the rest."
        ),
        draw=draw_law_ranking,
        on_release=(
            "K = 1, R = 1/2, six sizes, 1.3B the largest. Laws with an irreducible loss lead for every router; with as "
            "many parameters as the paper's law and no interaction of N and E, irreducible has about half its error. "
            "More parameters than that buy little here, and nothing for S-BASE."
        ),
    ),
)
