"""How scaling carries over to other texts: one law fitted to the losses on each corpus by itself.

The models are the same, and only what they are measured on differs. So what differs between the fits, in coefficients,
slopes and effective parameters, is said of the texts: the paper's appendix on transfer, for any table with several
losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.intervals import (
    DEFAULT_DRAWS,
    DEFAULT_LEVEL,
    Draws,
    Interval,
    bootstrap,
    effective_params,
    parameter_quantities,
)
from routelaw.fitting.points import in_size_and_experts, select_points
from routelaw.laws import equivalence
from routelaw.laws.law import Law
from routelaw.runs.table import RunTable


@dataclass(frozen=True)
class EffectiveSize:
    """What a routed model is worth on one corpus."""

    size: str
    active_params: float
    experts: int
    effective: float
    """N̄, the dense size of equal loss under the same law; infinite where no dense model is as good. NaN where larger
    dense models are no better under it: then a size says nothing about a loss."""
    interval: Interval | None
    extrapolated: bool = False
    """Whether N̄ lies outside the sizes that were trained."""

    @property
    def ratio(self) -> float:
        return self.effective / self.active_params


@dataclass(frozen=True, eq=False)
class CorpusFit:
    """One technique on one corpus."""

    technique: str
    target: str
    fit: Fit
    draws: Draws | None
    """Refits to resampled sizes; None where there are too few of them."""
    level: float

    @property
    def intervals(self) -> dict[str, Interval]:
        if self.draws is None:
            return {}
        return {q.name: self.draws.interval(q, self.level) for q in parameter_quantities(self.fit.law)}

    @property
    def size_slopes(self) -> dict[int, float]:
        """a(E) = ∂ log L / ∂ log N by the E that were trained, at the middle size."""
        sizes = np.unique(self.fit.points.x["active_params"])
        middle = float(10 ** np.log10(sizes[[0, -1]]).mean())
        experts = np.unique(self.fit.points.x["experts"]).astype(int).tolist()
        return {e: float(equivalence.slopes_at(self.fit.law, self.fit.params_BP, middle, e)[0][0]) for e in experts}

    @property
    def expert_slopes(self) -> dict[str, float]:
        """b(N) = ∂ log L / ∂ log E (Ê of a law that saturates) by size, at the middle of the E that were trained."""
        routed = self.fit.points.x["experts"][self.fit.points.x["experts"] > 1]
        middle = float(10 ** np.log10([routed.min(), routed.max()]).mean())
        return {
            size: float(equivalence.slopes_at(self.fit.law, self.fit.params_BP, active, middle)[1][0])
            for size, active, _ in self.fit.points.by_size()
        }

    @cached_property
    def effective(self) -> tuple[EffectiveSize, ...]:
        """Every routed model that was trained, smallest first."""
        points, law = self.fit.points, self.fit.law
        routed = points.where(points.x["experts"] > 1)
        models = zip(routed.x["active_params"], routed.x["experts"], routed.size, strict=True)
        found = []
        for active, experts, size in sorted({(float(n), int(e), str(s)) for n, e, s in models}):
            if equivalence.slopes_at(law, self.fit.params_BP, active, 1)[0][0] >= 0:
                found.append(EffectiveSize(size, active, experts, np.nan, None))
                continue
            effective = float(equivalence.effective_params(law, self.fit.params_BP, active, experts)[0])
            quantity = effective_params(law, active, experts)
            interval = self.draws.interval(quantity, self.level) if self.draws else None
            beyond = not points.x["active_params"].min() <= effective <= points.x["active_params"].max()
            found.append(EffectiveSize(size, active, experts, effective, interval, beyond))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Transfer:
    law: Law
    targets: tuple[str, ...]
    fits: Mapping[tuple[str, str], CorpusFit]
    """By (technique, target); those that could not be fitted are missing."""
    refusals: Mapping[tuple[str, str], str]
    """Why not, a sentence each."""

    @property
    def techniques(self) -> list[str]:
        return list(dict.fromkeys(technique for technique, _ in (*self.fits, *self.refusals)))

    def of(self, technique: str) -> dict[str, CorpusFit]:
        """Its fits by target."""
        return {target: self.fits[technique, target] for target in self.targets if (technique, target) in self.fits}


def fit_transfer(
    tables: Mapping[str, RunTable],
    law: Law,
    targets: Sequence[str],
    *,
    include_dense: bool = True,
    draws: int = DEFAULT_DRAWS,
    level: float = DEFAULT_LEVEL,
) -> Transfer:
    """`tables`: for each technique the table that has its runs under that name, and the dense runs. With `draws` of 0
    there are no intervals."""
    if not in_size_and_experts(law):
        raise InputError(f"law {law.name} is not a law in (N, E): transfer compares such laws, e.g. bilinear.")
    fits: dict[tuple[str, str], CorpusFit] = {}
    refusals: dict[tuple[str, str], str] = {}
    for technique, table in tables.items():
        for target in targets:
            try:
                points = select_points(table, technique, target=target, mixed=False, include_dense=include_dense)
                fit = fit_law(law, points)
            except InputError as error:
                refusals[technique, target] = str(error).removeprefix(f"{table.source}: ")
                continue
            fits[technique, target] = CorpusFit(technique, target, fit, _draws(fit, draws), level)
    return Transfer(law, tuple(targets), fits, refusals)


def _draws(fit: Fit, draws: int) -> Draws | None:
    try:
        return bootstrap(fit, draws=draws) if draws else None
    except InputError:
        return None
