"""Scaling coefficients while models train: each evaluation step fitted as if training had ended there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import selection, style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.fitting.noise import SAME_LENGTH
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable, last_rows
from routelaw.specs.names import DENSE

LEAST_STEPS, LEAST_SIZES, LEAST_EXPERTS = 2, 3, 3
THOUSANDS = 10_000
"""Steps from which on axes count thousands of them."""
SHOWN = "hash"
"""The router that is drawn at every size, where it can be."""


@dataclass(frozen=True)
class Slopes:
    """A straight line in log-log at every step. S steps."""

    step_S: Array
    slope_S: Array
    rmsle_S: Array
    """Root mean squared residual of log10 L."""


def size_slopes(table: RunTable) -> Slopes:
    """a in log L = a·log N + d over the dense models, seeds averaged, at each step."""
    return _slopes(table, "active_params", DENSE, least=LEAST_SIZES)


def expert_slopes(table: RunTable, router: str, size: str) -> Slopes:
    """b in log L = b·log E + d over the models of one size, the dense one included as E = 1, at each step."""
    return _slopes(table, "experts", router, size, least=LEAST_EXPERTS)


def _slopes(table: RunTable, column: str, router: str, size: str | None = None, *, least: int) -> Slopes:
    target, usual = selection.target_of(table), selection.usual_of(table)
    frame = selection.comparable(table).frame
    if frame["step"].isna().any():
        raise CannotDraw("the table has no column step.")
    usual_choice = (frame["k"] == usual.k) & np.isclose(frame["routing_frequency"], usual.routing_frequency)
    main = (frame["variant"] == "") & (usual_choice | (frame["router"] == DENSE))
    rows = frame[main & frame["router"].isin([router, DENSE]) & (frame["step"] > 0)].dropna(subset=[target])
    if size is not None:
        rows = rows[rows["size"] == size]
    rows = rows.assign(experts=rows["experts"].mask(rows["router"] == DENSE, 1))
    where = f"{router} {size or ''}".strip()
    if rows[column].nunique() < least:
        what = "sizes" if column == "active_params" else "expert counts (the dense run is one)"
        raise CannotDraw(f"{where} has {rows[column].nunique()} {what}, and {least} are needed.")
    loss = _with_ends(rows).pivot_table(index=column, columns="step", values=target, aggfunc="mean")
    loss = loss.dropna(axis="columns")  # a step counts where every model has a value
    if loss.shape[1] < LEAST_STEPS:
        raise CannotDraw(f"the runs of {where} were evaluated together at fewer than {LEAST_STEPS} steps.")
    log_x, log_loss = np.log10(loss.index.to_numpy(float)), np.log10(loss.to_numpy(float))
    slope_S, intercept_S = np.polyfit(log_x, log_loss, 1)
    residual = log_loss - np.outer(log_x, slope_S) - intercept_S
    return Slopes(loss.columns.to_numpy(float), slope_S, np.sqrt((residual**2).mean(axis=0)))


def _with_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows, each run's last one at one step: that of most runs. Last evaluations may be a few steps apart."""
    ends = last_rows(rows)
    steps = ends["step"].astype(float)
    if steps.nunique() == 1 or steps.max() > SAME_LENGTH * steps.min():
        return rows
    common = rows.groupby("step")["run_id"].nunique()
    common = common.index[(common == rows["run_id"].nunique()) & (common.index < steps.min())]
    before = rows[rows["step"] <= (common.max() if len(common) else 0)]
    return pd.concat([before, ends.assign(step=ends["step"].mode().min())])


def step_axis(axes: Axes, last: float) -> float:
    """Names the axis, in thousands of steps where there are many; returns the unit."""
    unit = 1e3 if last >= THOUSANDS else 1.0
    axes.set_xlabel("step (thousands)" if unit > 1 else "step")
    return unit


def draw_dense_along_training(table: RunTable) -> Picture:
    slopes = size_slopes(table)
    picture, axes = style.panels(2, width=3.3, height=2.9)
    look = style.router_look(DENSE, markersize=3)
    unit, _ = (step_axis(panel, slopes.step_S[-1]) for panel in axes)
    axes[0].plot(slopes.step_S / unit, slopes.slope_S, **look)
    axes[0].set_ylabel("a, slope in log N")
    axes[1].plot(slopes.step_S / unit, slopes.rmsle_S * 1e4, **look)
    axes[1].set_ylabel("RMSE of the fit (10⁻⁴ of log10 L)")
    axes[1].set_ylim(bottom=0)
    style.letter_panels(axes)
    return picture


def draw_experts_along_training(table: RunTable) -> Picture:
    smallest, by_router = _at_smallest_size(table)
    shown, by_size = _of_one_router(table, by_router)
    picture, axes = style.panels(2, width=3.6, height=3.1, sharey=True)
    last = max(s.step_S[-1] for s in [*by_router.values(), *by_size.values()])
    unit, _ = (step_axis(panel, last) for panel in axes)
    looks = style.router_looks(by_router)
    for router, slopes in by_router.items():
        label = style.router_label(router)
        axes[0].plot(slopes.step_S / unit, slopes.slope_S, markersize=3, label=label, **looks[router])
    axes[0].set_title(style.safe(smallest))
    for (size, slopes), shade in zip(by_size.items(), style.shades(len(by_size)), strict=True):
        axes[1].plot(slopes.step_S / unit, slopes.slope_S, color=shade, label=style.safe(size))
    axes[1].set_title(style.router_label(shown))
    axes[0].set_ylabel("b, slope in log E")
    for panel in axes:
        panel.legend(ncols=2)
    style.letter_panels(axes)
    return picture


def _sizes(table: RunTable) -> list[str]:
    return list(selection.comparable(table).frame.sort_values("active_params")["size"].unique())


def _at_smallest_size(table: RunTable) -> tuple[str, dict[str, Slopes]]:
    """The smallest size with expert counts enough, and the routers that have them there."""
    reason = "there are no finished runs."
    for size in _sizes(table):
        try:
            found, _ = selection.for_each_routed(table, lambda router, size=size: expert_slopes(table, router, size))
        except CannotDraw as error:
            reason = str(error)
            continue
        return size, found
    raise CannotDraw(reason)


def _of_one_router(table: RunTable, drawable: dict[str, Slopes]) -> tuple[str, dict[str, Slopes]]:
    router = SHOWN if SHOWN in drawable else next(iter(drawable))
    found, _ = selection.for_each(_sizes(table), lambda size: expert_slopes(table, router, size))
    return router, found


FIGURES = (
    Figure(
        name="dense_along_training",
        title="The dense power law along training",
        caption=(
            "(a) Slope a of log L = a·log N + d, fitted to the losses that all dense sizes have at the same step "
            "(seeds averaged); each run's last evaluation is drawn at one step. (b) Root mean squared residual of "
            "these fits in log10 L."
        ),
        draw=draw_dense_along_training,
        paper="Appendix figure bad_fits (a, b)",
        on_release=(
            "Six sizes, 130M the mean of three seeds, every 10,000 steps up to 240,000 and the last evaluation at "
            "249,000; the paper does not state the unit of its own residuals. The slope steepens throughout. The error "
            "falls almost throughout, to less than half; the paper finds intermediate steps to follow the power law "
            "about as well as later ones or better, with a seventh size, 870M, that was not released."
        ),
    ),
    Figure(
        name="experts_along_training",
        title="The gain from experts along training",
        caption=(
            "Slope b of log L = b·log E + d at one model size, over the losses of all expert counts at the same step, "
            "the dense model as E = 1: the routers at the smallest size that has expert counts enough (a), and one "
            "router at every size (b). Coefficients belong to a number of tokens: compare runs of one length."
        ),
        draw=draw_experts_along_training,
        paper="Appendix figure different_lengths (right), in part",
        on_release=(
            "The three routers at 15M, and HASH at every size: all of these steepen until the end. The paper draws "
            "HASH at 15M for schedules of 75,000, 250,000 and 1,000,000 steps; only the middle one was released, so "
            "the dependence on the schedule cannot be shown here."
        ),
    ),
)
