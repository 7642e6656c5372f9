"""What the losses of one source say: techniques, their points and laws, the selected law, and how far to trust it.

A technique is a router and what it was varied in, with the dense runs it is measured against. A sweep over an option of
one router is a comparison of techniques like any other, so each variant stands for itself: under a name of its own,
with its own colour, its own law and its own dense runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.fitting.comparison import RouterComparison, compare_techniques
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.fit_report import FitReport, judge_fit
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.pairwise import TechniqueRanking, compare_pairwise
from routelaw.fitting.points import Points, in_size_and_experts, select_points
from routelaw.fitting.selection import Ranked, Skipped, choose_law, comparable_laws, mean_error, rank_laws
from routelaw.fitting.validation import Validation
from routelaw.formatting import printable
from routelaw.laws.law import Law
from routelaw.laws.power_sum import PowerSum
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE, TECHNIQUES, canonical_router


@dataclass(frozen=True, eq=False)
class Technique:
    key: str
    """What its rows are called in `table`: the router's name, with the variant where there is one."""
    router: str
    variant: str
    label: str
    """For people."""
    table: RunTable
    """Its own runs under `key`, and the dense runs."""


@dataclass(frozen=True)
class PlotStyle:
    label: str
    colour: str
    mark: str
    """A marker of Matplotlib."""
    symbol: str
    """The same in Plotly."""


MOST_SHOWN = 10
"""Techniques that charts and grids show at first; the tables beside a page have all."""
PLUGIN = "plugin="
"""Names the version of a router of one's own (specs/run.py)."""
SYMBOLS = {"D": "diamond", "o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "P": "cross"}
SPARE_MARKS = {"X": "x", "*": "star", "p": "pentagon", "h": "hexagon", "d": "diamond-tall", "<": "triangle-left"}


def label_of(router: str, variant: str = "") -> str:
    """Known routers as the paper writes them, others as their authors do."""
    name = style.router_label(router) if router in TECHNIQUES else router
    return printable(f"{name} ({variant.replace(',', ', ')})" if variant else name)


def techniques_of(table: RunTable) -> list[Technique]:
    """Every routed technique of a table, plain routers before their variants."""
    frame = table.frame
    routed = frame[frame["router"] != DENSE]
    pairs = sorted(set(zip(routed["router"], routed["variant"], strict=True)), key=_order)
    keys: dict[str, tuple[str, str, str]] = {}
    for router, variant in pairs:
        shown = _shown(variant, [other for of, other in pairs if of == router])
        key = canonical_router(f"{router} {shown}") if shown else router
        while key in keys or (shown and key in table.routers):
            key += "'"
        keys[key] = router, variant, shown
    shared = shared_settings(table)
    return [
        Technique(key, router, variant, label_of(router, without(shown, shared)), _rows(table, key, router, variant))
        for key, (router, variant, shown) in keys.items()
    ]


def shared_settings(table: RunTable) -> list[str]:
    """The settings that all runs have in their variants, dense ones too: the names of techniques leave them out."""
    variants = [set(str(variant).split(",")) for variant in table.frame["variant"].unique()]
    dense = (table.frame["router"] == DENSE).any()
    return sorted(set.intersection(*variants) - {""}) if variants and dense else []


def without(variant: str, settings: Sequence[str]) -> str:
    """The variant, less these settings."""
    return ",".join(part for part in variant.split(",") if part not in settings)


def _shown(variant: str, variants: list[str]) -> str:
    """A variant without the version of its plugin, where all runs of the router are of that one version."""
    versions = {part for other in variants for part in other.split(",") if part.startswith(PLUGIN)}
    return _without_plugin(variant) if len(versions) == 1 and all(PLUGIN in v for v in variants) else variant


def _without_plugin(variant: str) -> str:
    return ",".join(part for part in variant.split(",") if not part.startswith(PLUGIN))


def _order(pair: tuple[str, str]) -> tuple[bool, int, str, str]:
    router, variant = pair
    known = TECHNIQUES.index(router) if router in TECHNIQUES else len(TECHNIQUES)
    return bool(variant), known, router, variant


def _rows(table: RunTable, key: str, router: str, variant: str) -> RunTable:
    """Dense runs of the same variant (rotary positions, say) where there are some, else the plain ones."""
    frame = table.frame
    dense = frame["router"] == DENSE
    same = dense & (frame["variant"] == _without_plugin(variant))
    dense = same if same.any() else dense & (frame["variant"] == "")
    own = (frame["router"] == router) & (frame["variant"] == variant)
    rows: pd.DataFrame = frame[own | dense]
    rows = rows.assign(router=rows["router"].mask(own, key).astype("str"), variant="")
    return replace(table, frame=rows)


def plot_styles(keys: dict[str, str]) -> dict[str, PlotStyle]:
    """Colour and marks by key, the same in every chart of a page; `keys` maps each to its label."""
    colours = style.router_colours([DENSE, *keys])
    looks = {}
    spare = 0
    for key, label in {DENSE: label_of(DENSE), **keys}.items():
        if key in style.ROUTER_MARKS:
            mark = style.router_mark(key)
            symbol = SYMBOLS[mark]
        else:
            mark, symbol = list(SPARE_MARKS.items())[spare % len(SPARE_MARKS)]
            spare += 1
        looks[key] = PlotStyle(label, colours[key], mark, symbol)
    return looks


SEARCHES = 8
"""Starts followed in each fit. 100 find the same on the paper's losses in twice the time and more."""
POINTS_PER_PARAMETER = 2
"""Laws with fewer points for each parameter are not tried: they would fit anything."""
TOO_FEW = "fewer than two for each"


@dataclass(frozen=True, eq=False)
class Analysis:
    """What the losses of one source say about one target. Keys are techniques."""

    table: RunTable
    target: str
    level: float
    techniques: dict[str, Technique]
    looks: dict[str, PlotStyle]
    points: dict[str, Points]
    """What laws are fitted to, seeds averaged; techniques without a finished run are missing."""
    runs: dict[str, Points]
    """The same, run by run."""
    refusals: dict[str, str]
    """Why a technique has no points, or no law."""
    ranked: dict[str, list[Ranked]]
    skipped: dict[str, list[Skipped]]
    law: Law | None
    """The selected one: what charts draw first and words speak of. None where nothing could be fitted."""
    why: str
    """Why it was selected."""
    judged: dict[str, FitReport]
    """Under that law."""
    compared: RouterComparison | None
    """Techniques under that law at one point, where sizes can be resampled."""
    dense: Fit | None
    """The power law in N of the dense runs."""

    @cached_property
    def pairwise(self) -> TechniqueRanking:
        """Techniques compared by what was measured, without a law."""
        return compare_pairwise(self.runs, [judged.fit for judged in self.judged.values()], self.level)

    @cached_property
    def most_trained(self) -> list[str]:
        """The techniques that a chart or grid has room for: those trained at most sizes and E, in the usual order."""
        models = Counter(model.technique for model in self.pairwise.models)
        chosen = sorted(self.techniques, key=lambda key: -models[key])[:MOST_SHOWN]
        return [key for key in self.techniques if key in chosen]

    @property
    def others(self) -> list[str]:
        """The techniques that are not among these."""
        return [key for key in self.techniques if key not in self.most_trained]

    def fits(self, law: str) -> dict[str, Fit]:
        return {key: row.fit for key, rows in self.ranked.items() for row in rows if row.fit.law.name == law}

    @property
    def selected(self) -> str:
        """Name of the selected law; empty where there is none."""
        return self.law.name if self.law else ""

    @property
    def laws(self) -> list[str]:
        """Fitted laws in (N, E), the selected one first, then by how well they predict unseen sizes."""
        names = {r.fit.law.name: None for rows in self.ranked.values() for r in rows if in_size_and_experts(r.fit.law)}
        return sorted(names, key=lambda name: (name != self.selected, mean_error(self.ranked, name)))


def analyse(
    table: RunTable,
    target: str = "loss_validation",
    *,
    law: Law | None = None,
    own_laws: Sequence[Law] = (),
    level: float = DEFAULT_LEVEL,
) -> Analysis:
    """Everything a page is drawn from. `law` is selected if given; `own_laws` take part however few points."""
    techniques = {t.key: t for t in techniques_of(table)}
    points, runs, refusals = _select(techniques, target)
    ranked: dict[str, list[Ranked]] = {}
    skipped: dict[str, list[Skipped]] = {}
    asked = [*own_laws, *([law] if law else [])]
    for key, own in points.items():
        ranked[key], skipped[key] = [], []
        if why := _too_few_sizes(own):
            refusals[key] = why
            continue
        tried, not_tried = _worth_trying(own, asked)
        ranked[key], refused = rank_laws(own, tried, level)
        skipped[key] = [*refused, *not_tried]
        if not ranked[key]:
            refusals[key] = _least(skipped[key], own)
    selected, why = choose_law(ranked, law)
    fits = {key: r.fit for key, rows in ranked.items() for r in rows if selected and r.fit.law.name == selected.name}
    judged = {key: judge_fit(fit, _validation(fit, ranked[key]), level) for key, fit in fits.items()}
    return Analysis(
        table=table,
        target=target,
        level=level,
        techniques=techniques,
        looks=plot_styles({t.key: t.label for t in techniques.values()}),
        points=points,
        runs=runs,
        refusals=refusals,
        ranked=ranked,
        skipped=skipped,
        law=selected,
        why=why,
        judged=judged,
        compared=compare_techniques(judged, level),
        dense=_dense_law(table, target),
    )


def _select(
    techniques: Mapping[str, Technique], target: str
) -> tuple[dict[str, Points], dict[str, Points], dict[str, str]]:
    points, runs, refusals = {}, {}, {}
    for key, technique in techniques.items():
        try:
            points[key] = select_points(technique.table, key, mixed=False, target=target)
            runs[key] = select_points(technique.table, key, mixed=False, target=target, average_seeds=False)
        except InputError as error:
            why = str(error).removeprefix(f"{technique.table.source}: ")
            refusals[key] = why.replace(f" {key} ", f" {technique.label} ") if technique.variant else why
    return points, runs, refusals


def _worth_trying(points: Points, asked: Sequence[Law]) -> tuple[list[Law], list[Skipped]]:
    named = {law.name for law in asked}
    laws = {law.name: law for law in [*comparable_laws(), *asked]}
    tried, not_tried = [], []
    for law in laws.values():
        needed = POINTS_PER_PARAMETER * len(law.parameters)
        if law.name not in named and len(points) < needed:
            why = f"law {law.name} has {len(law.parameters)} parameters, and {len(points)} points are {TOO_FEW}."
            not_tried.append(Skipped(law.name, why))
        else:
            quick = isinstance(law, PowerSum) and law.searches > SEARCHES
            tried.append(replace(law, searches=SEARCHES) if quick else law)
    return tried, not_tried


def _too_few_sizes(points: Points) -> str:
    """Dense runs of other sizes say nothing of how a technique scales: it must have been trained at two of them."""
    sizes = points.where(~points.dense).sizes
    return "" if len(sizes) > 1 else f"it was trained at one size only ({sizes[0]}), and a law in size needs two."


def _least(skipped: Sequence[Skipped], points: Points) -> str:
    """Why not even the simplest law: the first reason that is not about a missing column."""
    reasons = [s.reason for s in skipped if "column" not in s.reason]
    return reasons[0] if reasons else f"{len(points)} points are too few for any law."


def _validation(fit: Fit, rows: Sequence[Ranked]) -> Validation:
    return next(row.validation for row in rows if row.fit is fit)


def _dense_law(table: RunTable, target: str) -> Fit | None:
    try:
        return fit_law("dense", select_points(table, DENSE, target=target))
    except InputError:
        return None
