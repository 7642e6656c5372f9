"""Where does routing stop helping? The answer of every law, with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import Figure
from routelaw.figures.law_ranking import PUBLISHED, competing_fits
from routelaw.figures.loss_curves import PAPER_ROUTERS
from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import Interval, bootstrap, n_cut
from routelaw.fitting.points import in_size_and_experts
from routelaw.laws.equivalence import REFERENCE_EXPERTS
from routelaw.runs.table import RunTable

PRINTED = {"s-base": 937e9, "rl-r": 85e9, "hash": 83e9}
"""N_cut as the paper prints it (its table of solutions to the six-parameter law)."""
SHOWN = (1e10, 1e17)
"""Sizes on the axis; what lies beyond is an arrow."""


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
    picture, axes = style.panels(len(PAPER_ROUTERS), width=3.5, height=3.2, sharey=True)
    fits = competing_fits(table)
    laws = [name for name, r in fits if r == PAPER_ROUTERS[0] and in_size_and_experts(fits[name, r].law)]
    for panel, router in zip(axes, PAPER_ROUTERS, strict=True):
        for row, name in enumerate(laws):
            _row(panel, row, cutoff_of(fits[name, router]), style.router_colour(router))
        printed = panel.axvline(PRINTED[router], color=style.GREY, linestyle=":", label="as printed in the paper")
        panel.set_title(style.router_label(router))
        panel.set_xscale("log")
        panel.set_xlim(*SHOWN)
        style.named_ticks(panel.xaxis, {1e10: "10B", 1e12: "1T", 1e14: "100T", 1e16: "10,000T"})
        panel.set_xlabel("N_cut (parameters)")
        panel.set_ylim(len(laws) - 0.5, -0.5)
        style.named_ticks(panel.yaxis, dict(enumerate(laws)))
    axes[0].set_ylabel("law")
    for label, name in zip(axes[0].get_yticklabels(), laws, strict=True):
        label.set_fontweight("bold" if name == PUBLISHED else "normal")
    picture.legend([printed], ["as printed in the paper"], loc="outside lower center")
    return picture


def _row(axes: Axes, row: int, cutoff: Cutoff, colour: str) -> None:
    """A dot and its interval; an arrow at each end that is open or off the axis; a word where there is no cut-off."""
    if cutoff.never:
        middle = float(np.sqrt(SHOWN[0] * SHOWN[1]))
        axes.text(middle, row, "none", ha="center", va="center", color=style.GREY, fontsize=8, backgroundcolor="white")
        return
    low, high = max(cutoff.interval.low, SHOWN[0]), min(cutoff.interval.high, SHOWN[1])
    axes.hlines(row, low, high, color=colour, linewidth=1.4)
    for end, beyond, mark in ((low, cutoff.interval.low < SHOWN[0], "<"), (high, cutoff.interval.high > SHOWN[1], ">")):
        axes.plot(end, row, marker=mark if beyond else "|", color=colour, markersize=6, clip_on=False, linestyle="")
    if SHOWN[0] <= cutoff.estimate <= SHOWN[1]:
        axes.plot(cutoff.estimate, row, marker="o", color=colour, linestyle="")


FIGURES = (
    Figure(
        name="cutoff_by_law",
        title="The size at which routing stops helping, by law",
        caption=(
            f"N_cut, the size beyond which {REFERENCE_EXPERTS:.0f} experts are no better than one, under each law in "
            "(N, E), with 90 % intervals from 500 resamples of whole model sizes, widened for their small number. "
            "Arrows: the interval is open, or goes on beyond the axis; no dot: the estimate itself lies beyond it; "
            "none: under this law routing helps at every size. Dotted: the values printed in the paper. All sizes "
            "measured lie left of the axis, at 1.3B and below, so every number here is an extrapolation by one to many "
            "decades. The laws answer from tens of billions to never, and those that predict unseen sizes best "
            "(law_ranking) mostly say later or never: N_cut belongs to the form of the law more than to the data."
        ),
        draw=draw_cutoff_by_law,
    ),
)
