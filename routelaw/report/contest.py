"""Which technique is better where, and how surely: from the measured losses alone, before any law.

Two techniques are compared cell by cell, a cell being a size and an E that both were trained with. Cells of one size
are not independent (a size that trains a little better does so at every E), so what counts is the spread of the sizes'
means, judged by Student's t, or the scatter of single runs (from repeated seeds where there are any) if that is wider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from routelaw.fitting.points import Points
from routelaw.laws.law import Array
from routelaw.report.analysis import Analysis

CLEARLY, PROBABLY, OPEN = "clearly", "probably", "open"
PROBABLE = 0.8


@dataclass(frozen=True)
class Noise:
    """How far the loss of a run may lie off by chance: a standard deviation in log10 L."""

    spread: float
    degrees: float
    kind: str
    """`seeds`: from runs that differ in the seed alone; `misfit`: what the selected law leaves unexplained."""


@dataclass(frozen=True)
class PairwiseComparison:
    """Two techniques over the cells they share."""

    first: str
    second: str
    cells: int
    wins: int
    """Cells in which the first has the lower loss."""
    sizes: int
    lead: float
    """Mean of log10 second − log10 first: positive where the first is better."""
    interval: tuple[float, float] | None
    probability: float | None
    """That the first is better."""
    by: str
    """What the interval rests on: `sizes`, or the `kind` of the noise; empty where there is none."""

    @property
    def verdict(self) -> str:
        if self.interval is None or self.probability is None:
            return OPEN
        if self.interval[0] > 0 or self.interval[1] < 0:
            return CLEARLY
        return PROBABLY if max(self.probability, 1 - self.probability) >= PROBABLE else OPEN


@dataclass(frozen=True)
class Cell:
    """The models of one technique, size and E: seeds averaged."""

    technique: str
    size: str
    active_params: float
    experts: int
    loss: float
    seeds: int
    dense_loss: float | None
    """Loss of the dense models of that size, where there are any."""
    dense_seeds: int = 0

    @property
    def log_loss(self) -> float:
        return math.log10(self.loss)

    @property
    def gain(self) -> float | None:
        """Share of the dense loss that routing takes off; negative where it adds."""
        return None if self.dense_loss is None else 1 - self.loss / self.dense_loss


@dataclass(frozen=True, eq=False)
class Contest:
    cells: tuple[Cell, ...]
    """Routed models, by technique, size and E."""
    noise: Noise | None
    order: list[str]
    """Techniques, best first, by how they stand against the others."""
    duels: dict[tuple[str, str], PairwiseComparison]
    """Every pair in that order."""
    mixed: int = 0
    """Cells that are not compared, because their runs differ in more than their seed."""

    @property
    def sizes(self) -> list[str]:
        return list(dict.fromkeys(cell.size for cell in sorted(self.cells, key=lambda c: c.active_params)))

    @property
    def experts(self) -> list[int]:
        return sorted({cell.experts for cell in self.cells})

    def at(self, **wanted: str | int) -> list[Cell]:
        """Cells by technique, size or experts, lowest loss first."""
        found = [c for c in self.cells if all(getattr(c, name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda cell: cell.loss)


def compare_pairwise(analysis: Analysis) -> Contest:
    found = [cell for key, points in analysis.runs.items() for cell in _cells(key, points)]
    cells = tuple(cell for cell in found if cell is not None)
    noise = seed_noise(analysis) or _misfit(analysis)
    own = {key: [cell for cell in cells if cell.technique == key] for key in analysis.runs}
    keys = [key for key, mine in own.items() if mine]
    both = {(p, q): _duel(p, q, own[p], own[q], noise, analysis.level) for p in keys for q in keys if p != q}
    standing = {p: [both[p, q].lead for q in keys if p != q and both[p, q].cells] for p in keys}
    order = sorted(keys, key=lambda key: -float(np.mean(standing[key])) if standing[key] else 0.0)
    duels = {(p, q): both[p, q] for i, p in enumerate(order) for q in order[i + 1 :]}
    return Contest(cells, noise, order, duels, len(found) - len(cells))


def _cells(key: str, points: Points) -> list[Cell | None]:
    """None for a cell of runs that are not seeds of one model: their mean would be no model's loss."""
    cells: list[Cell | None] = []
    for size in points.sizes:
        here = points.size == size
        dense = points.loss[here & points.dense & _one_model(points, here & points.dense)]
        for experts in np.unique(points.x["experts"][here & ~points.dense]):
            chosen = here & ~points.dense & (points.x["experts"] == experts)
            if not _one_model(points, chosen):
                cells.append(None)
                continue
            cells.append(
                Cell(
                    technique=key,
                    size=size,
                    active_params=float(points.x["active_params"][chosen].mean()),
                    experts=int(experts),
                    loss=float(points.loss[chosen].mean()),
                    seeds=int(chosen.sum()),
                    dense_loss=float(dense.mean()) if dense.size else None,
                    dense_seeds=int(dense.size),
                )
            )
    return cells


def _one_model(points: Points, chosen: Array) -> bool:
    return points.model is None or len(np.unique(points.model[chosen])) < 2


def seed_noise(analysis: Analysis) -> Noise | None:
    """Pooled over all models trained with several seeds, dense ones counted once."""
    seen: set[tuple] = set()
    squares, degrees = 0.0, 0
    for key, points in analysis.runs.items():
        for size in points.sizes:
            for experts in np.unique(points.x["experts"]):
                for dense in (False, True):
                    chosen = (points.size == size) & (points.x["experts"] == experts) & (points.dense == dense)
                    cell = ("dense", size) if dense else (key, size, experts)
                    if chosen.sum() > 1 and cell not in seen and _one_model(points, chosen):
                        seen.add(cell)
                        squares += float(np.var(points.log_loss[chosen]) * chosen.sum())
                        degrees += int(chosen.sum()) - 1
    return Noise(float(np.sqrt(squares / degrees)), degrees, "seeds") if degrees else None


def _misfit(analysis: Analysis) -> Noise | None:
    """Without repeated seeds: the scatter of single runs about the selected law: chance and misfit together."""
    fits = [j.fit for j in analysis.judged.values()]
    degrees = sum(len(f.points) - len(f.law.parameters) for f in fits)
    squares = sum(float((f.residual_N**2).sum()) for f in fits)
    return Noise(float(np.sqrt(squares / degrees)), degrees, "misfit") if degrees > 0 else None


def _duel(
    p: str, q: str, first: list[Cell], second: list[Cell], noise: Noise | None, level: float
) -> PairwiseComparison:
    others = {(cell.size, cell.experts): cell for cell in second}
    pairs = [(c, others[c.size, c.experts]) for c in first if (c.size, c.experts) in others]
    if not pairs:
        return PairwiseComparison(p, q, 0, 0, 0, math.nan, None, None, "")
    leads: dict[str, list[float]] = {}
    for mine, other in pairs:
        leads.setdefault(mine.size, []).append(other.log_loss - mine.log_loss)
    by_size = np.array([np.mean(own) for own in leads.values()])
    lead, wins = float(by_size.mean()), sum(mine.loss < other.loss for mine, other in pairs)
    measures = _standard_errors(by_size, pairs, noise)
    if not measures:
        return PairwiseComparison(p, q, len(pairs), wins, len(leads), lead, None, None, "")
    reach, spread, degrees, by = max((m[0] * special.stdtrit(m[1], (1 + level) / 2), *m) for m in measures)
    interval = lead - float(reach), lead + float(reach)
    probability = float(special.stdtr(degrees, lead / spread))
    return PairwiseComparison(p, q, len(pairs), wins, len(leads), lead, interval, probability, by)


def _standard_errors(
    by_size: Array, pairs: list[tuple[Cell, Cell]], noise: Noise | None
) -> list[tuple[float, float, str]]:
    """(standard error, degrees of freedom, what it rests on) of a mean lead. The widest counts: a few sizes may agree
    by chance, and chance alone does not know how much sizes differ."""
    measures = []
    sizes = len(by_size)
    if noise is not None:
        variance = sum(1 / mine.seeds + 1 / other.seeds for mine, other in pairs)
        measures.append((noise.spread * math.sqrt(variance) / len(pairs), noise.degrees, noise.kind))
    if sizes > 2 or (sizes == 2 and (noise is None or noise.kind != "seeds")):
        measures.append((float(by_size.std(ddof=1) / math.sqrt(sizes)), float(sizes - 1), "sizes"))
    return [m for m in measures if m[0] > 0]


def stands_out(lead: float, seeds: int, other_seeds: int, noise: Noise, level: float) -> bool:
    """Whether the difference of two single cells, in log10 L, is larger than chance."""
    reach = noise.spread * np.sqrt(1 / seeds + 1 / other_seeds) * special.stdtrit(noise.degrees, (1 + level) / 2)
    return bool(lead > reach)
