"""How often to route: every block, every other, every fourth, or one block alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.fitting.points import Points, select_points
from routelaw.runs.table import RunTable
from routelaw.specs.sizes import PAPER_SIZES

ROUTERS = ("s-base", "hash")
SIZE_LOOKS = {"25M": ("--", "none"), "370M": ("-", "full")}
"""Line and filling of the mark for each size: the colour says which router it is."""
EXPERTS = (8, 64, 256)


def frequency_points(table: RunTable, router: str, size: str, variant: str = "") -> Points:
    """The K = 1 runs of one router and size at every R; the dense model is not among them."""
    points = select_points(table, router, include_dense=False, mixed=True, variant=variant)
    return points.where((points.x["k"] == 1) & (points.size == size))


def frequency_axis(axes: Axes, frequencies: tuple[Fraction, ...]) -> None:
    """Logarithmic R, its values named as fractions of the blocks."""
    axes.set_xscale("log", base=2)
    style.named_ticks(axes.xaxis, {float(f): str(f) for f in frequencies})
    axes.set_xlabel("share of blocks routed R")


def plot_over_frequency(axes: Axes, points: Points, **look) -> None:
    order = np.argsort(points.x["routing_frequency"])
    axes.plot(points.x["routing_frequency"][order], points.loss[order], **look)


def draw_routing_frequency(table: RunTable) -> Picture:
    picture, axes = style.panels(len(EXPERTS), width=3.1, height=3.2, sharey=True)
    for panel, experts in zip(axes, EXPERTS, strict=True):
        for router in ROUTERS:
            for size, (line, filling) in SIZE_LOOKS.items():
                points = frequency_points(table, router, size)
                look = style.router_look(router, linestyle=line, fillstyle=filling)
                chosen, label = points.where(points.x["experts"] == experts), f"{style.router_label(router)} {size}"
                plot_over_frequency(panel, chosen, label=label, **look)
        frequency_axis(panel, tuple(Fraction(1, n) for n in (12, 8, 4, 2, 1)))
        panel.set_title(f"E = {experts}")
    axes[0].set_ylabel("validation loss (nats per token)")
    axes[0].legend(loc="center left")
    return picture


def draw_one_routed_layer(table: RunTable) -> Picture:
    picture, axes = style.panels(len(SIZE_LOOKS), width=3.9, height=3.3)
    for panel, size in zip(axes, SIZE_LOOKS, strict=True):
        blocks = PAPER_SIZES[size].blocks
        dense = select_points(table, "dense", sizes=(size,))
        panel.axhline(dense.loss[0], color=style.router_colour("dense"), linewidth=0.9, label="Dense")
        for router in ROUTERS:
            points = frequency_points(table, router, size)
            for routed, line, filling in ((1, "-", "full"), (blocks // 2, ":", "none")):
                alone = np.isclose(points.x["routing_frequency"], routed / blocks)
                chosen = points.where(alone & np.isin(points.x["experts"], EXPERTS))
                look = style.router_look(router, linestyle=line, fillstyle=filling)
                label = f"{style.router_label(router)}, {'one block' if routed == 1 else 'every other block'}"
                panel.plot(chosen.x["experts"], chosen.loss, label=label, **look)
        style.experts_axis(panel, EXPERTS)
        panel.set_xlim(6, 340)
        panel.set_title(f"{size} ({blocks} blocks)")
        panel.set_ylabel("validation loss (nats per token)")
    style.legend_of(axes[0], picture)
    return picture


FIGURES = (
    Figure(
        name="routing_frequency",
        title="Loss by how many blocks are routed",
        caption=(
            "Final validation loss of S-BASE and HASH when all blocks, every other, every fourth or a single block "
            "(R = 1/L; L is 8 at 25M and 12 at 370M) is routed, for 8, 64 and 256 experts, K = 1. S-BASE gains from "
            "every step in R; HASH gains less and less, and at 370M with 64 and 256 experts R = 1 is worse than 1/2. "
            "The points at R = 1/2 are those of the main sweep. S-BASE at 25M with one routed block exists for 8 "
            "experts only: the runs so labelled with 64 and 256 experts are read as shared decisions (see that "
            "figure). The paper states that HASH has the lowest loss with one routed block; in the released runs "
            "S-BASE is a little lower wherever both exist."
        ),
        draw=draw_routing_frequency,
        paper="Appendix figure routing_freq",
    ),
    Figure(
        name="one_routed_layer",
        title="One routed block: S-BASE against HASH",
        caption=(
            "Final validation loss over experts when only the last block but one is routed (R = 1/L, filled marks), "
            "with the same models routed in every other block (open marks) and the dense model for scale. With one "
            "routed block HASH and S-BASE are nearly equal at every expert count; the distance between them opens with "
            "the number of routed blocks. At 25M the release has this S-BASE run with 8 experts only. The second panel "
            "of the paper's figure (three FFWs per expert at 1.3B) was not released."
        ),
        draw=draw_one_routed_layer,
        paper="Appendix figure num_expert_layers (a)",
    ),
)
