"""Does routing still help at the largest size, and up to which size would it?"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.lengths import evaluations, length_name
from routelaw.figures.loss_curves import metric_formatter, params_axis, routed_techniques
from routelaw.figures.matched import (
    WEIGHT,
    experts_axis,
    in_order,
    legend_once,
    legend_panels,
    loss_label,
    matched_runs,
    noise_name,
    noise_sd,
)
from routelaw.fitting.claims import Effect, student
from routelaw.fitting.matched_runs import PERCENT, VALIDATION, MatchedRuns
from routelaw.fitting.noise import SAME_LENGTH
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of
from routelaw.specs.names import DENSE

FEWEST_SIZES = 3
"""Sizes, from which the gain is drawn on as a straight line in log N."""
FARTHEST = 1e3
"""Times the largest size beyond which a line is not followed."""
SIDE_BY_SIDE = 1.06
"""Factor in N between the marks of two routers of one size."""
MOST_DIGITS = 300.0
MODEL = ["router", "size", "experts"]


def losses_at_one_length(runs: MatchedRuns) -> tuple[pd.Series, float]:
    """log10 L by (router, size, E), seeds averaged, and after how many tokens or steps: the most that most sizes have
    in common; NaN where the table does not count them.

    A run counts with its evaluation there, within 5 %; of one model's runs of several lengths the nearest length does.
    """
    rows, unit = evaluations(runs)
    if not unit:
        return _mean(one_variant(runs.finals)), np.nan
    rows = one_variant(rows[rows["progress"] > 0])
    ends = sorted(rows.groupby("run_id")["progress"].max().unique(), reverse=True)
    compared = [(len(sizes_compared(_at(rows, end))), end) for end in ends]
    end = max(compared, default=(0, np.nan))[1]
    near = _at(rows, end)
    distance = np.abs(np.log(near["length"] / end))
    nearest = distance.groupby([near[name] for name in MODEL]).transform("min")
    return _mean(near[distance <= nearest + np.log(SAME_LENGTH)]), float(end)


def _at(rows: pd.DataFrame, end: float) -> pd.DataFrame:
    """The evaluation of each run that is nearest to this progress, within 5 %."""
    off = np.abs(np.log(rows["progress"] / end))
    near = rows.assign(off=off)[off <= np.log(SAME_LENGTH)].sort_values("off", kind="stable")
    return near.groupby("run_id").head(1)


def sizes_compared(rows: pd.DataFrame) -> set[str]:
    """Sizes that have a dense and a routed model."""
    dense = rows["router"] == DENSE
    return set(rows["size"][dense]) & set(rows["size"][~dense])


def _mean(rows: pd.DataFrame) -> pd.Series:
    return rows.assign(value=rows[VALIDATION].astype(float).map(np.log10)).groupby(MODEL)["value"].mean()


def one_variant(rows: pd.DataFrame) -> pd.DataFrame:
    """The usual variant of each model; where a size has none, the one whose weights alone are others: the largest are
    trained once, with weights of their own."""
    model = rows.groupby(MODEL)["variant"]
    has_usual = model.transform(lambda own: (own == "").any()).astype(bool)
    alone = model.transform("nunique") == 1
    weights = [all(key.endswith(WEIGHT) for key in parts_of(str(variant))) for variant in rows["variant"]]
    return rows[(rows["variant"] == "") | (~has_usual & alone & np.array(weights, bool))]


def gains_over_dense(losses: pd.Series) -> pd.Series:
    """Δ(N, E): log10 of the dense model's loss over the routed one's, by (router, size, E)."""
    dense = losses[losses.index.get_level_values("router") == DENSE].droplevel(["router", "experts"])
    routed = losses[losses.index.get_level_values("router") != DENSE]
    beside = dense.reindex(routed.index.get_level_values("size")).to_numpy(float)
    return (-routed + beside).dropna()


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    losses, end = losses_at_one_length(runs)
    gains = gains_over_dense(losses) if len(losses) else losses
    if gains.empty:
        raise CannotDraw("No size has a dense and a routed model that were trained equally long.")
    largest = in_order(runs, gains.index.get_level_values("size"))[-1]
    at_largest = gains.xs(largest, level="size")
    routers = [router for router in routed_techniques(table) if router in at_largest.index.get_level_values("router")]
    most = {router: int(at_largest[router].index.max()) for router in routers}
    picture, (left, middle, right) = legend_panels(3, width=3.4, height=3.3, legend=2.4)
    shown = {router: gains[router].xs(experts, level="experts") for router, experts in most.items()}
    _draw_losses(left, runs, losses, most)
    left.set_ylabel(loss_label(table))
    _draw_gains(middle, runs, shown)
    _draw_experts(right, runs, largest, at_largest, most)
    if np.isfinite(end):
        left.set_title(f"after {length_name(end, 'tokens' if table.frame['tokens'].notna().all() else 'step')}")
    style.letter_panels((left, middle, right))
    legend_once(right, left, middle)
    return picture


def _draw_losses(axes: Axes, runs: MatchedRuns, losses: pd.Series, most: dict[str, int]) -> None:
    routed = {router: losses[router].xs(experts, level="experts") for router, experts in most.items()}
    compared = set().union(*(own.index for own in routed.values()))
    dense = losses[DENSE].droplevel("experts")
    for router, own in ((DENSE, dense[dense.index.isin(compared)]), *routed.items()):
        sizes = in_order(runs, own.index)
        name = style.router_label(router) + (f", E = {most[router]}" if router in most else "")
        axes.plot([runs.active_params[s] for s in sizes], 10 ** own[sizes], label=name, **style.router_look(router))
    params_axis(axes, "active parameters N")


def _draw_gains(axes: Axes, runs: MatchedRuns, shown: dict[str, pd.Series]) -> None:
    """Routers side by side at each size, so that their bars can be told apart."""
    axes.axhline(0, color=style.router_colour(DENSE), linewidth=0.8)
    for place, (router, own) in enumerate(shown.items()):
        sizes = in_order(runs, own.index)
        active = np.array([runs.active_params[size] for size in sizes])
        half = [PERCENT * noise_sd(runs, size, 2) for size in sizes]
        look = style.router_look(router, linestyle="none", capsize=2, elinewidth=0.8)
        apart = SIDE_BY_SIDE ** (place - (len(shown) - 1) / 2)
        axes.errorbar(active * apart, PERCENT * own[sizes], half if all(half) else None, **look)
        if len(sizes) >= FEWEST_SIZES:
            _draw_line(axes, active, own[sizes].to_numpy(float), router)
    params_axis(axes, "active parameters N")
    axes.set_ylabel("gain Δ(N, E) over the dense model (%)")


def _draw_line(axes: Axes, active: Array, gains: Array, router: str) -> None:
    """The gain as a straight line in log N, on to where it is zero."""
    line, zero = stops_helping(active, gains)
    last = float(active.max())
    known = active.min() < zero.value < FARTHEST * last
    x = np.geomspace(active.min(), max(zero.value, last) if known else last, 40)
    label = f"{style.router_label(router)}: 0 at N = {_count(zero.value)}\n({_ends(zero, last)})" if known else None
    axes.plot(x, PERCENT * np.polyval(line, np.log10(x)), ":", color=style.router_colour(router), label=label)


def stops_helping(active: Array, gains: Array) -> tuple[Array, Effect]:
    """Slope and level of the gain in log10 N, and the size at which it reaches zero: infinite where it does not fall.

    Its interval are the sizes at which the line's own 90 % interval (Student's, of the regression) contains zero: it
    may be open.
    """
    x = np.log10(active)
    line = np.polyfit(x, gains, 1)
    zero = 10 ** min(-line[1] / line[0], MOST_DIGITS) if line[0] < 0 else np.inf
    if len(x) < FEWEST_SIZES:
        return line, Effect(float(zero))
    sd = np.sqrt(((gains - np.polyval(line, x)) ** 2).sum() / (len(x) - 2))
    grid = np.linspace(x.min() - np.log10(FARTHEST), x.max() + np.log10(FARTHEST), 2001)
    error = sd * np.sqrt(1 / len(x) + (grid - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum())
    inside = grid[np.abs(np.polyval(line, grid)) <= student(len(x) - 2) * error]
    if not len(inside):
        return line, Effect(float(zero), float(zero), float(zero))
    low = 10 ** inside[0] if inside[0] > grid[0] else 0.0
    return line, Effect(float(zero), float(low), float(10 ** inside[-1]) if inside[-1] < grid[-1] else np.inf)


def _ends(zero: Effect, last: float) -> str:
    """The interval in words; an end that is thousands of times off is none."""
    low = _count(zero.low) if zero.low > last / FARTHEST else ""
    high = _count(zero.high) if zero.high < FARTHEST * last else ""
    if low and high:
        return f"90 %: {low} … {high}"
    return f"90 %: above {low}" if low else f"90 %: below {high}" if high else "90 %: anywhere"


def _count(value: float) -> str:
    return metric_formatter()(float(f"{value:.2g}"))


def _draw_experts(axes: Axes, runs: MatchedRuns, size: str, gains: pd.Series, routers: Iterable[str]) -> None:
    axes.axhline(0, color=style.router_colour(DENSE), linewidth=0.8)
    half = PERCENT * noise_sd(runs, size, 2)
    for router in routers:
        own = gains[router].sort_index()
        look = style.router_look(router, capsize=2, elinewidth=0.8)
        axes.errorbar(own.index, PERCENT * own, half or None, **look)
    if half:
        axes.plot([], [], "|", color=style.GREY, markersize=10, label=noise_name(runs, size))
    experts_axis(axes, gains.index.get_level_values("experts"))
    axes.set_ylabel(f"gain at {size} (%)")


FIGURES = (
    Figure(
        name="limit",
        title="Does routing still help at the largest size?",
        caption=(
            "(a) Loss of dense models and of each router with the most experts that it has at the largest size, all "
            "after equally many tokens: the most that the sizes have in common. A size without a usual model counts "
            "with the one whose weights of the losses alone are its own. (b) Their gain Δ(N, E) by size, dense over "
            "routed loss; bars are one standard deviation of the difference of two runs by the noise of seeds. "
            "Dotted: a straight line in log N, as a law that is bilinear in log N and log E has it, followed up to "
            "where it reaches zero: there routing would stop helping. That is an extrapolation, with the interval of "
            "the straight line. (c) The gain at the largest size by E."
        ),
        draw=draw,
        paper="Appendix figure 7b_scaling",
        released=False,
    ),
)
