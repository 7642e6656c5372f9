"""Other texts than the training mixture: the coefficients of the bilinear law from corpus to corpus."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import MaxNLocator, MultipleLocator

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.loss_curves import PAPER_ROUTERS
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.intervals import Draws, bootstrap, parameter_quantities
from routelaw.fitting.points import select_points
from routelaw.laws import get_law
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable

CORPORA = {
    "loss_validation": "Validation",
    "loss_lambada": "LAMBADA",
    "loss_pile": "The Pile",
    "loss_curation_corpus": "Curation Corpus",
    "loss_wikitext103": "WikiText-103",
    "loss_c4": "C4",
}
MEANINGS = {"a": "a, slope in log N", "b": "b, slope in log E", "c": "c, interaction"}
SIZES = (15e6, 25e6, 55e6, 130e6, 370e6, 1.3e9)
OFFSETS = {"dense": 0.27, "s-base": 0.09, "rl-r": -0.09, "hash": -0.27}


@lru_cache(maxsize=1)
def transfer_fits(table: RunTable) -> dict[tuple[str, str], Fit]:
    """By (router, loss column): bilinear without dense runs, E ≥ 2, which is the convention of the printed table."""
    fits = {("dense", task): fit_law("dense", select_points(table, "dense", target=task)) for task in CORPORA}
    for router in PAPER_ROUTERS:
        for task in CORPORA:
            points = select_points(table, router, target=task, include_dense=False)
            fits[router, task] = fit_law("bilinear", points.where(points.x["experts"] >= 2))
    return fits


def draw_transfer_coefficients(table: RunTable) -> Picture:
    picture, axes = style.panels(len(MEANINGS), width=3.3, height=3.6, sharey=True)
    fits = transfer_fits(table)
    draws = {key: bootstrap(fit) for key, fit in fits.items()}
    for panel, (name, meaning) in zip(axes, MEANINGS.items(), strict=True):
        for router in ("dense", *PAPER_ROUTERS):
            if name in get_law("dense" if router == "dense" else "bilinear").names:
                _coefficient(panel, router, name, fits, draws)
        panel.set_xlabel(meaning)
        panel.xaxis.set_major_locator(MaxNLocator(5))
        style.named_ticks(panel.yaxis, dict(enumerate(CORPORA.values())))
        panel.set_ylim(len(CORPORA) - 0.5, -0.5)
        panel.grid(visible=False, axis="y")
        for row in range(1, len(CORPORA)):
            panel.axhline(row - 0.5, color="#e6e6e6", linewidth=0.6)
    axes[0].set_ylabel("corpus")
    style.legend_of(axes[0], picture)
    return picture


def _coefficient(axes: Axes, router: str, name: str, fits: dict[tuple[str, str], Fit], draws: dict) -> None:
    """One coefficient of one router on every corpus, with its interval, and the validation value as a line down."""
    look = style.router_look(router, label=style.router_label(router))
    axes.axvline(fits[router, "loss_validation"].params[name], color=look["color"], linewidth=0.7, linestyle=":")
    rows = np.arange(len(CORPORA)) - OFFSETS[router]
    values = np.array([fits[router, task].params[name] for task in CORPORA])
    ends = np.array([_interval(draws[router, task], name) for task in CORPORA])
    axes.hlines(rows, ends[:, 0], ends[:, 1], color=look["color"], linewidth=0.9)
    axes.plot(values, rows, linestyle="", **look)


def _interval(draws: Draws, name: str) -> tuple[float, float]:
    quantity = next(q for q in parameter_quantities(draws.fit.law) if q.name == name)
    interval = draws.interval(quantity)
    return interval.low, interval.high


def draw_transfer_slopes(table: RunTable) -> Picture:
    picture, grid = style.panels(3, rows=4, width=2.6, height=2.15)
    fits = transfer_fits(table)
    by_size, by_experts = grid[: len(CORPORA)], grid[len(CORPORA) :]
    sizes, experts = np.geomspace(SIZES[0], SIZES[-1], 60), np.geomspace(2, 512, 60)
    for column, (task, title) in enumerate(CORPORA.items()):
        for router in PAPER_ROUTERS:
            p = fits[router, task].params
            look = {"color": style.router_colour(router), "label": style.router_label(router)}
            by_size[column].plot(sizes, p["b"] + p["c"] * np.log10(sizes), **look)
            by_experts[column].plot(experts, p["a"] + p["c"] * np.log10(experts), **look)
        dense = fits["dense", task].params["a"]
        by_experts[column].axhline(dense, color=style.router_colour("dense"), linewidth=0.9, label="Dense")
        by_size[column].set_title(title)
        by_experts[column].set_title(title)
        by_size[column].set_xscale("log")
        style.named_ticks(by_size[column].xaxis, {15e6: "15M", 130e6: "130M", 1.3e9: "1.3B"})
        by_size[column].set_xlabel("parameters N")
        style.experts_axis(by_experts[column], (2, 8, 32, 128, 512))
    _same_span(by_size)
    _same_span(by_experts)
    for first in (0, 3):
        by_size[first].set_ylabel("b(N) = ∂ log L / ∂ log E")
        by_experts[first].set_ylabel("a(E) = ∂ log L / ∂ log N")
    style.legend_of(by_experts[0], picture)
    return picture


def _same_span(axes: Array) -> None:
    """One scale for all panels of one slope, each about its own values: LAMBADA's slopes are far from the others'."""
    limits = np.array([panel.get_ylim() for panel in axes])
    half = (limits[:, 1] - limits[:, 0]).max() / 2
    for panel, middle in zip(axes, limits.mean(axis=1), strict=True):
        panel.set_ylim(middle - half, middle + half)
        panel.yaxis.set_major_locator(MultipleLocator(0.01))


FIGURES = (
    Figure(
        name="transfer_coefficients",
        title="Coefficients of the bilinear law, corpus by corpus",
        caption=(
            "Coefficients a, b and c of log L = a·log N + b·log E + c·log N·log E + d, fitted to the final zero-shot "
            "loss on each corpus with routed runs alone (E ≥ 2, dense excluded), the convention under which the "
            "printed table reproduces; dense: the power law in N, without the unreleased 870M model. Bars are 90 % "
            "intervals from resampling whole model sizes, which the paper does not give; dotted lines repeat the "
            "validation value. LAMBADA, the Pile and C4 differ from validation in a by more than the bars. In b and c "
            "the bars of one corpus overlap: six sizes do not settle the order of the routers in a single coefficient."
        ),
        draw=draw_transfer_coefficients,
        paper="Appendix figure transfer-individual-scaling-coeffs",
    ),
    Figure(
        name="transfer_slopes",
        title="Slopes in E and in N, corpus by corpus",
        caption=(
            "The same fits with the interaction put in: b(N) = b + c·log N, the gain from experts at size N (upper "
            "half), and a(E) = a + c·log E, the gain from size with E experts (lower half); lower is better in both. "
            "These are the partial derivatives themselves, without the minus sign that the paper prints. The panels "
            "of a half share one scale but not its origin. Every slope flattens as the other size grows. On LAMBADA "
            "RL-R has the better b(N) up to about 220M (the paper says 410M) and S-BASE from there on; on C4 S-BASE "
            "leads from about 23M (the paper: always)."
        ),
        draw=draw_transfer_slopes,
        paper="Appendix figure transfer-alpha",
    ),
)
