"""The paper's comparative statements, as far as the released losses decide them.

A statement about measured losses is counted over the models it speaks of. A statement about coefficients must hold in
at least 95 % of refits to resampled data, both when whole model sizes are resampled (the same ones for every router, so
that what routers share cancels) and when single runs are (which a coefficient read off a few expert counts needs). The
first alone would take the six sizes' common pattern in E for certain, the second alone what runs of one size share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.claims import NOT_SUPPORTED, OPEN, Claim, Effect, Outcome, graded
from routelaw.fitting.intervals import Draws, parameter_quantities
from routelaw.fitting.matched_runs import MatchedRuns, resample_sizes_and_runs
from routelaw.fitting.profile import profile_intervals
from routelaw.laws.law import Array
from routelaw.report.clark2022 import printed
from routelaw.report.clark2022.laws_compared import CLAIMS_ON_LAWS, lambada_crossing, longer_training
from routelaw.report.clark2022.verdict import PrintedCell, ResultTable
from routelaw.runs.table import RunTable
from routelaw.studies.paper import JUDGED
from routelaw.studies.study_runs import StudyRuns

SURE = 0.95
MOST = 0.75
"""Share of the pairs in which a statement has to be true to hold in part."""
DRAWS = 400
PARAMS = {name: i for i, name in enumerate(printed.COEFFICIENTS)}
OF_STUDIES = ("hash one layer", "one block alike", "k front", "shared hash")
Params = dict[str, Array]
"""Router → coefficients of its refits."""


def claims(table: RunTable) -> ResultTable:
    runs = MatchedRuns(table)
    judged = [claim(runs) for claim in (*ON_LOSSES, *ON_COEFFICIENTS, *CLAIMS_ON_LAWS)]
    cells = [PrintedCell.of(each) for each in judged]
    cells.insert(-1, lambada_crossing(runs))
    cells[len(ON_LOSSES) : len(ON_LOSSES)] = judged_by_studies(table)
    return ResultTable(
        name="claims",
        title="Comparative statements",
        paper="introduction; comparative analysis; appendices on variations and transfer",
        convention="Last validation losses, K = 1, R = ½ unless K or R is what is compared. Statements about "
        "coefficients of the six-parameter law hold if they do in at least 95 % of refits, under both kinds of "
        "resampling. Where an interval is given it is of 90 %, from matched pairs of runs or the noise of seeds, and "
        "decides: a statement holds if all of it is above zero (or within 0.02 nats, for what is said to be alike), "
        "does not hold if all of it is below (or outside).",
        tolerance="Close: within 10 %. “Not supported” means that the released losses do not establish it; not that "
        "it is false.",
        cells=(*cells, *longer_training()),
        layout="list",
    )


def judged_by_studies(table: RunTable) -> list[PrintedCell]:
    """Claims that the studies judge on any runs (routelaw/studies), as far as the release decides them."""
    runs, cells = StudyRuns.of(table), []
    for judged in (JUDGED[name](runs) for name in OF_STUDIES):
        cell, effect = PrintedCell.of(judged), judged.ours
        if effect is None:
            raise InputError(f"{table.source}: {judged.claim.statement}: {judged.why}.")
        said = f"{judged.claim.quantity}: {effect.value:.2g} ({effect.low:.2g} to {effect.high:.2g}). {judged.why}"
        verdict = NOT_SUPPORTED if judged.verdict == OPEN else judged.verdict
        cells.append(replace(cell, verdict=verdict, low=effect.low, high=effect.high, note=said))
    return cells


def routing_helps(runs: MatchedRuns) -> Outcome:
    """Each routed model of the main sweep against the dense one of its size."""
    return _counted(pd.concat([runs.gains(router) for router in printed.ROUTERS]), "routed models do.")


def better(one: str, other: str, runs: MatchedRuns) -> Outcome:
    """Models of two routers at equal N and E."""
    gap = (runs.losses(other) - runs.losses(one)).dropna()
    lost = gap[gap <= 0].index.get_level_values("size")
    where = ", ".join(f"{(lost == size).sum()} at {size}" for size in printed.SIZES if (lost == size).any())
    return _counted(gap, f"pairs.{f' Not so: {where}.' if where else ''}")


def more_per_token(runs: MatchedRuns) -> Outcome:
    """S-BASE with K against 2K, at equal size and E."""
    by_k = {k: runs.losses("s-base", k=k) for k in (1, 2, 4)}
    return _counted(pd.concat([(by_k[k] - by_k[2 * k]).dropna() for k in (1, 2)]), "doublings of K.")


def better_frequency(router: str, worse: float, better: float, runs: MatchedRuns) -> Outcome:
    """Models of a router with two shares of routed layers, at equal size and E."""
    high, low = (runs.losses(router, routing_frequency=frequency) for frequency in (worse, better))
    return _counted((high - low).dropna(), "pairs at 25M and 370M.")


def _counted(gains: pd.Series, of_what: str) -> Outcome:
    """Holds if all gains are positive, in part if most are."""
    true = int((gains > 0).sum())
    share = true / len(gains)
    return Effect(share), graded(share, holds=1.0, partly=MOST), f"{true} of {len(gains)} {of_what}"


@lru_cache(maxsize=2)
def _resampled(runs: MatchedRuns) -> dict[str, tuple[Draws, Draws]]:
    """Router → refits to resampled sizes, and to resampled runs."""
    fits = {router: fit_law("saturated", select_points(runs.table, router)) for router in printed.ROUTERS}
    return {router: resample_sizes_and_runs(fit, DRAWS, 1 + i) for i, (router, fit) in enumerate(fits.items())}


def sure(statement: Callable[[Params], Array], runs: MatchedRuns, remark: str = "") -> Outcome:
    """Holds if it is true in 95 % of the refits, of either kind."""
    draws = _resampled(runs)
    by_size, by_run = (float(np.mean(statement({r: d[i].params_RP for r, d in draws.items()}))) for i in (0, 1))
    share = min(by_size, by_run)
    why = f"True in {by_size:.1%} of refits to resampled sizes and in {by_run:.1%} of refits to resampled runs."
    return Effect(share), graded(share, holds=SURE), f"{why} {remark}".strip()


def lowest(value: Callable[[Array], Array], router: str, runs: MatchedRuns, remark: str = "") -> Outcome:
    """Holds if the value of the router is below those of the others in 95 % of the refits, of either kind."""
    others = [r for r in printed.ROUTERS if r != router]
    return sure(lambda p: np.logical_and.reduce([value(p[router]) < value(p[r]) for r in others]), runs, remark)


def larger_e_max(runs: MatchedRuns) -> Outcome:
    """Holds if that of S-BASE is below the others in 95 % of the refits, of either kind."""
    spans = []
    for router, (draws, _) in _resampled(runs).items():
        e_max = parameter_quantities(draws.fit.law)[PARAMS["e_max"]]
        (interval,) = profile_intervals(draws.fit, [e_max], level=SURE)
        spans.append(f"{printed.ROUTERS[router]} {interval.low:.0f} to {interval.high:.0f}")
    remark = f"Profile intervals of E_max (95 %): {', '.join(spans)}."
    return lowest(partial(_of, "e_max"), "s-base", runs, remark)


def _of(name: str, params_RP: Array) -> Array:
    return params_RP[:, PARAMS[name]]


def _minus_log_cut(params_RP: Array) -> Array:
    """Where c ≤ 0 routing never stops helping."""
    b_R, c_R = _of("b", params_RP), _of("c", params_RP)
    return np.where(c_R > 0, b_R / np.where(c_R > 0, c_R, 1.0), -np.inf)


def _minus_slope_at_15m(params_RP: Array) -> Array:
    return -_of("b", params_RP) - _of("c", params_RP) * np.log10(float(printed.ACTIVE_PARAMS["15M"]))


ON_LOSSES = (
    Claim("routing helps", "Routing improves on the dense model at every size", routing_helps),
    *(
        Claim(
            f"{one} >= {other}",
            f"{printed.ROUTERS[one]} has the lower loss than {printed.ROUTERS[other]} at equal N and E",
            partial(better, one, other),
        )
        for one, other in (("s-base", "hash"), ("rl-r", "hash"), ("s-base", "rl-r"))
    ),
    Claim("more per token", "More experts per token always lower the loss", more_per_token),
    Claim("r 1/4", "S-BASE loses when fewer layers are routed: R = ¼ against ½",
          partial(better_frequency, "s-base", 0.25, 0.5)),
    Claim("r 1", "S-BASE gains from routing every layer: R = 1 against ½",
          partial(better_frequency, "s-base", 0.5, 1.0)),
    Claim("r 1 hash", "HASH does not gain from routing every layer: R = 1 against ½",
          partial(better_frequency, "hash", 1.0, 0.5)),
)  # fmt: skip
ON_COEFFICIENTS = (
    Claim("gain falls", "Routing helps less as models grow: c > 0 for all three",
          partial(sure, lambda p: np.logical_and.reduce([_of("c", p[r]) > 0 for r in printed.ROUTERS]))),
    Claim("lowest c", "The interaction c is lowest for S-BASE", partial(lowest, partial(_of, "c"), "s-base")),
    Claim("e_max", "HASH and RL-R have a larger E_max than S-BASE", larger_e_max),
    Claim("e_start", "HASH has the largest E_start", partial(lowest, lambda p_RP: -_of("e_start", p_RP), "hash")),
    Claim("n_cut", "N_cut is largest for S-BASE", partial(lowest, _minus_log_cut, "s-base")),
    Claim("slope at 15M", "At 15M, b + c·log N is steeper for S-BASE and RL-R than for HASH",
          partial(lowest, _minus_slope_at_15m, "hash",
                  remark="The slopes fitted to 15M alone do order so (table of b(N)); the law's b is a slope in log "
                  "Ê, and HASH's larger E_start stretches it.")),
)  # fmt: skip
