"""Where does routing stop helping? The answer of every law, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import selection, style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.law_ranking import PUBLISHED, competing_fits
from routelaw.figures.loss_curves import metric
from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import Interval, bootstrap, n_cut
from routelaw.fitting.points import in_size_and_experts
from routelaw.laws.equivalence import REFERENCE_EXPERTS
from routelaw.laws.law import Array
from routelaw.runs.table import RunTable

PRINTED = {"s-base": 937e9, "rl-r": 85e9, "hash": 83e9}
"""N_cut as the paper prints it (its table of solutions to the six-parameter law)."""
DECADES = 7
"""On the axis, beginning beyond the sizes trained or at the smallest cut-off; what lies beyond is an arrow."""
Shown = tuple[float, float]
DRAWS = 500
"""Resamples per interval, half of what a fit takes by default: the laws with most parameters are slow to refit."""


@dataclass(frozen=True)
class Cutoff:
    estimate: float
    interval: Interval

    @property
    def never(self) -> bool:
        """Routing helps at every size, in every resample."""
        return np.isinf(self.estimate) and np.isinf(self.interval.low)


@cache
def cutoff_of(fit: Fit) -> Cutoff:
    quantity = n_cut(fit.law)
    return Cutoff(quantity.at(fit.params_BP), bootstrap(fit, draws=DRAWS).interval(quantity))


def draw_cutoff_by_law(table: RunTable) -> Picture:
    fits = {key: fit for key, fit in competing_fits(table).items() if in_size_and_experts(fit.law)}
    routers = list(dict.fromkeys(router for _, router in fits))
    laws = list(dict.fromkeys(name for name, _ in fits))
    if not routers:
        raise CannotDraw("no law in (N, E) could be fitted.")
    cutoffs, why_not = selection.for_each(routers, lambda router: _cutoffs(fits, router))
    shown = _sizes_shown([fit.points.x["active_params"] for fit in fits.values()], cutoffs)
    looks = style.router_looks(cutoffs)
    picture, axes = style.grid_of_panels(len(cutoffs), width=3.5, height=3.2, sharey=True)
    printed = None
    for panel, (router, own) in zip(axes, cutoffs.items(), strict=True):
        for row, name in enumerate(laws):
            if name in own:
                _row(panel, row, own[name], looks[router]["color"], shown)
        if router in PRINTED and selection.is_release(table):
            printed = panel.axvline(PRINTED[router], color=style.GREY, linestyle=":", label="as printed in the paper")
        panel.set_title(style.router_label(router))
        panel.set_xscale("log")
        panel.set_xlim(*shown)
        style.named_ticks(panel.xaxis, {v: _name(v) for v in shown[0] * 100.0 ** np.arange((DECADES + 1) // 2)})
        panel.set_xlabel("N_cut (parameters)")
        panel.set_ylim(len(laws) - 0.5, -0.5)
        style.named_ticks(panel.yaxis, dict(enumerate(laws)))
    axes[0].set_ylabel("law")
    for label, name in zip(axes[0].get_yticklabels(), laws, strict=True):
        label.set_fontweight("bold" if name == PUBLISHED else "normal")
    style.say_above(picture, selection.left_out(why_not))
    if printed is not None:
        picture.legend([printed], ["as printed in the paper"], loc="outside lower center")
    return picture


def _cutoffs(fits: dict[tuple[str, str], Fit], router: str) -> dict[str, Cutoff]:
    """The cut-off by law, for every law that resamples of the sizes determine."""
    own = {name: fit for (name, r), fit in fits.items() if r == router}
    found, _ = selection.for_each(own, lambda name: selection.allowed(own[name].points, lambda: cutoff_of(own[name])))
    return found


def _sizes_shown(trained: list[Array], cutoffs: dict[str, dict[str, Cutoff]]) -> Shown:
    largest, smallest = max(n.max() for n in trained), min(n.min() for n in trained)
    least = min([c.estimate for own in cutoffs.values() for c in own.values() if c.estimate > smallest] or [np.inf])
    first = 10.0 ** min(np.ceil(np.log10(largest)), np.floor(np.log10(least)))
    return first, first * 10.0**DECADES


def _name(size: float) -> str:
    return f"{size / 1e12:,.0f}T" if size >= 1e12 else metric(size)


def _row(axes: Axes, row: int, cutoff: Cutoff, colour: str, shown: Shown) -> None:
    """A dot and its interval; an arrow at each end that is open or off the axis; a word where there is no cut-off."""
    if cutoff.never:
        middle = float(np.sqrt(shown[0] * shown[1]))
        axes.text(middle, row, "none", ha="center", va="center", color=style.GREY, fontsize=8, backgroundcolor="white")
        return
    low, high = np.clip([cutoff.interval.low, cutoff.interval.high], *shown)
    axes.hlines(row, low, high, color=colour, linewidth=1.4)
    for end, beyond, arrow in (
        (low, cutoff.interval.low < shown[0], "<"),
        (high, cutoff.interval.high > shown[1], ">"),
    ):
        mark = arrow if beyond else "|"
        axes.plot(end, row, marker=mark, color=colour, markersize=6, clip_on=False, linestyle="")
    if shown[0] <= cutoff.estimate <= shown[1]:
        axes.plot(cutoff.estimate, row, marker="o", color=colour, linestyle="")


FIGURES = (
    Figure(
        name="cutoff_by_law",
        title="The size at which routing stops helping, by law",
        caption=(
            f"N_cut, the size beyond which {REFERENCE_EXPERTS:.0f} experts are no better than one, under each law in "
            f"(N, E), with 90 % intervals from {DRAWS} resamples of whole model sizes, widened for their small number. "
            "Arrows: the interval is open, or goes on beyond the axis; no dot: the estimate itself lies beyond it, or "
            "below the sizes trained; none: under this law routing helps at every size. What lies beyond the sizes "
            "trained is extrapolation, and N_cut then belongs to the form of the law more than to the data."
        ),
        draw=draw_cutoff_by_law,
        on_release=(
            "Dotted: the values printed in the paper. All sizes measured lie left of the axis, at 1.3B and below, so "
            "every number here is an extrapolation by one to many decades. The laws answer from tens of billions to "
            "never, and those that predict unseen sizes best (law_ranking) mostly say later or never."
        ),
    ),
)
