"""How evenly hash routing spreads a corpus over its experts (the paper's figure on hash balancing, appendix B).

Each token type goes to one expert, so a frequent token cannot be shared out, and the more experts there are the less
even any hash becomes. Greedy assignment is told the frequencies of the training text and judged on the held-out text,
as it would be in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter

from routelaw.corpus.shards import Corpus
from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.routers.hashing import SCHEMES, greedy_table, modulo_table, random_table

COLOURS = {"modulo": "#0072B2", "random": "#D55E00", "greedy": "#009E73"}
LINES = {"modulo": "-", "random": "--", "greedy": "-."}
CAPACITY = 2.0


@dataclass(frozen=True)
class Balance:
    scheme: str
    experts: int
    load: np.ndarray
    """Tokens of each expert as a multiple of an even share, most first."""

    @property
    def overflow(self) -> float:
        """Share of tokens beyond the capacity factor C = 2, which training would drop."""
        return float(np.maximum(self.load - CAPACITY, 0.0).sum() / self.load.sum())


def balances(corpus: Corpus, experts: Sequence[int]) -> list[Balance]:
    """Every scheme at every number of experts, on the token frequencies of the held-out split."""
    if not corpus.validation.documents:
        raise InputError(
            f"{corpus.path}: nothing is held out to judge the balance by; build with a larger --validation."
        )
    seen_V = torch.from_numpy(np.array(corpus.train.frequencies_V, dtype=np.int64))
    held_out_V = np.asarray(corpus.validation.frequencies_V, dtype=float)
    ids_V = torch.arange(len(seen_V))
    made = []
    for count in experts:
        tables = {
            "modulo": modulo_table(ids_V, count, 1),
            "random": random_table(ids_V, count, 1),
            "greedy": greedy_table(seen_V, count, 1),
        }
        for scheme in SCHEMES:
            tokens_E = np.bincount(tables[scheme][:, 0].numpy(), weights=held_out_V, minlength=count)
            made.append(Balance(scheme, count, np.sort(tokens_E / tokens_E.mean())[::-1]))
    return made


def draw_balance(found: Sequence[Balance]) -> Picture:
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
