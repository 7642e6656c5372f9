"""The runs that advice is given on: of one loss, one corpus and one length, with variants relative to what is usual."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.fitting.claims import Effect, student
from routelaw.fitting.fit import fit_law
from routelaw.fitting.fit_report import FitReport, judge_fit
from routelaw.fitting.intervals import Draws, bootstrap
from routelaw.fitting.matched_runs import VALIDATION, MatchedRuns
from routelaw.fitting.noise import SAME_LENGTH, seed_groups
from routelaw.fitting.pairwise import LossNoise, TechniqueRanking, compare_pairwise, seed_noise
from routelaw.fitting.points import Points, keep, one_corpus, select_points
from routelaw.fitting.validation import validate
from routelaw.formatting import number
from routelaw.runs.table import FINISHED, SOURCE, RunTable, last_status
from routelaw.runs.variants import Usual, relative_to_usual, usual_in
from routelaw.specs.names import DENSE, nearest_hint

PAPER_LAW, SIMPLER_LAW, OTHER_LAW = "saturated", "bilinear", "irreducible"
"""The paper's law, what stands for it where points are too few, and a law in (N, E) of another form."""
DRAWS = 300
"""Resamples of runs."""
POINTS_PER_PARAMETER = 2
"""Laws with fewer points for each parameter are not fitted: they would fit anything."""
CELL = ["router", "size", "experts", "k", "routing_frequency"]
"""What one measured loss is of: seeds are averaged."""


@dataclass(frozen=True, eq=False)
class AdviceRuns:
    table: RunTable
    """Variants are relative to the usual ones, and the loss asked for is called loss_validation."""
    usual: Usual
    target: str
    level: float
    gain: float
    """The gain of a doubling of E that counts as small, in percent of the loss."""
    asked: str | None
    """The variant asked for; None for the usual ones."""
    trained: tuple[str, ...]
    """Routers that the table holds."""
    left_out: tuple[str, ...] = ()

    @cached_property
    def matched(self) -> MatchedRuns:
        """The runs of usual variants: what chance is, is read off their seeds."""
        frame = self.table.frame
        return MatchedRuns(replace(self.table, frame=frame[frame["variant"] == ""]))

    @cached_property
    def _finals(self) -> pd.DataFrame:
        """Last rows of finished runs of the usual variants, each with the number of the model that it is a seed of."""
        rows = self.matched.finals
        rows = rows[rows[VALIDATION].notna()]
        dense = rows["router"] == DENSE
        shape = {"experts": 1, "k": self.usual.k, "routing_frequency": self.usual.routing_frequency}
        rows = rows.assign(**{name: rows[name].mask(dense, value) for name, value in shape.items()})
        return rows.assign(model=seed_groups(rows), log_loss=np.log10(rows[VALIDATION].astype(float)))

    @cached_property
    def cells(self) -> pd.DataFrame:
        """log10 L and the number of seeds of every router, size, E, K and R whose runs differ in the seed alone."""
        models = self._finals.groupby(CELL, sort=False)
        cells = models.agg(
            log_loss=("log_loss", "mean"),
            seeds=("run_id", "nunique"),
            models=("model", "nunique"),
            active_params=("active_params", "mean"),
            flops_per_token=("flops_per_token", "mean"),
        ).reset_index()
        return cells[cells["models"] == 1].drop(columns="models").sort_values(["active_params", "experts"])

    @cached_property
    def mixed(self) -> int:
        """Cells that are not compared, because their runs differ in more than the seed."""
        return int((self._finals.groupby(CELL)["model"].nunique() > 1).sum())

    @cached_property
    def dense(self) -> pd.DataFrame:
        """Dense models by size."""
        return self.cells[self.cells["router"] == DENSE].set_index("size")

    @cached_property
    def routed(self) -> pd.DataFrame:
        """Routed models of every K and R."""
        return self.cells[self.cells["router"] != DENSE]

    @cached_property
    def usual_routed(self) -> pd.DataFrame:
        """Routed models of the usual K and R."""
        rows = self.routed
        usual_r = np.isclose(rows["routing_frequency"], self.usual.routing_frequency)
        return rows[(rows["k"] == self.usual.k) & usual_r]

    @cached_property
    def routers(self) -> list[str]:
        """Routers with a model of the usual K and R, by name."""
        return sorted(self.usual_routed["router"].unique())

    @property
    def not_judged(self) -> list[str]:
        """Routers of the table that have no model to judge: none of the usual variant, K, R and length finished."""
        return sorted(set(self.trained) - set(self.routers))

    @cached_property
    def ordered(self) -> list[str]:
        """The same routers, the best first where they can be compared."""
        return [*self.ranking.order, *(r for r in self.routers if r not in self.ranking.order)]

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Active parameters of each size of a routed model of the usual K and R, smallest first."""
        by_size = self.usual_routed.groupby("size")["active_params"].min().sort_values()
        return {str(size): float(active) for size, active in by_size.items()}

    @cached_property
    def experts(self) -> list[int]:
        return sorted(int(e) for e in self.usual_routed["experts"].unique())

    @cached_property
    def points(self) -> dict[str, Points]:
        """What a law is fitted to, by router: seeds averaged, with the dense runs."""
        return {router: self._points(router, average_seeds=True) for router in self.routers}

    @cached_property
    def _points_of_seeds(self) -> dict[str, Points]:
        return {router: self._points(router, average_seeds=False) for router in self.routers}

    def _points(self, router: str, average_seeds: bool) -> Points:
        shape = {"k": self.usual.k, "routing_frequency": self.usual.routing_frequency}
        return select_points(self.matched.table, router, variant="", average_seeds=average_seeds, **shape)

    @cached_property
    def _fitted(self) -> dict[str, tuple[dict[str, FitReport], str]]:
        return {router: self._fits_of(router) for router in self.routers}

    def _fits_of(self, router: str) -> tuple[dict[str, FitReport], str]:
        """Reports by law, and why the paper's is not among them."""
        points = self.points[router]
        reports: dict[str, FitReport] = {}
        why = ""
        for law in (PAPER_LAW, OTHER_LAW, SIMPLER_LAW):
            if law == SIMPLER_LAW and PAPER_LAW in reports:
                continue
            try:
                fit = fit_law(law, points)
                if len(points) < POINTS_PER_PARAMETER * len(fit.law.parameters):
                    few = f"{len(fit.law.parameters)} parameters, and {router} has {len(points)} points only"
                    raise InputError(f"law {law} has {few}.")
                if fit.status == "unidentified":
                    raise InputError(f"law {law}: {fit.warnings[-1]}")
                reports[law] = judge_fit(fit, validate(fit), self.level)
            except InputError as error:
                why = why or str(error).removeprefix(f"{self.table.source}: ").replace(", or use --law experts", "")
        return reports, why

    def fits(self, router: str) -> dict[str, FitReport]:
        """What could be fitted to a router, by law."""
        return self._fitted[router][0]

    def why_no_law(self, router: str) -> str:
        return self._fitted[router][1]

    def paper_fit(self, router: str) -> FitReport | None:
        """The paper's law or, without saturation, the bilinear one; None where points are too few for either."""
        found = self.fits(router)
        return found.get(PAPER_LAW, found.get(SIMPLER_LAW))

    def best_fit(self, router: str) -> FitReport | None:
        """The law that predicts sizes it has not seen better; without such errors the paper's."""
        found = [fit for fit in self.fits(router).values() if fit.validation.leave_size_out is not None]
        return min(found, key=lambda f: f.validation.leave_size_out or 0.0) if found else self.paper_fit(router)

    @cached_property
    def resampled_runs(self) -> dict[str, Draws]:
        """The paper's law refitted to resampled runs, for the routers for which sizes can be resampled, too."""
        drawn = {}
        for router in self.routers:
            report = self.paper_fit(router)
            if report is not None and report.draws is not None and report.fit.status == "converged":
                with suppress(InputError):
                    drawn[router] = bootstrap(report.fit, "case-bootstrap", DRAWS, seed=1)
        return drawn

    @cached_property
    def ranking(self) -> TechniqueRanking:
        return self.ranked(self.level)

    def ranked(self, level: float) -> TechniqueRanking:
        """The routers compared in pairs, with intervals of this level."""
        points = self._points_of_seeds
        fits = [] if seed_noise(points) else [f.fit for r in self.routers if (f := self.best_fit(r))]
        return compare_pairwise(points, fits, level)

    def noise(self, size: str) -> LossNoise | None:
        """The noise of one run of a size: from seeds or, where none was repeated, from the scatter about the laws."""
        seeds = self.matched.noise(size)
        return self.ranking.noise if seeds is None else LossNoise(seeds.sd, float(seeds.freedom), "seeds")

    @cached_property
    def noise_words(self) -> str:
        """How much runs differ by chance, in a sentence."""
        seeds, scatter = self.matched.noise(), self.ranking.noise
        if seeds is not None:
            spread, sizes = 100 * (10**seeds.sd - 1), ", ".join(self.matched.seeded_sizes)
            repeated = f"{seeds.freedom:.0f} repetitions, at {sizes}"
            return f"Seeds of one model differ by {spread:.2g} % of the loss (standard deviation; {repeated})."
        if scatter is not None:
            spread = f"{100 * (10**scatter.sd - 1):.2g} % of the loss"
            return f"No model was trained with two seeds; runs scatter about the fitted laws by {spread}."
        return "No model was trained with two seeds and no law could be fitted: nothing says what is chance."


def runs_to_advise_on(table: RunTable, target: str, variant: str | None, level: float, gain: float) -> AdviceRuns:
    """One loss, corpus, length and variant for each router; what is left out is said."""
    if SOURCE in table.frame and table.frame[SOURCE].nunique() > 1:
        raise InputError(f"{table.source}: its runs were put together from several tables: keep those of one {SOURCE}.")
    if target not in table.losses:
        hint, there = nearest_hint(target, table.losses), ", ".join(table.losses)
        raise InputError(f"{table.source}: no loss {target!r}{hint}; the losses are {there}.")
    frame, left_out = table.frame, []
    frame = keep(frame, last_status(frame) == FINISHED, "not finished", left_out)
    measured = frame[target].notna().groupby(frame["run_id"]).transform("any")
    frame = keep(frame, measured, f"without a value of {target}", left_out)
    if variant is not None:
        frame = _of_variant(frame, variant, table.source, left_out)
    frame = one_corpus(frame, left_out)
    if frame.empty:
        because = f": left out are {'; '.join(left_out)}" if left_out else ""
        raise InputError(f"{table.source}: no run is left to advise on{because}.")
    plain = replace(table, frame=frame, notes=())
    usual, relative = usual_in(plain), relative_to_usual(plain)
    frame = _one_length(relative.frame, left_out)
    others = int((frame["variant"] != "").groupby(frame["run_id"]).first().sum())
    if others:
        left_out.append(f"{others} run{'s' * (others > 1)} of unusual variants")
    losses = [name for name in table.losses if name != target]
    frame = frame.drop(columns=losses).rename(columns={target: VALIDATION})
    trained = tuple(router for router in table.routers if router != DENSE)
    return AdviceRuns(replace(relative, frame=frame), usual, target, level, gain, variant, trained, tuple(left_out))


def _of_variant(frame: pd.DataFrame, variant: str, source: str, left_out: list[str]) -> pd.DataFrame:
    routed = frame["router"] != DENSE
    there = sorted(set(frame["variant"][routed]))
    if variant not in there:
        known = ", ".join(name or "'' (the defaults)" for name in there) or "none"
        raise InputError(
            f"{source}: no routed run has variant {variant!r}{nearest_hint(variant, there)}; the variants are {known}."
        )
    return keep(frame, ~routed | (frame["variant"] == variant), f"of another variant than {variant!r}", left_out)


def _one_length(frame: pd.DataFrame, left_out: list[str]) -> pd.DataFrame:
    """Runs planned for as many tokens as most of the usual variants: what holds at one length need not at another."""
    plans = frame.groupby("run_id")["tokens_planned"].first()
    usual = frame.loc[frame["variant"] == "", "run_id"].unique()
    if plans.isna().any() or plans.nunique() < 2:
        return frame
    commonest = float(plans[usual if len(usual) else plans.index].mode().max())
    alike = (frame["tokens_planned"].astype(float) / commonest).between(1 / SAME_LENGTH, SAME_LENGTH)
    return keep(frame, alike, f"of another length than {number(commonest)} tokens", left_out)


def mean_of_shared(differences: np.ndarray, variance: float, noise: LossNoise | None, level: float) -> Effect:
    """Mean difference of several models to one, whose noise does not average out; `variance` is that of the mean, in
    variances of one run."""
    value = float(np.mean(differences))
    if noise is None:
        return Effect(value, basis="No seeds and no law: no interval.")
    half = student(noise.freedom, level) * noise.sd * float(np.sqrt(variance))
    return Effect.around(value, half, f"Interval from {noise_source(noise)}.")


def noise_source(noise: LossNoise) -> str:
    kind = "seed noise" if noise.kind == "seeds" else "the scatter about the fitted laws"
    return f"{kind} with {noise.freedom:.0f} degrees of freedom"


def _mapped(effect: Effect, to: Callable[[float], float]) -> Effect:
    low, high = (end if np.isinf(end) else to(end) for end in (effect.low, effect.high))
    return Effect(to(effect.value), low, high, effect.basis)


def share_taken_off(effect: Effect) -> Effect:
    """A difference of log10 L as the percentage of the higher loss that is taken off."""
    return _mapped(effect, lambda x: 100 * (1 - 10.0**-x))


def share_added(effect: Effect) -> Effect:
    """A difference of log10 L as the percentage that is added to the lower loss."""
    return _mapped(effect, lambda x: 100 * (10.0**x - 1))
