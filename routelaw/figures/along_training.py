"""Scaling coefficients while models train: each evaluation step fitted as if training had ended there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import PAPER_ROUTERS
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable, last_rows

TARGET = "loss_validation"
SMALLEST = "15M"
LAST_COMMON, FINAL = 240_000, 249_000
"""Every run was evaluated at the same steps up to 240,000, and a last time between 248,000 and 250,000."""


@dataclass(frozen=True)
class Slopes:
    """A straight line in log-log at every step. S steps."""

    step_S: Array
    slope_S: Array
    rmsle_S: Array
    """Root mean squared residual of log10 L."""


def size_slopes(table: RunTable) -> Slopes:
    """a in log L = a·log N + d over the dense models, seeds averaged, at each step."""
    return _slopes(table, "active_params", router="dense")


def expert_slopes(table: RunTable, router: str, size: str) -> Slopes:
    """b in log L = b·log E + d over the models of one size, the dense one included as E = 1, at each step."""
    return _slopes(table, "experts", router=router, size=size)


def _slopes(table: RunTable, column: str, router: str, size: str | None = None) -> Slopes:
    frame = table.frame
    main = (frame["variant"] == "") & (frame["k"] == 1) & np.isclose(frame["routing_frequency"], 0.5)
    rows = frame[main & frame["router"].isin([router, "dense"]) & (frame["step"] > 0)].dropna(subset=[TARGET])
    if size is not None:
        rows = rows[rows["size"] == size]
    ends = last_rows(rows[rows["step"] > LAST_COMMON])
    rows = pd.concat([rows[rows["step"] <= LAST_COMMON], ends.assign(step=FINAL)])
    loss = rows.pivot_table(index=column, columns="step", values=TARGET, aggfunc="mean")
    loss = loss.dropna(axis="columns")  # a step counts where every model has a value
    log_x, log_loss = np.log10(loss.index.to_numpy(float)), np.log10(loss.to_numpy(float))
    slope_S, intercept_S = np.polyfit(log_x, log_loss, 1)
    residual = log_loss - np.outer(log_x, slope_S) - intercept_S
    return Slopes(loss.columns.to_numpy(float), slope_S, np.sqrt((residual**2).mean(axis=0)))


def draw_dense_along_training(table: RunTable) -> Picture:
    picture, axes = style.panels(2, width=3.3, height=2.9)
    slopes = size_slopes(table)
    look = style.router_look("dense", markersize=3)
    axes[0].plot(slopes.step_S / 1e3, slopes.slope_S, **look)
    axes[0].set_ylabel("a, slope in log N")
    axes[1].plot(slopes.step_S / 1e3, slopes.rmsle_S * 1e4, **look)
    axes[1].set_ylabel("RMSE of the fit (10⁻⁴ of log10 L)")
    axes[1].set_ylim(bottom=0)
    for panel in axes:
        panel.set_xlabel("step (thousands)")
    style.letter_panels(axes)
    return picture


def draw_experts_along_training(table: RunTable) -> Picture:
    picture, axes = style.panels(2, width=3.6, height=3.1, sharey=True)
    for router in PAPER_ROUTERS:
        slopes = expert_slopes(table, router, SMALLEST)
        look = style.router_look(router, markersize=3, label=style.router_label(router))
        axes[0].plot(slopes.step_S / 1e3, slopes.slope_S, **look)
    axes[0].set_title(SMALLEST)
    frame = table.frame[table.frame["router"] == "dense"]
    sizes = list(frame.sort_values("active_params")["size"].unique())
    for size, shade in zip(sizes, style.shades(len(sizes)), strict=True):
        slopes = expert_slopes(table, "hash", size)
        axes[1].plot(slopes.step_S / 1e3, slopes.slope_S, color=shade, label=size)
    axes[1].set_title(style.router_label("hash"))
    axes[0].set_ylabel("b, slope in log E")
    for panel in axes:
        panel.set_xlabel("step (thousands)")
        panel.legend(ncols=2)
    style.letter_panels(axes)
    return picture


FIGURES = (
    Figure(
        name="dense_along_training",
        title="The dense power law along training",
        caption=(
            "(a) Slope a of log L = a·log N + d, fitted to the losses that all six dense sizes have at the same step "
            "(130M: mean of three seeds): every 10,000 steps up to 240,000, and each run's last evaluation, drawn at "
            "249,000. (b) Root mean squared residual of these fits in log10 L; the paper does not state the unit of "
            "its own. The slope steepens throughout. The error falls almost throughout, to less than half; the paper "
            "finds intermediate steps to follow the power law about as well as later ones or better, with a seventh "
            "size, 870M, that was not released."
        ),
        draw=draw_dense_along_training,
        paper="Appendix figure bad_fits (a, b)",
    ),
    Figure(
        name="experts_along_training",
        title="The gain from experts along training",
        caption=(
            "Slope b of log L = b·log E + d at one model size, over the losses of all expert counts at the same step, "
            "the dense model as E = 1: the three routers at 15M (a), and HASH at every size (b). Coefficients belong "
            "to a number of tokens: all of these steepen until the end. The paper draws HASH at 15M for schedules of "
            "75,000, 250,000 and 1,000,000 steps; only the middle one was released, so the dependence on the schedule "
            "cannot be shown here."
        ),
        draw=draw_experts_along_training,
        paper="Appendix figure different_lengths (right), in part",
    ),
)
