"""What figures draw of a run table: its main loss, the usual runs, and the techniques and models that it has.

Figures compare models that differ in nothing but what a figure is about. So the runs drawn are of one corpus and one
length of training, those of most models, and of the usual K and R where a figure is not about these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.figures.figure import CannotDraw
from routelaw.figures.loss_curves import routed_techniques
from routelaw.fitting.fit import Fit, fit_law
from routelaw.fitting.noise import SAME_LENGTH
from routelaw.fitting.points import Points, one_corpus, select_points
from routelaw.laws.law import Law
from routelaw.runs.table import FINISHED, RunTable, last_status
from routelaw.runs.variants import TAKEN, Usual, parts_of, relative_to_usual, usual_in, variant_of
from routelaw.specs.names import DENSE

RELEASE = "clark2022-"
"""What the run_ids of the paper's released losses begin with."""

T = TypeVar("T")


def target_of(table: RunTable) -> str:
    """The loss that figures of one loss show: the table's main one."""
    return table.losses[0]


def with_target(table: RunTable, target: str) -> RunTable:
    """The table with this loss as its main one. The losses on other texts stay, the validation loss does not: it is
    what everybody takes for the main one."""
    main = target_of(table)
    if target == main:
        return table
    rest = [column for column in table.frame if column not in (target, main)]
    first_loss = next(i for i, column in enumerate(table.frame) if column in table.losses)
    return replace(table, frame=table.frame[[*rest[:first_loss], target, *rest[first_loss:]]])


def is_release(table: RunTable) -> bool:
    """Whether these are the paper's own losses, for what is printed in the paper."""
    return bool(table.frame["run_id"].str.startswith(RELEASE).all())


@dataclass(frozen=True, eq=False, repr=False)
class RelativeRuns(RunTable):
    """A run table whose variants are differences from the one that is taken for each router: "" is that one."""


def with_variants(table: RunTable, chosen: Mapping[str, str] | None = None) -> RelativeRuns:
    """Variants relative to the one chosen for a router, else to its most frequent one. There are runs of it: where the
    usual variant is what several have in common and no run has only that, the first of these is taken."""
    chosen = dict(chosen or {})
    for router in _without(table.frame, usual_in(table, chosen).variants):
        own = table.frame[table.frame["router"] == router].drop_duplicates("run_id")
        counts = own["variant"].value_counts()
        chosen[router] = min(counts.index[counts == counts.max()])
    made = relative_to_usual(table, usual_in(table, chosen))
    return RelativeRuns(made.frame, made.source, made.notes, made.warnings)


def _without(frame: pd.DataFrame, variants: Mapping[str, str]) -> list[str]:
    """The routers of which no run is of the variant named, or of "" where none is."""
    pairs = set(zip(frame["router"], (variant_of(parts_of(v)) for v in frame["variant"]), strict=True))
    return [r for r in frame["router"].unique() if (r, variant_of(parts_of(variants.get(r, "")))) not in pairs]


@lru_cache(maxsize=4)
def usual_of(table: RunTable) -> Usual:
    return usual_in(table)


@lru_cache(maxsize=4)
def comparable(table: RunTable) -> RelativeRuns:
    """The finished runs of one corpus and one length, those of most models. Their variants are relative: "" is what
    is taken for usual."""
    if not isinstance(table, RelativeRuns):
        table = with_variants(table)
    frame = table.frame[last_status(table.frame) == FINISHED]
    frame = one_corpus(frame, [])
    models = frame.drop_duplicates("run_id")
    plans = models["tokens_planned"]
    if plans.notna().all() and plans.nunique() > 1:
        most = float(plans.mode().max())
        alike = (frame["tokens_planned"].astype(float) / most).between(1 / SAME_LENGTH, SAME_LENGTH)
        frame = frame[alike]
    return replace(table, frame=frame)


def points_of(
    table: RunTable, router: str, law: Law | None = None, *, variant: str = "", mixed: bool = False, **options: Any
) -> Points:
    """The points of one technique at the usual K and R; with `mixed`, at every K and R."""
    runs, usual = comparable(table), usual_of(table)
    if router not in runs.routers:
        left = " of the usual corpus and length" if router in table.routers else ""
        raise CannotDraw(f"there is no finished run of {router}{left}.")
    there = runs.frame["variant"][runs.frame["router"] == router]
    if not (there == variant).any():
        named = f"of the variant {variant}" if variant else "of the usual variant"
        raise CannotDraw(f"there is no finished run of {router} {named}.")
    if not mixed and router != DENSE:
        options |= {"k": usual.k, "routing_frequency": usual.routing_frequency}
    target = options.pop("target", target_of(table))
    return allowed(table, lambda: select_points(
        runs, router, law, target=target, variant=variant, mixed=mixed, **options
    ))  # fmt: skip


def fit_of(law: str | Law, points: Points) -> Fit:
    return allowed(points, lambda: fit_law(law, points))


def allowed(source: RunTable | Points, make: Callable[[], T]) -> T:
    """What `make` returns; where its input does not do, `CannotDraw` with the sentence that says why."""
    try:
        return make()
    except InputError as error:
        raise CannotDraw(str(error).removeprefix(f"{source.source}: ")) from None


def for_each(routers: Iterable[str], make: Callable[[str], T]) -> tuple[dict[str, T], dict[str, str]]:
    """What is made of each router, and the sentence for each of which it cannot be; some router it must be."""
    made: dict[str, T] = {}
    why_not: dict[str, str] = {}
    for router in routers:
        try:
            made[router] = make(router)
        except CannotDraw as error:
            why_not[router] = str(error)
    if not made:
        raise CannotDraw(next(iter(why_not.values()), "there are no routed runs."))
    return made, why_not


def for_each_routed(table: RunTable, make: Callable[[str], T]) -> tuple[dict[str, T], dict[str, str]]:
    return for_each(routed_techniques(table), make)


def several_sizes(points: Points, least: int = 2) -> Points:
    """The points, if the technique itself was trained at so many sizes."""
    sizes = points.where(~points.dense).sizes if points.router != DENSE else points.sizes
    if len(sizes) < least:
        have = f"{points.router} has {_counted(len(sizes), 'size')} ({', '.join(sizes)})"
        raise CannotDraw(f"{have}, and {least} are needed.")
    return points


def several_experts(points: Points, least: int = 2) -> Points:
    """The points, if they have so many expert counts."""
    experts = np.unique(points.x["experts"])
    if len(experts) < least:
        have = f"{points.router} has {_counted(len(experts), 'expert count')}, dense runs included"
        raise CannotDraw(f"{have}, and {least} are needed.")
    return points


def with_columns(points: Points, *columns: str) -> Points:
    """The points, if the table says these of every one."""
    for column in columns:
        if not np.isfinite(points.x[column]).all():
            raise CannotDraw(f"the column {column} is missing, or empty for some runs of {points.router}.")
    return points


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def relative_notes(table: RunTable) -> list[str]:
    """What was taken for the usual variants, K and R, in sentences."""
    return [note for note in comparable(table).notes if note.startswith(TAKEN)]


def what_is_drawn(table: RunTable) -> list[str]:
    """For each technique a sentence: how many models are compared, and which of its runs are not among them."""
    sentences = []
    usual = usual_of(table)
    for router in [r for r in (DENSE, *routed_techniques(table)) if r in table.routers]:
        try:
            points = points_of(table, router, include_dense=False)
        except CannotDraw as error:
            sentences.append(f"{router}: {error}")
            continue
        at = "" if router == DENSE else f" at K = {usual.k}, R = {usual.routing_frequency:.3g}"
        models, sizes = _counted(len(points), "model"), _counted(len(points.sizes), "size")
        runs = table.frame["run_id"][table.frame["router"] == router].nunique()
        sentences.append(f"{router}: {models} of {sizes}{at}, out of {_counted(runs, 'run')}.")
        sentences += points.warnings
    return list(dict.fromkeys(sentences))


def left_out(why_not: Mapping[str, str], fits: Mapping[str, Fit] | None = None) -> str:
    """What stands in small print over a figure: techniques that are not in it, and laws that are not determined."""
    sentences = [f"{router} is not drawn: {reason.rstrip('.')}." for router, reason in why_not.items()]
    for status in dict.fromkeys(fit.status for fit in (fits or {}).values() if fit.status != "converged"):
        loose = {router: fit.law.name for router, fit in (fits or {}).items() if fit.status == status}
        law = next(iter(loose.values()))
        sentences.append(f"Law {law} is not determined by the runs of {', '.join(loose)} (fit {status}).")
    return " ".join(sentences)
