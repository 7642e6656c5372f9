"""How often to route: every block, every other, every fourth, or one block alone."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.selection import comparable, for_each_routed, points_of, target_of, usual_of
from routelaw.fitting.points import Points
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE
from routelaw.specs.sizes import NAMED_SIZES

LARGEST_FRACTION = 64
"""R is named as a fraction of so many blocks at most."""
SIZE_LOOKS = (("-", "full"), ("--", "none"), (":", "left"), ("-.", "bottom"))
"""Line and filling of the mark for each size, the largest first: the colour says which router it is."""
LEAST_FREQUENCIES = 2


def frequency_points(table: RunTable, router: str, size: str, variant: str = "") -> Points:
    """The runs of one router and size at the usual K and every R; the dense model is not among them."""
    points = points_of(table, router, include_dense=False, mixed=True, variant=variant)
    return points.where((points.x["k"] == usual_of(table).k) & (points.size == size))


def several_frequencies(table: RunTable, router: str) -> set[tuple[str, int]]:
    """The (size, E) that a router has at several R."""
    points = points_of(table, router, include_dense=False, mixed=True)
    points = points.where(points.x["k"] == usual_of(table).k)
    seen: dict[tuple[str, int], set[float]] = {}
    for size, experts, frequency in zip(points.size, points.x["experts"], points.x["routing_frequency"], strict=True):
        seen.setdefault((size, int(experts)), set()).add(frequency)
    cells = {cell for cell, frequencies in seen.items() if len(frequencies) >= LEAST_FREQUENCIES}
    if not cells:
        raise CannotDraw(f"{router} was not trained with several R, the same size and expert count otherwise.")
    return cells


def sizes_in_order(table: RunTable, sizes: set[str]) -> list[str]:
    order = comparable(table).frame.sort_values("active_params")["size"].unique()
    return [size for size in order if size in sizes]


def size_looks(sizes: list[str]) -> dict[str, tuple[str, str]]:
    """For the sizes, of which there are looks for the largest only."""
    looks = dict(zip(reversed(sizes), SIZE_LOOKS, strict=False))
    return {size: looks[size] for size in sizes if size in looks}


def named_fractions(frequencies: set[float]) -> tuple[Fraction, ...]:
    return tuple(sorted({Fraction(f).limit_denominator(LARGEST_FRACTION) for f in frequencies}))


def frequency_axis(axes: Axes, frequencies: tuple[Fraction, ...]) -> None:
    """Logarithmic R, its values named as fractions of the blocks."""
    axes.set_xscale("log", base=2)
    style.named_ticks(axes.xaxis, {float(f): str(f) for f in frequencies})
    axes.set_xlabel("share of blocks routed R")


def plot_over_frequency(axes: Axes, points: Points, **look) -> None:
    order = np.argsort(points.x["routing_frequency"])
    axes.plot(points.x["routing_frequency"][order], points.loss[order], **look)


def draw_routing_frequency(table: RunTable) -> Picture:
    cells, _ = for_each_routed(table, lambda router: several_frequencies(table, router))
    every = set.union(*cells.values())
    experts = sorted({e for _, e in every})
    looks = size_looks(sizes_in_order(table, {size for size, _ in every}))
    colours = style.router_looks(cells)
    picture, axes = style.grid_of_panels(len(experts), width=3.1 if len(experts) > 1 else 4.2, height=3.2, sharey=True)
    seen = _frequencies(table, list(cells), list(looks), set(experts))
    for panel, count in zip(axes, experts, strict=True):
        for router in cells:
            for size, (line, filling) in looks.items():
                points = frequency_points(table, router, size)
                look = {**colours[router], "linestyle": line, "fillstyle": filling}
                label = f"{style.router_label(router)} {style.safe(size)}"
                plot_over_frequency(panel, points.where(points.x["experts"] == count), label=label, **look)
        frequency_axis(panel, named_fractions(seen))
        panel.set_title(f"E = {count}")
    axes[0].set_ylabel(style.loss_label(target_of(table)))
    axes[0].legend(loc="center left" if len(axes) > 2 else "best")
    return picture


def _frequencies(table: RunTable, routers: list[str], sizes: list[str], experts: set[int]) -> set[float]:
    points = [frequency_points(table, router, size) for router in routers for size in sizes]
    chosen = [p.x["routing_frequency"][np.isin(p.x["experts"], list(experts))] for p in points]
    return {float(f) for f in np.concatenate(chosen)}


def blocks_of(table: RunTable, size: str) -> int | None:
    """How many blocks a model of this size has, where the table says it, or the name of the size does."""
    frame = comparable(table).frame
    rows = frame[frame["size"] == size]
    for column in ("num_blocks", "blocks"):
        if column in rows and rows[column].notna().any():
            return int(rows[column].dropna().iloc[0])
    return NAMED_SIZES[size].blocks if size in NAMED_SIZES else None


def draw_one_routed_layer(table: RunTable) -> Picture:
    cells, _ = for_each_routed(table, lambda router: several_frequencies(table, router))
    usual = usual_of(table).routing_frequency
    shown: dict[str, float] = {}
    for size in sizes_in_order(table, {size for own in cells.values() for size, _ in own}):
        points = [frequency_points(table, router, size) for router in cells]
        lowest = min(float(p.x["routing_frequency"].min()) for p in points if len(p))
        blocks = blocks_of(table, size)
        if lowest < usual and (blocks is None or np.isclose(lowest, 1 / blocks)):
            shown[size] = lowest
    if not shown:
        raise CannotDraw(f"no size was trained with a single routed block beside the usual R = {usual:.3g}.")
    picture, axes = style.grid_of_panels(len(shown), width=3.9, height=3.3)
    looks = style.router_looks(cells)
    for panel, (size, lowest) in zip(axes, shown.items(), strict=True):
        blocks, label = blocks_of(table, size), style.safe(size)
        try:
            dense = points_of(table, DENSE, sizes=(size,))
            panel.axhline(dense.loss[0], color=style.router_colour(DENSE), linewidth=0.9, label="Dense")
        except CannotDraw:  # the dense model is there for scale alone
            pass
        experts = {e for own in cells.values() for s, e in own if s == size}
        for router in cells:
            points = frequency_points(table, router, size)
            for frequency, line, filling in ((lowest, "-", "full"), (usual, ":", "none")):
                alone = np.isclose(points.x["routing_frequency"], frequency)
                chosen = points.where(alone & np.isin(points.x["experts"], list(experts)))
                look = {**looks[router], "linestyle": line, "fillstyle": filling}
                named = f"{style.router_label(router)}, {_in_words(frequency, blocks)}"
                panel.plot(chosen.x["experts"], chosen.loss, label=named, **look)
        style.experts_axis(panel, tuple(sorted(experts)))
        panel.set_xlim(0.75 * min(experts), 1.328125 * max(experts))
        panel.set_title(f"{label} ({blocks} blocks)" if blocks else label)
        panel.set_ylabel(style.loss_label(target_of(table)))
    style.legend_of(axes[0], picture)
    return picture


def _in_words(frequency: float, blocks: int | None) -> str:
    if np.isclose(frequency, 0.5):
        return "every other block"
    if blocks and np.isclose(frequency, 1 / blocks):
        return "one block"
    return f"R = {Fraction(frequency).limit_denominator(LARGEST_FRACTION)}"


FIGURES = (
    Figure(
        name="routing_frequency",
        title="Loss by how many blocks are routed",
        caption=(
            "Final loss of the routers that were trained with several R at one size and expert count, over the share "
            "of blocks that is routed: 1 for all of them, 1/L for a single block of L. The usual K; the points at the "
            "usual R are those of the main sweep."
        ),
        draw=draw_routing_frequency,
        paper="Appendix figure routing_freq",
        on_release=(
            "S-BASE and HASH, K = 1, all blocks, every other, every fourth or a single block (L is 8 at 25M and 12 at "
            "370M), for 8, 64 and 256 experts. S-BASE gains from every step in R; HASH gains less and less, and at "
            "370M with 64 and 256 experts R = 1 is worse than 1/2. S-BASE at 25M with one routed block exists for 8 "
            "experts only: the runs so labelled with 64 and 256 experts are read as shared decisions (see that "
            "figure). The paper states that HASH has the lowest loss with one routed block; in the released runs "
            "S-BASE is a little lower wherever both exist."
        ),
    ),
    Figure(
        name="one_routed_layer",
        title="One routed block, router against router",
        caption=(
            "Final loss over experts when a single block is routed (R = 1/L, or the smallest R where the table does "
            "not say how many blocks L there are; filled marks), with the same models at the usual R (open marks) and "
            "the dense model for scale."
        ),
        draw=draw_one_routed_layer,
        paper="Appendix figure num_expert_layers (a)",
        on_release=(
            "S-BASE against HASH; the block routed is the last but one. With one routed block the two are nearly equal "
            "at every expert count; the distance between them opens with the number of routed blocks. At 25M the "
            "release has this S-BASE run with 8 experts only. The second panel of the paper's figure (three FFWs per "
            "expert at 1.3B) was not released."
        ),
    ),
)
