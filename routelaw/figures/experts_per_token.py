"""K against FLOPs: more experts per token lower the loss of a model, but is that what the FLOPs were best spent on?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import loss_curves, style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.selection import comparable, points_of, routed_techniques, usual_of, with_columns
from routelaw.fitting.points import Points
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of

WIDENED = "flop_increase"
"""The variant of a dense model whose FFWs are so many times as wide."""
Filling = Literal["full", "left", "none", "right", "bottom", "top"]
K_FILLINGS: tuple[Filling, ...] = ("full", "left", "none", "right", "bottom", "top")
"""Filling of the mark for each K, ascending: the colour says which router it is."""
SIZE_LINES: tuple[tuple[str, Filling], ...] = (("-", "full"), ("--", "none"), (":", "left"), ("-.", "bottom"))
"""Line and filling for each size that is compared, the largest first."""


@dataclass(frozen=True, eq=False)
class Families:
    """Dense models by how far their FFWs are widened, and the models of one router at every K, all at the usual R."""

    router: str
    dense: dict[int, Points]
    """By factor; 1 for the plain ones. Empty where there are none."""
    routed: Points
    ks: tuple[int, ...]
    experts: tuple[int, ...]
    """Expert counts with several K at some size."""
    sizes: tuple[str, ...]
    """Sizes with several K, smallest first."""

    @property
    def least_k(self) -> int:
        return self.ks[0]

    @property
    def widened(self) -> tuple[int, ...]:
        return tuple(factor for factor in self.dense if factor > 1)

    @property
    def experts_drawn(self) -> int:
        return self.experts[len(self.experts) // 2]

    def models(self, experts: int, k: int) -> Points:
        return self.routed.where((self.routed.x["experts"] == experts) & (self.routed.x["k"] == k))


@lru_cache(maxsize=2)
def families(table: RunTable) -> Families:
    """The models by K of the router with most models of several K; raises where there is none."""
    found = []
    for router in routed_techniques(comparable(table)):
        points = points_of(table, router, include_dense=False, mixed=True)
        points = points.where(np.isclose(points.x["routing_frequency"], usual_of(table).routing_frequency))
        several: dict[tuple[str, int], set[int]] = {}
        for size, experts, k in zip(points.size, points.x["experts"], points.x["k"], strict=True):
            several.setdefault((size, int(experts)), set()).add(int(k))
        cells = {cell: ks for cell, ks in several.items() if len(ks) > 1}
        if cells:
            found.append((sum(map(len, cells.values())), router, points, cells))
    if not found:
        raise CannotDraw("no router was trained with several K, the same size, expert count and R otherwise.")
    _, router, points, cells = max(found, key=lambda row: row[0])
    with_columns(points, "flops_per_token")
    ks = sorted(set.union(*cells.values()))
    dense = _dense(table)
    sizes = [size for size in points.sizes if any(size == of for of, _ in cells)]
    return Families(router, dense, points, tuple(ks), tuple(sorted({e for _, e in cells})), tuple(sizes))


def _dense(table: RunTable) -> dict[int, Points]:
    """Plain dense models, and those whose FFWs alone were widened."""
    runs = comparable(table).frame
    variants = runs["variant"][runs["router"] == "dense"].unique()
    factors = {}
    for variant in variants:
        parts = parts_of(variant)
        if set(parts) == {WIDENED} and re.fullmatch(r"[1-9]\d{0,3}", parts[WIDENED]):
            factors[int(parts[WIDENED])] = variant
    named = ({1: ""} if "" in variants else {}) | dict(sorted(factors.items()))
    return {f: with_columns(points_of(table, "dense", variant=v), "flops_per_token") for f, v in named.items()}


def excess_at_equal_flops(flops: Array, loss: Array, points: Points) -> Array:
    """log10 of each loss over the loss that `points` reach at the same FLOPs, interpolated in log-log."""
    order = np.argsort(points.x["flops_per_token"])
    known = np.log10(points.x["flops_per_token"][order]), points.log_loss[order]
    return np.log10(loss) - np.interp(np.log10(flops), *known)


def front(cheapest: Points, others: list[Points]) -> tuple[Array, Array]:
    """FLOPs and losses of the front: the line through `cheapest`, pulled down to those others that lie below it."""
    flops, loss = list(cheapest.x["flops_per_token"]), list(cheapest.loss)
    for points in others:
        below = excess_at_equal_flops(points.x["flops_per_token"], points.loss, cheapest) < 0
        flops += list(points.x["flops_per_token"][below])
        loss += list(points.loss[below])
    order = np.argsort(flops)
    return np.array(flops)[order], np.array(loss)[order]


def draw_k_against_flops(table: RunTable) -> Picture:
    found = families(table)
    every = [found.routed, *found.dense.values()]
    picture, axes = style.panels(3, width=3.5, height=3.3)
    _losses(axes[0], found, "active_params", 1e6)
    axes[0].set_xlabel("parameters N (millions)")
    sizes = {size: n for points in every for size, n, _ in points.by_size()}
    named = [_as_named(size, n) for size, n in sorted(sizes.items(), key=lambda item: item[1])]
    style.named_ticks(axes[0].xaxis, {n: f"{n:g}" for n in loss_curves.well_apart([n / 1e6 for n in named])})
    axes[0].legend(loc="lower left")
    flops = np.concatenate([points.x["flops_per_token"] for points in every])
    unit, name = loss_curves.flops_unit(flops.max())
    _losses(axes[1], found, "flops_per_token", unit)
    _fronts(axes[1], found, unit)
    axes[1].set_xlabel(f"forward {name} per token F")
    style.named_ticks(axes[1].xaxis, {v: f"{v:g}" for v in _flops_ticks(flops / unit)})
    for panel in axes[:2]:
        panel.set_ylabel(style.loss_label(found.routed.target))
    _excesses(axes[2], found)
    style.letter_panels(axes)
    return picture


def _as_named(size: str, active_params: float) -> float:
    """The number that the name of a size says, 370M, where it is about what the size has."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB])", size)
    named = float(match[1]) * {"K": 1e3, "M": 1e6, "B": 1e9}[match[2]] if match else 0.0
    return named if abs(named / active_params - 1) < 0.25 else float(f"{active_params:.3g}")


def _flops_ticks(flops: Array) -> list[float]:
    """1, 2, 5 and so on; 3 as well where the last one is 2 and there is more."""
    ticks = style.round_values(flops.min(), flops.max()) or [float(f"{flops.min():.2g}")]
    return [*ticks, 1.5 * ticks[-1]] if f"{ticks[-1]:e}".startswith("2") and flops.max() >= 1.5 * ticks[-1] else ticks


def _losses(axes: Axes, found: Families, column: str, unit: float) -> None:
    """The least K as a line over sizes; from it the models with more branch off, at the sizes that have them."""
    if 1 in found.dense:
        plain = found.dense[1]
        axes.plot(plain.x[column] / unit, plain.loss, label="Dense", **style.router_look("dense"))
    if column == "flops_per_token" and found.widened:  # they keep the N of the plain ones: over N they say nothing new
        look = style.router_look("dense")
        flops = np.concatenate([found.dense[factor].x[column] for factor in found.widened])
        loss = np.concatenate([found.dense[factor].loss for factor in found.widened])
        axes.plot(flops / unit, loss, linestyle="", fillstyle="none", label="Dense, FFWs widened", **look)
    look = style.router_look(found.router, markersize=5.5)
    by_k = {k: found.models(found.experts_drawn, k) for k in found.ks}
    for size in found.sizes:
        branch = [own for points in by_k.values() if len(own := points.where(points.size == size))]
        axes.plot([p.x[column][0] / unit for p in branch], [p.loss[0] for p in branch], "--", color=look["color"], lw=1)
    for k, filling in zip(found.ks, K_FILLINGS, strict=False):
        axes.plot(
            by_k[k].x[column] / unit,
            by_k[k].loss,
            linestyle="-" if k == found.least_k else "",
            fillstyle=filling,
            markerfacecoloralt="white",
            label=f"{style.router_label(found.router)} {found.experts_drawn}E, K = {k}",
            **look,
        )
    axes.set_xscale("log")
    style.log_loss_axis(axes, loss_curves.loss_ticks(*axes.dataLim.intervaly))


def _fronts(axes: Axes, found: Families, unit: float) -> None:
    one, *more = (found.models(found.experts_drawn, k) for k in found.ks)
    fronts = [front(one, more)] if len(one) else []
    if 1 in found.dense:
        fronts.insert(0, front(found.dense[1], [found.dense[factor] for factor in found.widened]))
    look = {"color": style.OTHER_COLOURS[0], "linewidth": 5, "alpha": 0.45, "solid_joinstyle": "round", "zorder": 1}
    for i, (flops, loss) in enumerate(fronts):
        axes.plot(flops / unit, loss, label=None if i else "Front", **look)
    named = [h for h in axes.get_lines() if h.get_label() in ("Dense, FFWs widened", "Front")]
    axes.legend(loc="lower left", handles=named)


def _excesses(axes: Axes, found: Families) -> None:
    """Percent above (worse) or below (better) a model with the least K and the same FLOPs, by K."""
    shades = style.tints(style.router_colour(found.router), len(found.experts))
    label, mark = style.router_label(found.router), style.router_mark(found.router)
    series: list[tuple[str, str, str, int | None]] = [
        (f"{label} {e}E", shade, mark, e) for e, shade in zip(found.experts, shades, strict=True)
    ]
    if found.widened:
        series.append(("Dense, FFWs widened", style.router_colour("dense"), style.router_mark("dense"), None))
    looks = dict(zip(reversed(found.sizes), SIZE_LINES, strict=False))
    shown = [size for size in found.sizes if size in looks]
    for label, colour, mark, experts in series:
        factors = found.ks[1:] if experts is not None else found.widened
        for size in shown:
            line, filling = looks[size]
            found_at = {f: excess(found, experts, size, f) for f in factors}
            known = {f: e for f, e in found_at.items() if np.isfinite(e)}
            axes.plot(
                (found.least_k if experts is not None else 1, *known),
                [0.0, *known.values()],
                color=colour,
                marker=mark,
                linestyle=line,
                fillstyle=filling,
                label=label if size == shown[-1] else None,
            )
    for size in shown:
        axes.plot([], [], color=style.GREY, linestyle=looks[size][0], label=style.safe(size))
    axes.set_xscale("log", base=2)
    style.named_ticks(axes.xaxis, {factor: str(factor) for factor in sorted({*found.ks, *found.dense})})
    axes.set_xlabel("experts per token K, or times widened" if found.widened else "experts per token K")
    axes.set_ylabel(f"loss over that of K = {found.least_k} at equal FLOPs (%)")
    axes.legend(loc="upper left")


def excess(found: Families, experts: int | None, size: str, factor: int) -> float:
    """The excess of one model, or of the dense one widened `factor` times (no `experts`); NaN without such a model, or
    none with the least K at least as costly."""
    if experts is None:
        reference, others = found.dense.get(1), found.dense[factor]
    else:
        reference, others = found.models(experts, found.least_k), found.models(experts, factor)
    point = others.where(others.size == size)
    if reference is None or not len(point) or not len(reference):
        return np.nan
    known = reference.x["flops_per_token"]
    if not known.min() <= point.x["flops_per_token"][0] <= known.max():
        return np.nan
    return 100 * float(10 ** excess_at_equal_flops(point.x["flops_per_token"], point.loss, reference)[0] - 1)


FIGURES = (
    Figure(
        name="k_against_flops",
        title="More experts per token: loss by parameters and by FLOPs",
        caption=(
            "The router with most models of several K beside dense models, at one expert count: final loss over "
            "parameters N (a), which K does not change, and over forward FLOPs per token F (b). The front drawn is the "
            "line through the least K, straight in log-log between sizes, pulled down to the runs below it, and (c) "
            "shows how far runs lie above or below that line, by expert count, and dense models with widened FFWs, "
            "where there are any, against plain ones. Below zero the FLOPs were better spent on K than on size. Models "
            "that cost more than the largest with the least K have nothing to be compared with and are left out of "
            "(c). Sizes scatter about a power law by a few tenths of a percent themselves, so smaller distances say "
            "nothing."
        ),
        draw=draw_k_against_flops,
        paper="Appendix figure scaling-per-k",
        on_release=(
            "S-BASE with K = 1, 2, 4; (a) and (b) with 64 experts, (c) with 8, 64 and 256. At equal N a higher K is "
            "always better. Taken literally every S-BASE run in (b) is on the Pareto front, for none is both cheaper "
            "and better than another. With 8 experts K = 1 is the front, as the paper says; with 64 experts K = 2 is "
            "even with it; with 256 experts K = 2 lies more than half a percent below, and K = 4 is not above: the "
            "paper shows 64 experts and reports the same for other counts. The release has K = 2 and 4 at 25M and 370M "
            "only, and no S-BASE model of 130M with 256 experts."
        ),
    ),
)
