"""Loss curves with one colour per model size: the panel that most of the paper's figures are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from routelaw.figures import style
from routelaw.fitting import Fit, Points
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable

PAPER_ROUTERS = ("s-base", "rl-r", "hash")
CURVE_POINTS = 60

LineStyle = dict[str, Any]
"""Keywords of a line: how it looks."""
Colours = dict[str, tuple[float, float, float, float]]
Abscissa = Callable[[Points], Array]


def total_params(points: Points) -> Array:
    return points.x["total_params"]


def experts(points: Points) -> Array:
    return points.x["experts"]


def utilisation(points: Points) -> Array:
    """B = P/F: total parameters for each forward FLOP spent on a token."""
    return points.x["total_params"] / points.x["flops_per_token"]


def routed_techniques(table: RunTable) -> list[str]:
    """Routers of the table, the paper's three first and in its order."""
    routed = [router for router in table.routers if router != "dense"]
    return sorted(routed, key=lambda r: PAPER_ROUTERS.index(r) if r in PAPER_ROUTERS else len(PAPER_ROUTERS))


def size_colours(*selections: Points) -> Colours:
    """One colour per size, dark for the largest, the same in every panel of a figure."""
    counts = {s: n for p in selections for s, n in zip(p.size, p.x["active_params"], strict=True)}
    sizes = sorted(counts, key=counts.__getitem__)
    return dict(zip(sizes, style.shades(len(sizes)), strict=True))


def draw_points(
    axes: Axes, points: Points, colours: Colours, x_of: Abscissa = experts, *, joined: bool = False
) -> None:
    """The measured losses. The router's mark for all, since a dense run stands here as its E = 1."""
    mark = style.router_mark(points.router)
    for size, _, group in points.by_size():
        if joined:
            axes.plot(x_of(group), group.loss, color=colours[size], linewidth=1.0, alpha=0.8)
        axes.plot(x_of(group), group.loss, linestyle="none", marker=mark, color=colours[size], zorder=3)


def expert_grid(points: Points) -> Array:
    return np.geomspace(points.x["experts"].min(), points.x["experts"].max(), CURVE_POINTS)


def draw_law(axes: Axes, fit: Fit, colours: Colours | None = None, **line) -> None:
    """A law in (N, E) along E for every size of its points; in the sizes' colours unless `line` names one."""
    grid = expert_grid(fit.points)
    for size, active, _ in fit.points.by_size():
        colour: LineStyle = {"color": colours[size]} if colours else {}
        axes.plot(grid, fit.predict(active_params=active, experts=grid), **colour, **line)


def along_experts(group: Points) -> dict[str, Array]:
    """Costs of the models between a group's runs (one size, K and R): P and F are affine in E, so lines join them."""
    grid = expert_grid(group)
    return {
        "experts": grid,
        "active_params": np.full(grid.size, group.x["active_params"][0]),
        **{n: np.interp(grid, group.x["experts"], group.x[n]) for n in ("total_params", "flops_per_token")},
    }


def loss_axes(*panels: Axes, target: str = "loss_validation") -> None:
    """One logarithmic scale of loss for all panels: round values named, room for every line and point drawn."""
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for axes in panels for line in axes.lines])
    low, high = float(drawn.min()), float(drawn.max())
    room = max((high / low) ** 0.05, 1.001)
    for axes in panels:
        style.log_loss_axis(axes, loss_ticks(low, high), style.loss_label(target))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(low / room, high * room)


def loss_ticks(low: float, high: float, about: int = 7) -> tuple[float, ...]:
    """So many round losses from `low` to `high`, about."""
    ticks = MaxNLocator(about, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return tuple(float(t) for t in ticks if t > 0)


def experts_axis(axes: Axes) -> None:
    """Powers of two named, small enough to stand side by side in a narrow panel."""
    style.experts_axis(axes)
    axes.tick_params(axis="x", labelsize=7.5)


def sizes_axis(axes: Axes, *selections: Points) -> None:
    """Logarithmic N with the trained sizes named."""
    sizes = {n: s for p in selections for n, s in zip(p.x["active_params"], p.size, strict=True)}
    axes.set_xscale("log")
    style.named_ticks(axes.xaxis, {n: style.safe(str(sizes[n])) for n in well_apart(sorted(sizes))})
    axes.set_xlabel("active parameters N")


def well_apart(values: Sequence[float], least: float = 1.2) -> list[float]:
    """Those of the ordered values that fit on a logarithmic axis without overlap: each `least` times the last."""
    kept: list[float] = []
    for value in values:
        if not kept or value >= least * kept[-1]:
            kept.append(value)
    return kept


def utilisation_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(metric_formatter())
    axes.tick_params(axis="x", labelsize=7.5)
    axes.set_xlabel("B = P/F (parameters per forward FLOP)")


def metric_formatter() -> FuncFormatter:
    """1000000 as 1M: counts of parameters and of FLOPs in the words people use."""
    return FuncFormatter(lambda value, _: metric(value, 6))


def metric(value: float, digits: int = 3) -> str:
    """1310000 as 1.31M."""
    units = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))
    scale, unit = next((u for u in units if value >= u[0] * (1 - 1e-9)), (1.0, ""))
    return f"{float(f'{value / scale:.{digits}g}'):g}{unit}"


def params_axis(axes: Axes, label: str) -> None:
    """Logarithmic parameter count on x."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(metric_formatter())
    axes.tick_params(axis="x", labelsize=7.5)
    axes.set_xlabel(label)


def legend_below(picture: Picture, colours: Colours, lines: dict[str, LineStyle], mark: str = "o") -> None:
    """Sizes and kinds of line under the panels, where nothing is drawn; in one row if they fit."""
    handles = [Line2D([], [], color=c, marker=mark, linestyle="none", label=style.safe(s)) for s, c in colours.items()]
    handles += [Line2D([], [], label=label, **look) for label, look in lines.items()]
    columns = style.legend_columns([str(handle.get_label()) for handle in handles], picture)
    picture.legend(handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.2)


def flops_unit(most: float) -> tuple[float, str]:
    """The unit in which FLOPs up to `most` are short numbers."""
    units = ((1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "kFLOPs"))
    return next((u for u in units if most >= u[0]), (1.0, "FLOPs"))
