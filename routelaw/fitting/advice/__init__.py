"""Advice to practitioners: the paper's six recommendations as statements about a table of runs, each with a verdict."""

from __future__ import annotations

import math

from routelaw.errors import InputError
from routelaw.fitting.advice.how_many_experts import how_many_experts
from routelaw.fitting.advice.k_and_r import k_and_r
from routelaw.fitting.advice.limits import limits
from routelaw.fitting.advice.result import Advice
from routelaw.fitting.advice.runs import AdviceRuns, runs_to_advise_on
from routelaw.fitting.advice.runs_lacking import runs_lacking
from routelaw.fitting.advice.use_routing import use_routing
from routelaw.fitting.advice.which_router import which_router
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.matched_runs import VALIDATION
from routelaw.formatting import number
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE

SMALL_GAIN = 1.0
"""Percent of the loss."""


def advise(
    table: RunTable,
    *,
    target: str = VALIDATION,
    variant: str | None = None,
    gain: float = SMALL_GAIN,
    level: float = DEFAULT_LEVEL,
) -> Advice:
    """The paper's six recommendations, judged on these runs: holds, does not hold or cannot tell, with the numbers.

    Of each router its most frequent variant, or the one asked for, and K = 1 and R = 1/2 or what is usual in the table.
    `gain` is the percentage of the loss that a doubling of E has to gain to be worth while.

    >>> advice = rl.advise(table, gain=2)
    >>> router = advice.recommendations[1]
    >>> router.verdict, router.findings[0].claim.statement
    ('holds', 's-base has the lowest loss of the 2 routers at equal size and E')
    """
    if not (math.isfinite(gain) and 0 < gain < 100):
        raise InputError(f"the gain of a doubling must be a percentage between 0 and 100, not {gain:g}.")
    runs = runs_to_advise_on(table, target, variant, level, gain)
    parts = (use_routing, which_router, how_many_experts, k_and_r, limits, runs_lacking)
    recommendations = tuple(part(runs) for part in parts)
    return Advice(table.source, target, level, tuple(_scope(runs)), recommendations, tuple(_warnings(runs)))


def _scope(runs: AdviceRuns) -> list[str]:
    """At what scale all of it holds, what was taken as usual or left out, and how much is chance."""
    sentences = [_scale(runs), *(runs.usual.notes if runs.asked is None else _as_asked(runs))]
    if runs.left_out:
        sentences.append(f"Left out: {'; '.join(runs.left_out)}.")
    if runs.not_judged:
        sentences.append(f"Not judged, since no run of theirs is left: {', '.join(runs.not_judged)}.")
    if runs.mixed:
        models = "one model is" if runs.mixed == 1 else f"{runs.mixed} models are"
        sentences.append(f"Not compared: {models} of runs that differ in more than their seed.")
    return [*sentences, runs.noise_words] if runs.routers else sentences


def _as_asked(runs: AdviceRuns) -> list[str]:
    dense = runs.usual.variants.get(DENSE)
    beside = [] if dense is None else [f"Dense runs are those of variant {dense!r}."] if dense else []
    return [f"As asked, routed runs are those of variant {runs.asked!r}.", *beside]


def _scale(runs: AdviceRuns) -> str:
    sizes, last = runs.sizes or {str(s): 0.0 for s in runs.dense.index}, runs.matched.finals
    names = list(sizes)
    span = names[0] if len(names) < 2 else f"{names[0]} to {names[-1]}"
    tokens = last["tokens"].fillna(last["tokens_planned"]).dropna().astype(float)
    if tokens.empty:
        return f"All of this holds for models of {span} and as long as these were trained: the table names no tokens."
    least, most = number(tokens.min(), 3), number(tokens.max(), 3)
    trained = most if least == most else f"{least} to {most}"
    return (
        f"All of this holds for models of {span} after {trained} tokens: at other sizes, or after longer training, it "
        "may be otherwise."
    )


def _warnings(runs: AdviceRuns) -> list[str]:
    """What select_points and the table warn of, each once; those of laws stand with the laws."""
    found = [*runs.table.warnings]
    for router in runs.routers:
        found += [warning for warning in runs.points[router].warnings if warning not in found]
    return found
