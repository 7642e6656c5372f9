"""One routing decision for all blocks: what is left of S-BASE when it may decide only once."""

from __future__ import annotations

from fractions import Fraction

from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.routing_frequency import ROUTERS, frequency_axis, frequency_points, plot_over_frequency
from routelaw.runs.clark2022 import SHARED_DECISIONS
from routelaw.runs.table import RunTable

SIZE = "25M"
EXPERTS = (64, 256)
FREQUENCIES = tuple(Fraction(1, n) for n in (8, 4, 2, 1))


def draw_shared_decisions(table: RunTable) -> Picture:
    picture, axes = style.panels(len(EXPERTS), width=3.3, height=3.0, sharey=True)
    series = [(r, "", style.router_look(r, label=style.router_label(r))) for r in ROUTERS]
    shared = {"color": style.GREY, "marker": "o", "label": "S-BASE, decisions shared"}
    series.append(("s-base", SHARED_DECISIONS, shared))
    for panel, experts in zip(axes, EXPERTS, strict=True):
        for router, variant, look in series:
            points = frequency_points(table, router, SIZE, variant)
            chosen = points.where(points.x["experts"] == experts)
            plot_over_frequency(panel, chosen, **look)
        frequency_axis(panel, FREQUENCIES)
        panel.set_title(f"{SIZE}, E = {experts}")
    axes[0].set_ylabel("validation loss (nats per token)")
    axes[-1].legend(loc="upper right")
    return picture


FIGURES = (
    Figure(
        name="shared_decisions",
        title="Routing decisions shared by all blocks",
        caption=(
            "Final validation loss of 25M models over the share of routed blocks. Grey: S-BASE whose first routed "
            "block decides for all the others. It falls back to the losses of HASH, which decides once by the token "
            "itself: what S-BASE gains over HASH it gains by deciding anew in every block. The grey points rest on an "
            "inference: six S-BASE runs of the release carry routing frequencies that contradict their losses, and "
            "read as this ablation, at R = 1/4, 1/2 and 1, they fit. S-BASE itself has no run with one routed block "
            "here."
        ),
        draw=draw_shared_decisions,
        paper="Appendix figure single_expert_freq",
    ),
)
