"""Routers under one law, and a whole table compared: the laws on every router, and the routers under one of them.

Routers are compared by refitting all of them to the same resampled sizes, so that what sizes share cancels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit, fit_law, is_determined
from routelaw.fitting.fit_report import FitReport, extrapolation, reference_point
from routelaw.fitting.intervals import DEFAULT_LEVEL, probability_larger, refit, resample_counts, stretched_ends
from routelaw.fitting.lengths import one_length, reads_length, several_lengths
from routelaw.fitting.points import has_finished, in_size_and_experts, keep, knows_routing, one_corpus, select_points
from routelaw.fitting.selection import Ranked, Skipped, comparable_laws, mean_error, rank_laws
from routelaw.fitting.validation import error_e4
from routelaw.formatting import html_lines, html_table, number, text_table
from routelaw.laws import get_law
from routelaw.laws.equivalence import check_law
from routelaw.laws.law import Array, Law
from routelaw.runs.table import FINISHED, RunTable, last_rows, last_status
from routelaw.specs.names import DENSE, canonical_router

USUAL_EXPERTS = 64
"""E at which routers are compared unless told otherwise."""
LAW_COLUMNS = ("law", "params", "in sample", "one out", "size out", "interval", "largest out", "against the best")


@dataclass(frozen=True, eq=False)
class RouterComparison:
    """Routers under one law at one point, best first."""

    law: Law
    at: dict[str, float]
    routers: list[str]
    loss: dict[str, float]
    interval: dict[str, tuple[float, float]]
    better_probability: dict[tuple[str, str], float]
    """(first, second) -> probability that the first has the lower loss."""


def compare_routers(
    fits: Mapping[str, Fit],
    at: Mapping[str, float],
    *,
    level: float = DEFAULT_LEVEL,
    draws: int = 1000,
    seed: int = 0,
) -> RouterComparison:
    """Predicted losses at a point, refitted jointly to the same resampled sizes, so that what sizes share cancels.

    >>> fits = {name: rl.fit_law("bilinear", rl.select_points(table, name)) for name in ("s-base", "hash")}
    >>> rl.compare_routers(fits, {"active_params": 60e6, "experts": 32}, draws=100).routers
    ['s-base', 'hash']
    """
    law = next(iter(fits.values())).law
    x = {name: np.array([at[name]], dtype=float) for name in law.inputs}
    sizes = sorted({s for fit in fits.values() for s in fit.points.sizes})
    counts_RS = _common_resamples(fits, sizes, draws, seed)
    loss, interval, drawn = {}, {}, {}
    for router, fit in fits.items():
        column_N = np.array([sizes.index(s) for s in fit.points.size])
        log_R = law.log_loss(refit(fit, counts_RS[:, column_N]), x)[:, 0]
        estimate = float(law.log_loss(fit.params_BP, x)[0, 0])
        low, high = stretched_ends(estimate, log_R, len(sizes), level)
        loss[router], interval[router], drawn[router] = 10.0**estimate, (10.0**low, 10.0**high), log_R
    order = sorted(loss, key=loss.__getitem__)
    better = {(p, q): probability_larger(drawn[q], drawn[p], len(sizes)) for p in order for q in order if p != q}
    return RouterComparison(law, dict(at), order, loss, interval, better)


def _common_resamples(fits: Mapping[str, Fit], sizes: list[str], draws: int, seed: int) -> Array:
    """Draws of sizes that determine the law for every router, (R, sizes)."""
    if len(sizes) < 3:
        raise InputError(f"comparing routers needs at least 3 sizes to resample, not {len(sizes)}.")

    def determined(drawn_S: Array) -> bool:
        drawn = np.array(sizes, object)[drawn_S]
        return all(is_determined(fit, np.isin(fit.points.size, drawn)) for fit in fits.values())

    counts_RS = resample_counts(len(sizes), draws, determined, np.random.default_rng(seed))
    if counts_RS is None:
        raise InputError("no resample of these sizes determines the law for every router.")
    return counts_RS


def compare_techniques(judged: Mapping[str, FitReport], level: float) -> RouterComparison | None:
    """At the largest size and E that all techniques were trained with; None where sizes cannot be resampled."""
    usable = {key: j.fit for key, j in judged.items() if j.validation.leave_size_out is not None}
    if len(usable) < 2:
        return None
    seen = [set(zip(f.points.x["active_params"], f.points.x["experts"], strict=True)) for f in usable.values()]
    routed = [pair for pair in set.intersection(*seen) if pair[1] > 1]
    if not routed:
        return None
    active, experts = max(routed)
    try:
        return compare_routers(usable, {"active_params": active, "experts": experts}, level=level)
    except InputError:
        return None


@dataclass(frozen=True, eq=False)
class LawRanking:
    """The laws on one router, best first."""

    router: str
    laws: list[Ranked]
    skipped: list[Skipped]
    """Laws that these points cannot fit."""
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]

    def sentences(self) -> list[str]:
        """What was left out, and warnings. What holds for the points holds for every law, and is said once."""
        sentences = [f"  {self.router}: left out: {'; '.join(self.left_out)}."] if self.left_out else []
        sentences += [f"  {s.law} left out: {s.reason}" for s in self.skipped]
        sentences += [f"! {self.router}: {warning}" for warning in self.warnings]
        for r in self.laws:
            own = (*r.fit.warnings, *r.validation.warnings)
            sentences += [f"! {r.fit.law.name}: {warning}" for warning in own if warning not in self.warnings]
        return sentences


@dataclass(frozen=True, eq=False)
class Comparison:
    """Laws ranked for every router, and the routers compared under one of them.

    >>> found = rl.compare(table, laws=["bilinear", "separable"], experts=8)
    >>> print(found)
    s-base: laws by leave-size-out error (log10 L, ×1e-4; 90% intervals over sizes)
    law        params  in sample  one out  size out  interval ...
    ...
    >>> found.routers.routers[0], found.routers.at["experts"]
    ('s-base', 8)
    """

    target: str
    level: float
    rankings: dict[str, LawRanking]
    """By router."""
    routers: RouterComparison | None
    """None where there is one router, or no law with an error on unseen sizes for all of them."""

    def __repr__(self) -> str:
        texts = ([title, text_table(header, rows), *sentences] for title, header, rows, sentences in self.parts())
        return "\n".join(line for lines in texts for line in lines)

    def _repr_html_(self) -> str:
        parts = (
            html_lines([title]) + html_table(header, rows) + html_lines(s) for title, header, rows, s in self.parts()
        )
        return "".join(parts)

    def parts(self) -> Iterator[tuple[str, list[str], list[list[str]], list[str]]]:
        """Title, head and rows of a table, and sentences below it: of each router, and of the routers together."""
        for router, ranking in self.rankings.items():
            title = f"{router}: laws by leave-size-out error (log10 L, ×1e-4; {self.level:.0%} intervals over sizes)"
            yield title, list(LAW_COLUMNS), [_cells(row) for row in ranking.laws], ranking.sentences()
        if found := self.routers:
            at = f"at N = {number(found.at['active_params'])}, E = {found.at['experts']:g}, under {found.law.name}"
            ends = {router: "[{:.4f}, {:.4f}]".format(*found.interval[router]) for router in found.routers}
            rows = [[router, f"{found.loss[router]:.4f}", ends[router]] for router in found.routers]
            sentences = [
                f"  {better} is better than {worse} with probability {found.better_probability[better, worse]:.2f}."
                for better, worse in zip(found.routers, found.routers[1:], strict=False)
            ]
            yield f"routers {at}", ["router", "predicted loss", f"{self.level:.0%} interval"], rows, sentences

    def as_dict(self) -> dict[str, Any]:
        """What `routelaw compare --json` prints."""
        rankings, found = self.rankings, self.routers
        result: dict[str, Any] = {
            "target": self.target,
            "level": self.level,
            "interval_method": "size-bootstrap of held-out errors",
            "laws": {router: [_row(r) for r in ranking.laws] for router, ranking in rankings.items()},
            "skipped": {router: {s.law: s.reason for s in ranking.skipped} for router, ranking in rankings.items()},
            "left_out": {router: ranking.left_out for router, ranking in rankings.items()},
            "routers": None,
            "warnings": {router: ranking.warnings for router, ranking in rankings.items()},
        }
        if found:
            result["routers"] = {
                "law": found.law.name,
                "at": found.at,
                "order": found.routers,
                "loss": found.loss,
                "interval": found.interval,
                "better_probability": {f"{p} < {q}": v for (p, q), v in found.better_probability.items()},
            }
        return result


def _cells(r: Ranked) -> list[str]:
    v = r.validation
    ends = f"[{error_e4(r.interval[0])}, {error_e4(r.interval[1])}]" if r.interval else "–"
    errors = [error_e4(e) for e in (v.in_sample, v.leave_one_out, v.leave_size_out)]
    name, count = r.fit.law.name, len(r.fit.law.parameters)
    return [name, str(count), *errors, ends, error_e4(v.largest_size_out), against_the_best(r)]


def against_the_best(r: Ranked) -> str:
    """How a law stands against the best one, in words."""
    if r.worse_probability is None:
        return "best" if r.behind == 0 else "–"
    noise = "clearly worse" if r.clearly_worse else "within noise"
    return f"{noise} (P worse {r.worse_probability:.2f})"


def _row(r: Ranked) -> dict[str, Any]:
    v = r.validation
    return {
        "law": r.fit.law.name,
        "parameters": len(r.fit.law.parameters),
        "status": r.fit.status,
        "warnings": [*r.fit.warnings, *r.validation.warnings],
        "rmsle": v.errors,
        "leave_size_out_interval": r.interval,
        "behind_best": r.behind,
        "worse_than_best_probability": r.worse_probability,
        "clearly_worse_than_best": r.clearly_worse,
    }


def routers_to_compare(
    table: RunTable,
    routers: Sequence[str] = (),
    notice: Callable[[str], None] = lambda _: None,
    target: str = "loss_validation",
) -> list[str]:
    """As asked; else all that have a finished run with a value of `target`, or all where none has."""
    if asked := list(dict.fromkeys(map(canonical_router, routers))):
        return asked
    there = [router for router in table.routers if router != DENSE]
    if not there:
        raise InputError(f"{table.source}: there are only dense runs; comparing needs a router.")
    finished = [router for router in there if has_finished(table, router)] or there
    known = target in table.losses  # where it is not, selecting points says so
    measured = [router for router in finished if known and has_finished(table, router, target)] or finished
    for router in there:
        if router not in measured:
            lacks = f" with a value of {target}" if router in finished else ""
            notice(f"{router} is left out: it has no finished run{lacks}.")
    return measured


def laws_to_compare(
    laws: Sequence[str | Law] = (), under: str | Law | None = None, table: RunTable | None = None
) -> list[Law]:
    """As asked, else every law of routed models: in tokens where the table has several lengths, of one length where it
    does not. `under` must be one that routers can be compared by."""
    if under is not None:
        check_law(get_law(under))
    in_tokens = table is not None and several_lengths(table)
    chosen = list({law.name: law for law in map(get_law, laws)}.values()) or comparable_laws(in_tokens)
    by_kind = {reads_length(law): law.name for law in chosen}
    if len(by_kind) > 1:
        raise InputError(
            f"law {by_kind[True]} reads tokens and law {by_kind[False]} holds at one length of training: they are "
            "fitted to other runs, so their errors cannot be compared."
        )
    for law in [*chosen, *([get_law(under)] if under is not None else [])]:
        if law.along_training or not knows_routing(law):
            raise InputError(f"law {law.name} cannot be compared on routed runs at the end of training.")
    return chosen


def compare(
    table: RunTable,
    *,
    laws: Sequence[str | Law] = (),
    routers: Sequence[str] = (),
    target: str = "loss_validation",
    under: str | Law | None = None,
    active_params: float | None = None,
    experts: float | None = None,
    level: float = DEFAULT_LEVEL,
    seed: int = 0,
    notice: Callable[[str], None] = logging.getLogger("routelaw").warning,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Rank laws by their error on sizes they have not seen, and routers by predicted loss; say what is only noise.

    Routers are compared at (`active_params`, `experts`), the middle size and 64 unless given, `under` one law: the best
    on average unless given. `notice` hears which routers are left out, `progress` how many routers of how many are
    done.

    >>> found = rl.compare(table, laws=["bilinear", "separable"], routers=["s-base"])
    >>> [ranked.fit.law.name for ranked in found.rankings["s-base"].laws]
    ['bilinear', 'separable']
    """
    chosen, wanted = laws_to_compare(laws, under, table), routers_to_compare(table, routers, notice, target)
    every_length = reads_length(chosen[0])
    table, wanted = _compared_alike(table, wanted, every_length, notice)
    if len(wanted) == 1:
        for name, given in {"under": under, "active_params": active_params, "experts": experts}.items():
            if given is not None:
                reason = f"with one router ({wanted[0]}) and none to compare it with"
                raise InputError(f"{name} has no effect {reason}: leave it out.")
    rankings: dict[str, LawRanking] = {}
    for router in wanted:
        points = select_points(table, router, mixed=False, target=target, every_length=every_length)
        ranked, skipped = rank_laws(points, chosen, level, seed)
        rankings[router] = LawRanking(router, ranked, skipped, points.left_out, points.warnings)
        progress(len(rankings), len(wanted))
    if not any(ranking.laws for ranking in rankings.values()):
        raise InputError(f"{table.source}: no law can be fitted: {next(iter(rankings.values())).skipped[0].reason}")
    at = (active_params, USUAL_EXPERTS if experts is None else experts)
    compared = _compared({name: r.laws for name, r in rankings.items() if r.laws}, under, *at, level, seed)
    if compared:
        rankings = {name: _with_extrapolation(ranking, compared) for name, ranking in rankings.items()}
    return Comparison(target, level, rankings, compared)


def of_one_length(table: RunTable) -> tuple[RunTable, list[str]]:
    """The table without the finished runs of another length than most are planned for, so that techniques are compared
    at one; and what was left out, a sentence each."""
    last = last_rows(table.frame[last_status(table.frame) == FINISHED])
    left_out: list[str] = []
    others = set(last["run_id"]) - set(one_length(last, left_out, keep)["run_id"])
    if not others:
        return table, []
    frame = table.frame[~table.frame["run_id"].isin(others)].reset_index(drop=True)
    return replace(table, frame=frame), left_out


def _compared_alike(
    table: RunTable, routers: list[str], every_length: bool, notice: Callable[[str], None]
) -> tuple[RunTable, list[str]]:
    """Each router would be fitted to the corpus and length of most of its own runs. Where these are not the same, the
    table with those of most runs of all, and the routers that have any."""
    frame = table.frame[last_status(table.frame) == FINISHED]
    last = last_rows(frame[frame["router"].isin([*routers, DENSE])])

    def alike(rows: pd.DataFrame, left_out: list[str]) -> set[str]:
        rows = one_corpus(rows, left_out)
        return set((rows if every_length else one_length(rows, left_out, keep))["run_id"])

    said: list[str] = []
    kept = alike(last, said)
    own = [last[last["router"].isin([router, DENSE])] for router in routers]
    if not said or all(alike(rows, []) == kept & set(rows["run_id"]) for rows in own):
        return table, routers
    notice(f"so that routers are compared alike, left out are {' and '.join(said)}.")
    there = [router for router in routers if (last["run_id"].isin(kept) & (last["router"] == router)).any()]
    for router in routers:
        if router not in there:
            notice(f"{router} is left out: it has no run of the corpus and length of most runs.")
    if not there:
        raise InputError(f"{table.source}: no routed run has the corpus and length of most runs.")
    others = set(last["run_id"]) - kept
    return replace(table, frame=table.frame[~table.frame["run_id"].isin(others)]), there


def _compared(
    ranked: Mapping[str, Sequence[Ranked]],
    under: str | Law | None,
    active_params: float | None,
    experts: float,
    level: float,
    seed: int,
) -> RouterComparison | None:
    """Routers at one point, under the law asked for or the one with the lowest leave-size-out error on average."""
    if len(ranked) < 2:
        return None
    if under is None:
        names = [r.fit.law.name for rows in ranked.values() for r in rows if in_size_and_experts(r.fit.law)]
        under = min(names, key=lambda name: mean_error(ranked, name), default=None)
        if under is None or mean_error(ranked, under) == float("inf"):
            return None
    law = get_law(under)
    fits = {router: fit_law(law, rows[0].fit.points) for router, rows in ranked.items()}
    at = reference_point(next(iter(fits.values())), active_params, experts)
    return compare_routers(fits, at, level=level, seed=seed)


def _with_extrapolation(ranking: LawRanking, compared: RouterComparison) -> LawRanking:
    """With a warning where a router is compared outside of what was fitted to it."""
    at = compared.at
    fit = ranking.laws[0].fit if ranking.laws else None
    if fit is None or not (outside := extrapolation(fit, at["active_params"], at["experts"])):
        return ranking
    where = f"N = {at['active_params']:.3g} and E = {at['experts']:g}"
    warning = f"its loss at {where} is an extrapolation: {outside}."
    return replace(ranking, warnings=(*ranking.warnings, warning))
