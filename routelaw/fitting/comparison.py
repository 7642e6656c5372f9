"""A whole table compared: the laws on every router, and the routers under one law. The statistics are in compare.py."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routelaw.errors import InputError
from routelaw.fitting.compare import Ranked, RouterComparison, Skipped, comparable_laws, compare_routers, rank_laws
from routelaw.fitting.extrapolation import extrapolation
from routelaw.fitting.fit import fit_law
from routelaw.fitting.fit_report import reference_point
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.points import has_finished, knows_routing, select_points
from routelaw.formatting import html_lines, html_table, text_table
from routelaw.laws import get_law
from routelaw.laws.equivalence import check_law
from routelaw.laws.law import Law
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE, canonical_router

USUAL_EXPERTS = 64
"""E at which routers are compared unless told otherwise."""


@dataclass(frozen=True, eq=False)
class LawRanking:
    """The laws on one router, best first."""

    router: str
    laws: list[Ranked]
    skipped: list[Skipped]
    """Laws that these points cannot fit."""
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Laws ranked for every router, and the routers compared under one of them.

    >>> found = rl.compare(table, laws=["bilinear", "separable"], experts=8)
    >>> print(found)
    s-base: laws by leave-size-out error (log10 L, ×1e-4)
    law        parameters  size out  against the best
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
        return "\n".join(line for title, table, lines in self._parts() for line in (title, text_table(*table), *lines))

    def _repr_html_(self) -> str:
        parts = self._parts()
        return "".join(html_lines([title]) + html_table(*table) + html_lines(lines) for title, table, lines in parts)

    def _parts(self) -> Iterator[tuple[str, tuple[list[str], list[list[str]]], list[str]]]:
        """Title, table and sentences of each router, and of the routers together."""
        header = ["law", "parameters", "size out", "against the best"]
        for router, ranking in self.rankings.items():
            rows = [
                [r.fit.law.name, str(len(r.fit.law.parameters)), _e4(r.validation.leave_size_out), verdict(r)]
                for r in ranking.laws
            ]
            said = [f"{s.law} left out: {s.reason}" for s in ranking.skipped]
            said += [f"warning: {warning}" for warning in ranking.warnings]
            yield f"{router}: laws by leave-size-out error (log10 L, ×1e-4)", (header, rows), said
        if found := self.routers:
            where = f"N = {found.at['active_params']:.4g}, E = {found.at['experts']:g}"
            header = ["router", "predicted loss", f"{100 * self.level:g} % interval"]
            ends = {router: "[{:.4f}, {:.4f}]".format(*found.interval[router]) for router in found.routers}
            rows = [[router, f"{found.loss[router]:.4f}", ends[router]] for router in found.routers]
            said = [
                f"{better} is better than {worse} with probability {found.better_probability[better, worse]:.2f}."
                for better, worse in zip(found.routers, found.routers[1:], strict=False)
            ]
            yield f"routers at {where}, under {found.law.name}", (header, rows), said

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


def _e4(value: float | None) -> str:
    return "–" if value is None else f"{value * 1e4:.1f}"


def verdict(r: Ranked) -> str:
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
        "rmsle": {
            "in_sample": v.in_sample,
            "leave_one_out": v.leave_one_out,
            "leave_size_out": v.leave_size_out,
            "largest_size_out": v.largest_size_out,
        },
        "leave_size_out_interval": r.interval,
        "behind_best": r.behind,
        "worse_than_best_probability": r.worse_probability,
        "clearly_worse_than_best": r.clearly_worse,
    }


def routers_to_compare(
    table: RunTable, routers: Sequence[str] = (), notice: Callable[[str], None] = lambda _: None
) -> list[str]:
    """As asked; else all that have a finished run, or all where none has."""
    if asked := list(dict.fromkeys(map(canonical_router, routers))):
        return asked
    there = [router for router in table.routers if router != DENSE]
    if not there:
        raise InputError(f"{table.source}: there are only dense runs; comparing needs a router.")
    finished = [router for router in there if has_finished(table, router)] or there
    for router in there:
        if router not in finished:
            notice(f"{router} is left out: it has no finished run.")
    return finished


def laws_to_compare(laws: Sequence[str | Law] = (), under: str | Law | None = None) -> list[Law]:
    """As asked, else every law of size and experts or compute; `under` must be one that routers can be compared by."""
    if under is not None:
        check_law(get_law(under))
    chosen = list({law.name: law for law in map(get_law, laws)}.values()) or comparable_laws()
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
    chosen, wanted = laws_to_compare(laws, under), routers_to_compare(table, routers, notice)
    if len(wanted) == 1:
        for name, given in {"under": under, "active_params": active_params, "experts": experts}.items():
            if given is not None:
                reason = f"with one router ({wanted[0]}) and none to compare it with"
                raise InputError(f"{name} has no effect {reason}: leave it out.")
    rankings: dict[str, LawRanking] = {}
    for router in wanted:
        points = select_points(table, router, mixed=False, target=target)
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
    errors: dict[str, list[float]] = {}
    for rows in ranked.values():
        for row in rows:
            if row.validation.leave_size_out is not None and set(row.fit.law.inputs) == {"active_params", "experts"}:
                errors.setdefault(row.fit.law.name, []).append(row.validation.leave_size_out)
    everywhere = {name: sum(e) for name, e in errors.items() if len(e) == len(ranked)}
    if under is None and not everywhere:
        return None
    law = get_law(min(everywhere, key=everywhere.__getitem__) if under is None else under)
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
