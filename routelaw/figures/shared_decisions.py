"""One routing decision for all blocks: what is left of a router when it may decide only once."""

from __future__ import annotations

from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.routing_frequency import (
    frequency_axis,
    frequency_points,
    named_fractions,
    plot_over_frequency,
    sizes_in_order,
)
from routelaw.figures.selection import comparable, for_each, points_of, routed_techniques, target_of, usual_of
from routelaw.runs.clark2022 import SHARED_DECISIONS
from routelaw.runs.table import RunTable

COMPARED = ("hash",)
"""Decides once for all blocks anyhow, by the token itself."""


def draw_shared_decisions(table: RunTable) -> Picture:
    frame = comparable(table).frame
    there = frame[frame["variant"] == SHARED_DECISIONS]
    if there.empty:
        raise CannotDraw("no router was trained with its decisions shared by all blocks and nothing else changed.")
    routers = [r for r in routed_techniques(table) if r in set(there["router"])]
    shared, _ = for_each(
        routers, lambda r: points_of(table, r, include_dense=False, mixed=True, variant=SHARED_DECISIONS)
    )
    k = usual_of(table).k
    cells = {
        (s, int(e))
        for p in shared.values()
        for s, e, own in zip(p.size, p.x["experts"], p.x["k"], strict=True)
        if own == k
    }
    order = sizes_in_order(table, {size for size, _ in cells})
    drawn = sorted(cells, key=lambda cell: (order.index(cell[0]), cell[1]))
    if not drawn:
        raise CannotDraw(f"no run with shared decisions has the usual K = {k}.")
    plain = [r for r in dict.fromkeys((*routers, *COMPARED)) if r in table.routers]
    compared, _ = for_each(plain, lambda router: points_of(table, router, include_dense=False, mixed=True))
    looks = style.router_looks(routed_techniques(table))
    series = [(r, "", {**looks[r], "label": style.router_label(r)}) for r in compared]
    for grey, router in zip(("#8c8c8c", "#4d4d4d", "#bfbfbf"), shared, strict=False):
        look = {
            "color": grey,
            "marker": looks[router]["marker"],
            "label": f"{style.router_label(router)}, decisions shared",
        }
        series.append((router, SHARED_DECISIONS, look))
    picture, axes = style.grid_of_panels(len(drawn), width=3.3 if len(drawn) > 1 else 4.2, height=3.0, sharey=True)
    seen: set[float] = set()
    for panel, (size, experts) in zip(axes, drawn, strict=True):
        for router, variant, look in series:
            points = frequency_points(table, router, size, variant)
            chosen = points.where(points.x["experts"] == experts)
            seen |= {float(f) for f in chosen.x["routing_frequency"]}
            plot_over_frequency(panel, chosen, **look)
        panel.set_title(f"{style.safe(size)}, E = {experts}")
    for panel in axes:
        frequency_axis(panel, named_fractions(seen))
    axes[0].set_ylabel(style.loss_label(target_of(table)))
    axes[-1].legend(loc="best")
    return picture


FIGURES = (
    Figure(
        name="shared_decisions",
        title="Routing decisions shared by all blocks",
        caption=(
            "Final loss over the share of routed blocks. Grey: the router whose first routed block decides for all the "
            "others, beside the same router that decides in every block, and HASH, which decides once by the token "
            "itself. Where the grey points fall back to HASH, what the router gains over HASH it gains by deciding "
            "anew in every block."
        ),
        draw=draw_shared_decisions,
        paper="Appendix figure single_expert_freq",
        on_release=(
            "25M models; the grey points are S-BASE, and do fall back to the losses of HASH. They rest on an "
            "inference: six S-BASE runs of the release carry routing frequencies that contradict their losses, and "
            "read as this ablation, at R = 1/4, 1/2 and 1, they fit. S-BASE itself has no run with one routed block "
            "here."
        ),
    ),
)
