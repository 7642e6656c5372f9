"""Every law that applies, on every table, by its error on runs it has not seen: which laws to trust, and how surely.

A table stands in the league once for each of its routers. All laws are fitted to the same points there: those of every
length where the table has several, for the laws in tokens, and those of one length for the others. A law whose
parameters the points do not determine is listed and not ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.intervals import DEFAULT_LEVEL, stretched_ends
from routelaw.fitting.lengths import several_lengths
from routelaw.fitting.points import Points, has_finished, select_points
from routelaw.fitting.selection import comparable_laws
from routelaw.fitting.splits import SPLITS, error_on, held_out
from routelaw.fitting.validation import held_out_residuals
from routelaw.laws import all_laws
from routelaw.laws.law import Array, Law
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE

SIZE_OUT, LARGEST_OUT = "leave_size_out", "largest_size_out"
ALL_SPLITS = (SIZE_OUT, LARGEST_OUT, *SPLITS)
RESAMPLES = 2000


@dataclass(frozen=True)
class Standing:
    """One law on one table, router and split."""

    table: str
    router: str
    split: str
    law: str
    parameters: int
    status: str
    error: float
    """RMSLE in log10 L of what was held out."""
    low: float
    high: float
    held_out: int
    """Points that were held out (each in its turn, where every size is)."""
    rank: int
    behind: float
    """The error over the best law's."""
    at_bounds: str
    """Parameters that ended at a bound."""


@dataclass(frozen=True)
class NotRanked:
    table: str
    router: str
    law: str
    reason: str


@dataclass(frozen=True, eq=False)
class League:
    """Where every law stands in every contest: a table, a router and what was held out.

    >>> found = rl.league([table], laws=[rl.get_law("bilinear")])
    >>> isinstance(found, rl.League), found.standings[0].law, found.standings[0].rank
    (True, 'bilinear', 1)
    """

    standings: list[Standing]
    not_ranked: list[NotRanked]
    notes: list[str] = field(default_factory=list)

    def overall(self) -> list[tuple[str, float, float, int]]:
        """Laws by how far they are behind the best, in the geometric mean over all contests (table, router and split)
        that the law stands in: name, that factor, mean rank, contests."""
        rows = []
        for law in dict.fromkeys(s.law for s in self.standings):
            own = [s for s in self.standings if s.law == law]
            behind = float(np.exp(np.mean([np.log(s.behind) for s in own])))
            rows.append((law, behind, float(np.mean([s.rank for s in own])), len(own)))
        return sorted(rows, key=lambda row: row[1])

    def contests(self) -> Iterator[tuple[str, str, str, list[Standing]]]:
        """(table, router, split) and its laws, best first."""
        keys = dict.fromkeys((s.table, s.router, s.split) for s in self.standings)
        for table, router, split in keys:
            own = [s for s in self.standings if (s.table, s.router, s.split) == (table, router, split)]
            yield table, router, split, sorted(own, key=lambda s: s.rank)

    def as_dict(self) -> dict[str, Any]:
        names = ("law", "behind", "mean_rank", "contests")
        return {
            "standings": [asdict(s) for s in self.standings],
            "not_ranked": [asdict(n) for n in self.not_ranked],
            "overall": [dict(zip(names, row, strict=True)) for row in self.overall()],
            "notes": self.notes,
        }


def league(
    tables: Sequence[RunTable],
    *,
    laws: Sequence[Law] = (),
    target: str | None = None,
    level: float = DEFAULT_LEVEL,
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> League:
    """Fit every law to every router of every table, and hold out what each split holds out.

    `laws` are ranked alone where given. `target` is the loss; a table without it stands with its first one.

    >>> found = rl.league([table], laws=[rl.get_law("bilinear"), rl.get_law("separable")])
    >>> [name for name, *_ in found.overall()]
    ['bilinear', 'separable']
    """
    standings: list[Standing] = []
    not_ranked: list[NotRanked] = []
    notes: list[str] = []
    entries = [(table, router) for table in tables for router in _routers(table)]
    for done, (table, router) in enumerate(entries):
        progress(done, len(entries), f"{table.source}: {router}")
        loss = target if target in table.losses else table.losses[0]
        in_tokens = several_lengths(table)
        try:
            points = select_points(table, router, target=loss, mixed=in_tokens, every_length=in_tokens)
        except InputError as error:
            notes.append(str(error))
            continue
        notes += [f"{table.source}: {router}: {sentence}" for sentence in (*_said(points, loss), *points.warnings)]
        chosen = _laws_for(laws, in_tokens)
        found, left = _contests(points, chosen, table.source, level, seed)
        standings += found
        not_ranked += [
            NotRanked(table.source, router, law.name, _why_not(law, in_tokens)) for law in laws if law not in chosen
        ]
        not_ranked += left
    progress(len(entries), len(entries), "done")
    if not standings:
        raise InputError(
            "no law can be ranked on these tables: " + (not_ranked[0].reason if not_ranked else "no runs to fit.")
        )
    return League(standings, not_ranked, list(dict.fromkeys(notes)))


def _routers(table: RunTable) -> list[str]:
    finished = [router for router in table.routers if has_finished(table, router)]
    return [router for router in finished if router != DENSE] or finished


def _why_not(law: Law, in_tokens: bool) -> str:
    if law.along_training:
        return "it describes whole training curves."
    return (
        "it reads no tokens, and the runs have several lengths."
        if in_tokens
        else ("it reads tokens, and most runs have one length.")
    )


def _laws_for(asked: Sequence[Law], in_tokens: bool) -> list[Law]:
    chosen = list(asked) or [*comparable_laws(in_tokens), *_in_size_alone(in_tokens)]
    return [law for law in chosen if ("tokens" in law.inputs) == in_tokens and not law.along_training]


def _in_size_alone(in_tokens: bool) -> list[Law]:
    """Laws that know no routing: of dense models, and what a law of routed ones must beat."""
    names = ("chinchilla", "kaplan2020-tokens") if in_tokens else ("dense",)
    return [all_laws()[name] for name in names]


def _said(points: Points, loss: str) -> list[str]:
    sentences = [f"{len(points)} points of {len(points.sizes)} sizes, {loss}."]
    return sentences + ([f"left out: {'; '.join(points.left_out)}."] if points.left_out else [])


def _contests(
    points: Points, laws: Sequence[Law], table: str, level: float, seed: int
) -> tuple[list[Standing], list[NotRanked]]:
    not_ranked: list[NotRanked] = []
    fits: list[Fit] = []
    for law in laws:
        try:
            fit = fit_law(law, points)
        except InputError as error:
            reason = str(error).removeprefix(f"{points.source}: ")
        else:
            if fit.status != "unidentified":
                fits.append(fit)
                continue
            reason = next((w for w in fit.warnings if "told apart" in w), "its parameters are not determined.")
        not_ranked.append(NotRanked(table, points.router, law.name, reason))
    standings: list[Standing] = []
    masks = {name: held_out(points, name) for name in SPLITS}
    for split in ALL_SPLITS:
        if split in masks and masks[split] is None:
            continue
        judged: list[tuple[Fit, Array, Array]] = []
        for fit in fits:
            residual_N, size_N = _residuals(fit, split, masks.get(split))
            if residual_N.size and np.isfinite(residual_N).all():
                judged.append((fit, residual_N, size_N))
            else:
                reason = f"without what {split.replace('_', ' ')} leaves out, its parameters are not determined."
                not_ranked.append(NotRanked(table, points.router, fit.law.name, reason))
        standings += _ranked(judged, points, table, split, level, seed)
    return standings, not_ranked


def _residuals(fit: Fit, split: str, held_N: Array | None) -> tuple[Array, Array]:
    """Residuals of the points held out, and the size of each."""
    points = fit.points
    if held_N is not None:
        return error_on(fit, held_N)[1], points.size[held_N]
    residual_N = held_out_residuals(fit, points.size)
    if split == LARGEST_OUT:
        largest_N = points.size == points.sizes[-1]
        return residual_N[largest_N], points.size[largest_N]
    return residual_N, points.size


def _ranked(
    judged: Sequence[tuple[Fit, Array, Array]], points: Points, table: str, split: str, level: float, seed: int
) -> list[Standing]:
    errors = [float(np.sqrt((residual_N**2).mean())) for _, residual_N, _ in judged]
    standings = []
    for place, nth in enumerate(np.argsort(errors, kind="stable"), start=1):
        fit, residual_N, size_N = judged[nth]
        low, high = _interval(residual_N, size_N, errors[nth], level, seed)
        bounds = [w.split(" ended at")[0] for w in fit.warnings if " ended at its " in w]
        standings.append(
            Standing(
                table,
                points.router,
                split,
                fit.law.name,
                len(fit.law.parameters),
                fit.status,
                errors[nth],
                low,
                high,
                residual_N.size,
                place,
                errors[nth] / max(min(errors), 1e-300),
                ", ".join(bounds),
            )
        )
    return standings


def _interval(residual_N: Array, size_N: Array, error: float, level: float, seed: int) -> tuple[float, float]:
    """Over resampled sizes, or over resampled points where there are fewer than three sizes."""
    groups = np.unique(size_N.astype(str), return_inverse=True)[1]
    if groups.max() < 2:
        groups = np.arange(residual_N.size)
    count = int(groups.max()) + 1
    if count < 2:
        return float("nan"), float("nan")
    draws_RG = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    squares_G, sizes_G = np.bincount(groups, residual_N**2), np.bincount(groups)
    drawn_R = np.sqrt((draws_RG @ squares_G) / (draws_RG @ sizes_G))
    low, high = stretched_ends(error, drawn_R, count, level)
    return max(float(low), 0.0), float(high)
