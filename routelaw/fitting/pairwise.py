"""Which technique is better where, and how surely: from the measured losses alone, before any law.

Two techniques are compared model by model, at every size and E that both were trained with. Models of one size are not
independent (a size that trains a little better does so at every E), so what counts is the spread of the sizes' means,
judged by Student's t, or the scatter of single runs (from repeated seeds where there are any) if that is wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.noise import pooled_sd
from routelaw.fitting.points import Points
from routelaw.laws.law import Array

CLEARLY, PROBABLY, OPEN = "clearly", "probably", "open"
PROBABLE = 0.8


@dataclass(frozen=True)
class LossNoise:
    """How far the loss of a run may lie off by chance: a standard deviation in log10 L."""

    sd: float
    freedom: float
    """Degrees of freedom."""
    kind: str
    """`seeds`: from runs that differ in the seed alone; `misfit`: what the selected law leaves unexplained."""


@dataclass(frozen=True)
class PairwiseComparison:
    """Two techniques over the models that both were trained as."""

    first: str
    second: str
    models: int
    wins: int
    """Models of which the first has the lower loss."""
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
class MeasuredModel:
    """The loss of one technique at one size and E: seeds averaged."""

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
class TechniqueRanking:
    models: tuple[MeasuredModel, ...]
    """Routed models, by technique, size and E."""
    noise: LossNoise | None
    order: list[str]
    """Techniques, best first, by their mean lead over the others."""
    pairs: dict[tuple[str, str], PairwiseComparison]
    """Every pair in that order."""
    mixed: int = 0
    """Combinations of technique, size and E that are not compared, because their runs differ in more than the seed."""

    @property
    def sizes(self) -> list[str]:
        return list(dict.fromkeys(model.size for model in sorted(self.models, key=lambda m: m.active_params)))

    @property
    def experts(self) -> list[int]:
        return sorted({model.experts for model in self.models})

    def at(self, **wanted: str | int) -> list[MeasuredModel]:
        """Models by technique, size or experts, lowest loss first."""
        found = [m for m in self.models if all(getattr(m, name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda model: model.loss)


def compare_pairwise(
    runs: Mapping[str, Points], fits: Iterable[Fit] = (), level: float = DEFAULT_LEVEL
) -> TechniqueRanking:
    """Every pair of techniques, from the points of each with seeds not averaged. Where no model was trained with
    several seeds, the residuals of `fits` say how far runs scatter."""
    found = [model for key, points in runs.items() for model in _models(key, points)]
    models = tuple(model for model in found if model is not None)
    noise = seed_noise(runs) or _misfit(list(fits))
    own = {key: mine for key in runs if (mine := [model for model in models if model.technique == key])}
    both = {(p, q): _compared(p, q, own[p], own[q], noise, level) for p in own for q in own if p != q}
    leads = {p: [both[p, q].lead for q in own if p != q and both[p, q].models] for p in own}
    order = sorted(own, key=lambda key: -float(np.mean(leads[key])) if leads[key] else 0.0)
    pairs = {(p, q): both[p, q] for i, p in enumerate(order) for q in order[i + 1 :]}
    return TechniqueRanking(models, noise, order, pairs, len(found) - len(models))


def _models(key: str, points: Points) -> list[MeasuredModel | None]:
    """None where runs of one size and E are not seeds of one model: their mean would be no model's loss."""
    models: list[MeasuredModel | None] = []
    for size in points.sizes:
        here = points.size == size
        dense = points.loss[here & points.dense & _one_model(points, here & points.dense)]
        for experts in np.unique(points.x["experts"][here & ~points.dense]):
            chosen = here & ~points.dense & (points.x["experts"] == experts)
            if not _one_model(points, chosen):
                models.append(None)
                continue
            models.append(
                MeasuredModel(
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
    return models


def _one_model(points: Points, chosen: Array) -> bool:
    return points.model is None or len(np.unique(points.model[chosen])) < 2


def seed_noise(runs: Mapping[str, Points]) -> LossNoise | None:
    """Pooled over all models trained with several seeds, dense ones counted once."""
    seeds: dict[tuple, Array] = {}
    for key, points in runs.items():
        for size in points.sizes:
            for experts in np.unique(points.x["experts"]):
                for dense in (False, True):
                    chosen = (points.size == size) & (points.x["experts"] == experts) & (points.dense == dense)
                    if chosen.sum() > 1 and _one_model(points, chosen):
                        seeds.setdefault(("dense", size) if dense else (key, size, experts), points.log_loss[chosen])
    return LossNoise(*pooled_sd(list(seeds.values())), "seeds") if seeds else None


def _misfit(fits: list[Fit]) -> LossNoise | None:
    """Without repeated seeds: the scatter of single runs about the selected law: chance and misfit together."""
    freedom = sum(len(f.points) - len(f.law.parameters) for f in fits)
    squares = sum(float((f.residual_N**2).sum()) for f in fits)
    return LossNoise(float(np.sqrt(squares / freedom)), freedom, "misfit") if freedom > 0 else None


def _compared(
    p: str,
    q: str,
    first: list[MeasuredModel],
    second: list[MeasuredModel],
    noise: LossNoise | None,
    level: float,
) -> PairwiseComparison:
    others = {(model.size, model.experts): model for model in second}
    pairs = [(m, others[m.size, m.experts]) for m in first if (m.size, m.experts) in others]
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
    reach, spread, freedom, by = max((m[0] * special.stdtrit(m[1], (1 + level) / 2), *m) for m in measures)
    interval = lead - float(reach), lead + float(reach)
    probability = float(special.stdtr(freedom, lead / spread))
    return PairwiseComparison(p, q, len(pairs), wins, len(leads), lead, interval, probability, by)


def _standard_errors(
    by_size: Array, pairs: list[tuple[MeasuredModel, MeasuredModel]], noise: LossNoise | None
) -> list[tuple[float, float, str]]:
    """(standard error, degrees of freedom, what it rests on) of a mean lead. The widest counts: a few sizes may agree
    by chance, and chance alone does not know how much sizes differ."""
    measures = []
    sizes = len(by_size)
    if noise is not None:
        variance = sum(1 / mine.seeds + 1 / other.seeds for mine, other in pairs)
        measures.append((noise.sd * math.sqrt(variance) / len(pairs), noise.freedom, noise.kind))
    if sizes > 2 or (sizes == 2 and (noise is None or noise.kind != "seeds")):
        measures.append((float(by_size.std(ddof=1) / math.sqrt(sizes)), float(sizes - 1), "sizes"))
    return [m for m in measures if m[0] > 0]


def stands_out(lead: float, seeds: int, other_seeds: int, noise: LossNoise, level: float) -> bool:
    """Whether the difference of two single models, in log10 L, is larger than chance."""
    reach = noise.sd * np.sqrt(1 / seeds + 1 / other_seeds) * special.stdtrit(noise.freedom, (1 + level) / 2)
    return bool(lead > reach)
