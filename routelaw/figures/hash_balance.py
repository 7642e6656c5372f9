"""How evenly hash routing spreads a corpus: the load of each expert, most subscribed first, by scheme and E.

`routelaw corpus balance` draws it; its data come from a corpus (evaluation/hash_balance.py), not from a run table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from routelaw.figures import style

COLOURS = {"modulo": "#0072B2", "random": "#D55E00", "greedy": "#009E73"}
LINES = {"modulo": "-", "random": "--", "greedy": "-."}
CAPACITY = 2.0


class HashBalance(Protocol):
    """What is drawn of one scheme at one E."""

    @property
    def scheme(self) -> str: ...
    @property
    def experts(self) -> int: ...
    @property
    def load(self) -> np.ndarray: ...
    @property
    def overflow(self) -> float: ...


def draw_balance(found: Sequence[HashBalance]) -> Picture:
    experts = list(dict.fromkeys(balance.experts for balance in found))
    with rc_context(style.RC):
        picture, axes = style.panels(len(experts), width=3.2, sharey=True)
        for panel, count in zip(axes, experts, strict=True):
            for balance in (b for b in found if b.experts == count):
                label = f"{balance.scheme} ({balance.overflow:.1%} over)"
                rank = np.arange(1, count + 1)
                panel.plot(rank, balance.load, LINES[balance.scheme], color=COLOURS[balance.scheme], label=label)
            panel.axhline(CAPACITY, color="black", linestyle=":", linewidth=1)
            panel.axhline(1.0, color=style.GREY, linewidth=0.8)
            panel.set_xlabel("expert, most subscribed first")
            panel.set_title(f"E = {count}")
            panel.legend(loc="upper right")
        top = max(float(balance.load[0]) for balance in found)
        axes[0].set_yscale("log")
        axes[0].set_ylim(0.05, 2 * top)
        ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if t < 2 * top]
        axes[0].yaxis.set_major_locator(FixedLocator(ticks))
        axes[0].yaxis.set_major_formatter(FixedFormatter([f"{t:g}" for t in ticks]))
        axes[0].yaxis.set_minor_formatter(NullFormatter())
        axes[0].set_ylabel("load (1: even; dotted: capacity 2)")
        return picture
