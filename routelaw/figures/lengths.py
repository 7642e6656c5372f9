"""The gain from experts against the length of training: along the schedule of each length, and at its end."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import LogLocator, NullFormatter

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import metric_formatter
from routelaw.figures.matched import (
    BESIDE,
    LINES,
    in_order,
    loss_label,
    matched_runs,
    noise_name,
    noise_sd,
)
from routelaw.fitting.matched_runs import VALIDATION, MatchedRuns, finished_runs, slopes_by_experts
from routelaw.runs.table import RunTable
from routelaw.runs.variants import usual_in
from routelaw.specs.names import DENSE

UNITS = {"tokens": "tokens", "step": "steps"}
"""What a column of the table counts."""
FEWEST_EXPERTS = 3
"""Values of E, a dense model's 1 among them, from which a slope is taken."""
FIRST_SHARE = 0.1
"""Share of its schedule from which on a run's losses are to fit into the picture."""


@dataclass(frozen=True)
class Lengths:
    """Models of one router and size, and the dense one as E = 1, that were trained for each length with the same E."""

    router: str
    size: str
    rows: pd.DataFrame
    """Evaluations after the first step: `experts`, `progress` (tokens, or steps), `length` and the loss."""

    @property
    def lengths(self) -> list[float]:
        return sorted(self.rows["length"].unique())


def evaluations(runs: MatchedRuns) -> tuple[pd.DataFrame, str]:
    """Evaluations of the finished runs of usual K and R, with `progress` and `length`, and what these count."""
    usual, rows = usual_in(runs.table), finished_runs(runs.table)
    plain = (rows["k"] == usual.k) & np.isclose(rows["routing_frequency"], usual.routing_frequency)
    rows = rows[(plain | (rows["router"] == DENSE)) & rows[VALIDATION].notna()]
    unit = next((name for name in ("tokens", "step") if rows[name].notna().all()), "")
    if not unit:
        return rows.iloc[:0].assign(progress=0.0, length=0.0), unit
    progress = rows[unit].astype(float)
    length = progress.groupby(rows["run_id"]).transform("max")
    if unit == "tokens":
        length = rows["tokens_planned"].astype(float).fillna(length)
    return rows.assign(progress=progress, length=length), unit


def several_lengths(rows: pd.DataFrame) -> list[Lengths]:
    """For each router and size that was trained for several lengths with the same E: these runs. Where there is none,
    the one that has the most E at one length, the smallest of several."""
    candidates = []
    for router, size in dict.fromkeys(zip(rows["router"], rows["size"], strict=True)):
        if router == DENSE:
            continue
        own = rows[rows["router"].isin([router, DENSE]) & (rows["size"] == size) & (rows["progress"] > 0)]
        experts = own.groupby("length")["experts"].agg(set)
        enough = {length: e for length, e in experts.items() if len(e) >= FEWEST_EXPERTS and 1 in e}
        common = set.intersection(*enough.values()) if enough else set()
        if len(common) >= FEWEST_EXPERTS:
            chosen = own[own["length"].isin(enough) & own["experts"].isin(common)]
            candidates.append(Lengths(str(router), str(size), chosen))
    several = [found for found in candidates if len(found.lengths) > 1]
    most_experts_first = sorted(candidates, key=lambda c: (-c.rows["experts"].nunique(), c.rows["active_params"].min()))
    return several or most_experts_first[:1]


def expert_slope_along(rows: pd.DataFrame) -> tuple[pd.DataFrame, float]:
    """b, the slope of log L in log E, at each progress (rows) for each length (columns); and how many times the noise
    of one run it has."""
    made: dict[Hashable, pd.Series] = {}
    noises = np.nan
    for length, own in rows.groupby("length"):
        loss = own.pivot_table(index="progress", columns="experts", values=VALIDATION).dropna()
        made[length], noises = slopes_by_experts(loss.astype(float).map(np.log10))
    return pd.DataFrame(made).sort_index(), noises


def gaps_by_length(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Loss of each router less that of the reference, in nats at the end, by length (rows) and (router, size, E)
    (columns), where both were trained for several lengths."""
    last = rows.sort_values("progress", kind="stable").groupby("run_id").tail(1)
    loss = last.pivot_table(index="length", columns=["router", "size", "experts"], values=VALIDATION)
    if reference not in loss.columns.get_level_values("router"):
        return pd.DataFrame()
    others = [r for r in dict.fromkeys(loss.columns.get_level_values("router")) if r not in (reference, DENSE)]
    gaps = {(r, *place): loss[r][place] - loss[reference][place]
            for r in others for place in loss[r].columns.intersection(loss[reference].columns)}  # fmt: skip
    return pd.DataFrame({key: gap for key, gap in gaps.items() if gap.notna().sum() > 1}).dropna(how="all")


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    rows, unit = evaluations(runs)
    rows = rows[rows["variant"] == ""]
    if not unit:
        raise CannotDraw("The table does not say after how many tokens or steps a loss was measured.")
    found = several_lengths(rows)
    if not found:
        raise CannotDraw("No router was trained with two E or more at a size that has a dense model of equal length.")
    sizes = in_order(runs, {each.size for each in found})
    found.sort(key=lambda each: (sizes.index(each.size), each.router))
    gaps = gaps_by_length(rows, max(found, key=lambda each: each.rows["run_id"].nunique()).router)
    columns = 2 + (not gaps.empty)
    picture, axes = style.panels(columns, len(found), width=4.9, height=3.2)
    for row, each in enumerate(found):
        left, right, *rest = axes[row * columns : (row + 1) * columns]
        _draw_losses(left, each, unit)
        left.set_ylabel(loss_label(table))
        _draw_slopes(right, runs, each, unit)
        for panel in (left, right):
            tokens_axis(panel, f"{UNITS[unit]} seen")
            panel.set_title(f"{style.router_label(each.router)}, {each.size}")
        for panel in rest:
            panel.set_visible(row == 0)
    if not gaps.empty:
        _draw_gaps(axes[columns - 1], gaps, max(found, key=lambda each: each.rows["run_id"].nunique()).router)
        tokens_axis(axes[columns - 1], f"{UNITS[unit]} of the whole schedule")
    return picture


def _draw_losses(axes: Axes, found: Lengths, unit: str) -> None:
    experts = sorted(found.rows["experts"].unique())
    shades = dict(zip(experts, style.shades(len(experts)), strict=True))
    late = found.rows[found.rows["progress"] >= FIRST_SHARE * found.rows["length"].min()]
    places = {length: place for place, length in enumerate(found.lengths)}
    for (e, _), own in found.rows.groupby(["experts", "length"]):
        line = own.groupby("progress")[VALIDATION].mean()
        dashes = LINES[places[float(own["length"].iloc[0])] % len(LINES)]
        axes.plot(line.index, line, dashes, color=shades[e], marker="o", markersize=2.5)
    for e, shade in shades.items():
        axes.plot([], [], color=shade, label="Dense" if e == 1 else f"E = {e}")
    for length, place in places.items():
        axes.plot([], [], LINES[place % len(LINES)], color=style.GREY, label=f"of {length_name(length, unit)}")
    low, high = float(found.rows[VALIDATION].min()), float(late[VALIDATION].max())
    room = 0.05 * max(high - low, 1e-3 * high)
    axes.set_ylim(low - room, high + room)
    axes.legend(**BESIDE)


def _draw_slopes(axes: Axes, runs: MatchedRuns, found: Lengths, unit: str) -> None:
    (slopes, noises), sd = expert_slope_along(found.rows), noise_sd(runs, found.size)
    for length, shade in zip(slopes.columns, style.shades(slopes.shape[1]), strict=True):
        own = slopes[length].dropna()
        axes.plot(own.index, own, "o-", markersize=3, color=shade, label=f"of {length_name(float(length), unit)}")
        if sd and len(own):
            axes.errorbar(own.index[-1], own.iloc[-1], sd * noises, color=shade, capsize=3)
    if sd:
        axes.plot([], [], "|", color=style.GREY, markersize=10, label=noise_name(runs, found.size))
    axes.set_ylabel("b, slope of log L in log E")
    axes.legend(**BESIDE)


def _draw_gaps(axes: Axes, gaps: pd.DataFrame, reference: str) -> None:
    axes.axhline(0, color="black", linewidth=0.8)
    for place, (router, size, experts) in enumerate(gaps.columns):
        own = gaps[router, size, experts].dropna()
        look = style.router_look(router, linestyle=LINES[place % len(LINES)], markersize=3)
        name = f"{style.router_label(router)}, {size}, E = {experts}"
        axes.plot(own.index.astype(float), own, label=name, **look)
    axes.set_ylabel(f"loss less that of {style.router_label(reference)} (nats)")
    axes.legend(**BESIDE)


def length_name(length: float, unit: str) -> str:
    """`131B tokens`."""
    return f"{metric_formatter()(float(f'{length:.3g}'))} {UNITS[unit]}"


def tokens_axis(axes: Axes, label: str) -> None:
    """Logarithmic tokens or steps, in the words people use."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(metric_formatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)


FIGURES = (
    Figure(
        name="lengths",
        title="The gain from experts against the length of training",
        caption=(
            "Left: loss along training by E, for schedules of each length. Right: slope b of log L in log E at every "
            "evaluation that all E had, the dense model as E = 1; the bar at the end of a schedule is one standard "
            "deviation of the noise of seeds. If the gain from experts were a matter of tokens alone, the curves of "
            "several lengths would coincide. Where several routers were trained for several lengths, the last panel "
            "has the difference of their losses at the end of each."
        ),
        draw=draw,
        paper="Appendix figure different_lengths",
        released=False,
    ),
)
