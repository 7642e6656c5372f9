"""Other texts than the training mixture: the coefficients of the bilinear law from corpus to corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import MaxNLocator, MultipleLocator

from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import PAPER_ROUTERS
from routelaw.figures.selection import points_of
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.intervals import bootstrap, parameter_quantities
from routelaw.formatting import printable
from routelaw.laws.law import Array
from routelaw.runs.table import LOSS_PREFIX, RunTable
from routelaw.runs.variants import relative_to_usual
from routelaw.specs.names import DENSE

CORPORA = {
    "loss_validation": "Validation",
    "loss_lambada": "LAMBADA",
    "loss_pile": "The Pile",
    "loss_curation_corpus": "Curation Corpus",
    "loss_wikitext103": "WikiText-103",
    "loss_c4": "C4",
}
"""Those of the paper, in its order."""
MEANINGS = {"a": "a, slope in log N", "b": "b, slope in log E", "c": "c, interaction"}
SPREAD = 0.54
"""Height of a row that its marks take up."""
COLUMNS = 3


@dataclass(frozen=True, eq=False)
class TransferFits:
    """The bilinear law of every router on every corpus, and the dense models' power law in N."""

    corpora: tuple[str, ...]
    """Columns of losses, those of the paper first."""
    routers: tuple[str, ...]
    """Those with a law on every corpus; the dense models come first if they have one, too."""
    fits: Mapping[tuple[str, str], Fit]
    """By (router, column)."""

    def __getitem__(self, key: tuple[str, str]) -> Fit:
        return self.fits[key]

    @property
    def routed(self) -> tuple[str, ...]:
        return tuple(router for router in self.routers if router != DENSE)


def corpus_label(target: str) -> str:
    """`loss_c4` as C4; names of one's own as they are."""
    return CORPORA.get(target) or printable(target.removeprefix(LOSS_PREFIX))


@lru_cache(maxsize=1)
def transfer_fits(table: RunTable) -> TransferFits:
    """Without dense runs, E ≥ 2, which is the convention of the printed table. Of each router its usual variant."""
    table = relative_to_usual(table)
    corpora = (*(c for c in CORPORA if c in table.losses), *(c for c in table.losses if c not in CORPORA))
    if len(corpora) < 2:
        raise CannotDraw(f"the runs have one loss only ({', '.join(corpora)}): transfer needs another corpus.")
    fits: dict[tuple[str, str], Fit] = {}
    routers, refused = [], ""
    known = [router for router in PAPER_ROUTERS if router in table.routers]
    for router in (DENSE, *known, *(r for r in table.routers if r not in (DENSE, *PAPER_ROUTERS))):
        try:
            own = {(router, task): _fit(table, router, task) for task in corpora}
        except (CannotDraw, InputError) as error:
            refused = refused if router == DENSE else refused or str(error).removeprefix(f"{table.source}: ")
            continue
        fits |= own
        routers.append(router)
    found = TransferFits(corpora, tuple(routers), fits)
    if not found.routed:
        raise CannotDraw(f"no router has a bilinear law on every corpus: {refused or 'there are no routed runs.'}")
    return found


def _fit(table: RunTable, router: str, target: str) -> Fit:
    if router == DENSE:
        return fit_law("dense", points_of(table, DENSE, target=target))
    points = points_of(table, router, target=target, include_dense=False)
    return fit_law("bilinear", points.where(points.x["experts"] >= 2))


def draw_transfer_coefficients(table: RunTable) -> Picture:
    fits = transfer_fits(table)
    rows = len(fits.corpora)
    picture, axes = style.panels(len(MEANINGS), width=3.3, height=1.2 + 0.4 * rows, sharey=True)
    ends = {key: _intervals(fit) for key, fit in fits.fits.items()}
    colours = style.router_colours(fits.routers)
    for panel, (name, meaning) in zip(axes, MEANINGS.items(), strict=True):
        for router, offset in zip(fits.routers, _offsets(len(fits.routers)), strict=True):
            if name in fits[router, fits.corpora[0]].law.names:
                _coefficient(panel, router, colours[router], name, offset, fits, ends)
        panel.set_xlabel(meaning)
        panel.xaxis.set_major_locator(MaxNLocator(5))
        style.named_ticks(panel.yaxis, {row: corpus_label(task) for row, task in enumerate(fits.corpora)})
        panel.set_ylim(rows - 0.5, -0.5)
        panel.grid(visible=False, axis="y")
        for row in range(1, rows):
            panel.axhline(row - 0.5, color="#e6e6e6", linewidth=0.6)
    axes[0].set_ylabel("corpus")
    style.legend_of(axes[0], picture)
    return picture


def _offsets(routers: int) -> Array:
    return np.linspace(SPREAD / 2, -SPREAD / 2, routers) if routers > 1 else np.zeros(1)


def _coefficient(
    axes: Axes, router: str, colour: str, name: str, offset: float, fits: TransferFits, ends: dict
) -> None:
    """One coefficient of one router on every corpus, with its interval, and the first corpus's value as a line down."""
    look = style.router_look(router, label=style.router_label(router)) | {"color": colour}
    axes.axvline(fits[router, fits.corpora[0]].params[name], color=colour, linewidth=0.7, linestyle=":")
    rows = np.arange(len(fits.corpora)) - offset
    values = np.array([fits[router, task].params[name] for task in fits.corpora])
    spans = np.array([ends[router, task].get(name, (np.nan, np.nan)) for task in fits.corpora])
    axes.hlines(rows, spans[:, 0], spans[:, 1], color=colour, linewidth=0.9)
    axes.plot(values, rows, linestyle="", **look)


def _intervals(fit: Fit) -> dict[str, tuple[float, float]]:
    """The interval of every parameter; none where there are too few sizes to resample."""
    try:
        draws = bootstrap(fit)
    except InputError:
        return {}
    found = {quantity.name: draws.interval(quantity) for quantity in parameter_quantities(fit.law)}
    return {name: (interval.low, interval.high) for name, interval in found.items()}


def draw_transfer_slopes(table: RunTable) -> Picture:
    fits = transfer_fits(table)
    columns = 2 if len(fits.corpora) in (2, 4) else COLUMNS
    rows = -(-len(fits.corpora) // columns)
    picture, grid = style.panels(columns, rows=2 * rows, width=2.6, height=2.15)
    halves = grid[: rows * columns], grid[rows * columns :]
    for half in halves:
        for spare in half[len(fits.corpora) :]:
            spare.remove()
    by_size, by_experts = (half[: len(fits.corpora)] for half in halves)
    points = [fits[router, fits.corpora[0]].points for router in fits.routed]
    names = {active: size for p in points for size, active, _ in p.by_size()}
    trained = np.array(sorted(names))
    experts_seen = np.unique(np.concatenate([p.x["experts"] for p in points]))
    sizes = np.geomspace(trained[0], trained[-1], 60)
    experts = np.geomspace(experts_seen[0], experts_seen[-1], 60)
    colours = style.router_colours(fits.routers)
    for column, task in enumerate(fits.corpora):
        for router in fits.routed:
            p = fits[router, task].params
            look = {"color": colours[router], "label": style.router_label(router)}
            by_size[column].plot(sizes, p["b"] + p["c"] * np.log10(sizes), **look)
            by_experts[column].plot(experts, p["a"] + p["c"] * np.log10(experts), **look)
        if DENSE in fits.routers:
            dense = fits[DENSE, task].params["a"]
            by_experts[column].axhline(dense, color=style.router_colour(DENSE), linewidth=0.9, label="Dense")
        by_size[column].set_title(corpus_label(task))
        by_experts[column].set_title(corpus_label(task))
        by_size[column].set_xscale("log")
        style.named_ticks(by_size[column].xaxis, {n: names[n] for n in _middle_and_ends(trained)})
        by_size[column].set_xlabel("parameters N")
        style.experts_axis(by_experts[column], _some(experts_seen.astype(int).tolist()))
    _same_span(by_size)
    _same_span(by_experts)
    for first in range(0, len(fits.corpora), columns):
        by_size[first].set_ylabel("b(N) = ∂ log L / ∂ log E")
        by_experts[first].set_ylabel("a(E) = ∂ log L / ∂ log N")
    style.legend_of(by_experts[0], picture)
    return picture


def _middle_and_ends(values: Array) -> list[float]:
    """The smallest, the largest, and the one nearest to between them on a log scale, if it is apart from both."""
    low, high = float(values[0]), float(values[-1])
    between = [float(v) for v in values[1:-1] if 0.25 < np.log(v / low) / np.log(high / low) < 0.75]
    middle = np.sqrt(low * high)
    return [low, *sorted(between, key=lambda v: abs(np.log(v / middle)))[:1], high]


def _some(experts: list[int]) -> tuple[int, ...]:
    """Every second of many."""
    return tuple(experts[::2]) if len(experts) > 5 else tuple(experts)


def _same_span(axes: Array) -> None:
    """One scale for all panels of one slope, each about its own values: LAMBADA's slopes are far from the others'."""
    limits = np.array([panel.get_ylim() for panel in axes])
    half = (limits[:, 1] - limits[:, 0]).max() / 2
    step = float(MaxNLocator(8).tick_values(0, 2 * half)[1])
    step = max(0.01, step) if half > 0.015 else step
    for panel, middle in zip(axes, limits.mean(axis=1), strict=True):
        panel.set_ylim(middle - half, middle + half)
        panel.yaxis.set_major_locator(MultipleLocator(step))


FIGURES = (
    Figure(
        name="transfer_coefficients",
        title="Coefficients of the bilinear law, corpus by corpus",
        caption=(
            "Coefficients a, b and c of log L = a·log N + b·log E + c·log N·log E + d, fitted to the final zero-shot "
            "loss on each corpus with routed runs alone (E ≥ 2, dense excluded), the convention under which the "
            "paper's printed table reproduces; dense: the power law in N, where three sizes allow one. Bars are 90 % "
            "intervals from resampling whole model sizes, which the paper does not give and which need three sizes; "
            "dotted lines repeat the value on the first corpus."
        ),
        on_release=(
            "The unreleased 870M model is missing from the dense law. LAMBADA, the Pile and C4 differ from validation "
            "in a by more than the bars. In b and c the bars of one corpus overlap: six sizes do not settle the order "
            "of the routers in a single coefficient."
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
            "of a half share one scale but not its origin."
        ),
        on_release=(
            "Every slope flattens as the other size grows. On LAMBADA RL-R has the better b(N) up to about 220M (the "
            "paper says 410M) and S-BASE from there on; on C4 S-BASE leads from about 23M (the paper: always)."
        ),
        draw=draw_transfer_slopes,
        paper="Appendix figure transfer-alpha",
    ),
)
