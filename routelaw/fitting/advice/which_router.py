"""Recommendation 2: which router, and how surely?"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from routelaw.fitting.advice.result import AdviceTable, Recommendation, listed, shown
from routelaw.fitting.advice.runs import AdviceRuns, share_taken_off
from routelaw.fitting.claims import Claim, Effect, Outcome, weakest
from routelaw.fitting.pairwise import PairwiseComparison

TITLE = "Which router"
PAPER = (
    "S-BASE is a good default routing algorithm. RL-R will sometimes match S-BASE in performance but is less robust "
    "and scalable."
)
DEFAULT_ROUTER = "s-base"
RESTS_ON = {"sizes": "the spread over sizes", "seeds": "seed noise", "misfit": "the scatter about the fitted laws"}


def which_router(runs: AdviceRuns) -> Recommendation:
    quantity = "least lead over another router, % of the loss"
    if len(runs.ordered) < 2:
        return Recommendation(2, TITLE, PAPER, (Claim("best router", "One router is the best", _alone, PAPER)(runs),))
    best = runs.ordered[0]
    statement = f"{best} has the lowest loss of the {len(runs.ordered)} routers at equal size and E"
    claims = [Claim("best router", statement, partial(leads, best), PAPER, quantity=quantity)]
    if DEFAULT_ROUTER in runs.ordered and best != DEFAULT_ROUTER:
        statement = f"{DEFAULT_ROUTER}, the paper's default, is ahead of {best}"
        claims.append(
            Claim("default router", statement, partial(leads_one, DEFAULT_ROUTER, best), PAPER, quantity=quantity)
        )
    pairs = [_as_dict(runs, best, other) for other in runs.ordered[1:]]
    rows = [
        [
            f"{best} over {p['other']}",
            shown(_effect(runs.ranking.pairs[best, p["other"]])) if p["models"] else "–",
            f"{p['wins']} of {p['models']}",
            "–" if p["probability"] is None else f"{p['probability']:.2f}",
        ]
        for p in pairs
    ]
    table = AdviceTable("Leads at equal size and E", ["", "lead", "lower in", "probability"], rows)
    by_size = _leads_by_size(runs, best)
    return Recommendation(
        2,
        TITLE,
        PAPER,
        tuple(claim(runs) for claim in claims),
        (table,),
        tuple(_exceptions(runs, best, by_size)),
        {"order": runs.ordered, "pairs": pairs, "leads_by_size_percent": by_size},
        decided_by=(claims[-1].name,),  # the paper's default, where it is there
    )


def _alone(runs: AdviceRuns) -> Outcome:
    """Needs two routers."""
    if not runs.ordered:
        return "There is no finished routed run."
    return f"{runs.ordered[0]} is the only router: there is none to compare it with."


def leads(best: str, runs: AdviceRuns) -> Outcome:
    """The mean lead over each other router, over the models that both were trained as; the interval is the wider of
    that over sizes and that of the noise. Holds if every interval lies above zero; does not hold if one lies below
    with an interval that allows for the number of routers."""
    others = [other for other in runs.ordered if other != best and _pair(runs.ranking.pairs, best, other)[0].models]
    lacking = [other for other in runs.ordered if other != best and other not in others]
    if not others:
        return "No two routers were trained at the same size and E."
    ranked = cache(runs.ranked)
    name, effect = weakest({o: partial(_at_level, ranked, best, o) for o in others}, runs.level)
    lead = share_taken_off(effect)
    why = f"Its lead over {name} is the least sure: {shown(lead)} of the loss."
    why += f" Never trained beside {listed(lacking)}." if lacking else ""
    return lead, effect.verdict(), why


def leads_one(first: str, second: str, runs: AdviceRuns) -> Outcome:
    """The mean lead over one router. Holds if its interval lies above zero, does not hold if below."""
    pair, sign = _pair(runs.ranking.pairs, first, second)
    if not pair.models:
        return f"{first} and {second} were never trained at the same size and E."
    effect = _log_effect(pair).scaled(sign)
    lead = share_taken_off(effect)
    return lead, effect.verdict(), f"Its lead is {shown(lead)} of the loss."


def _at_level(ranked: Any, best: str, other: str, level: float) -> Effect:
    pair, sign = _pair(ranked(level).pairs, best, other)
    return _log_effect(pair).scaled(sign)


def _pair(pairs: dict[tuple[str, str], PairwiseComparison], first: str, second: str) -> tuple[PairwiseComparison, int]:
    """Their comparison, and the sign that makes a lead of the first positive."""
    return (pairs[first, second], 1) if (first, second) in pairs else (pairs[second, first], -1)


def _log_effect(pair: PairwiseComparison) -> Effect:
    if pair.interval is None:
        return Effect(pair.lead, basis="Nothing says how much of that is chance.")
    return Effect(pair.lead, *pair.interval, f"Interval from {RESTS_ON[pair.by]}.")


def _effect(pair: PairwiseComparison) -> Effect:
    return share_taken_off(_log_effect(pair))


def _as_dict(runs: AdviceRuns, best: str, other: str) -> dict[str, Any]:
    pair = runs.ranking.pairs[best, other]
    lead = _effect(pair)
    return {
        "best": best,
        "other": other,
        "models": pair.models,
        "wins": pair.wins,
        "sizes": pair.sizes,
        "lead_percent": lead.value,
        "interval": [lead.low, lead.high],
        "probability": pair.probability,
        "rests_on": pair.by,
    }


def _leads_by_size(runs: AdviceRuns, best: str) -> dict[str, dict[str, float]]:
    """The mean lead of the best router over each other one at each size, in percent of the loss."""
    found: dict[str, dict[str, float]] = {}
    rows = runs.usual_routed.pivot_table(index=["size", "experts"], columns="router", values="log_loss")
    for size in runs.sizes:
        here = rows[rows.index.get_level_values("size") == size]
        gaps = {other: (here[other] - here[best]).dropna() for other in runs.ordered if other != best}
        found[size] = {o: 100 * (1 - 10.0 ** -float(np.mean(gap))) for o, gap in gaps.items() if len(gap)}
    return found


def _exceptions(runs: AdviceRuns, best: str, by_size: dict[str, dict[str, float]]) -> list[str]:
    behind = [
        f"{other} at {size} (by {-lead:.2f} %)"
        for size, own in by_size.items()
        for other, lead in own.items()
        if lead < 0
    ]
    sentences = [f"Better than {best} on average over E: {listed(behind)}."] if behind else []
    if best != DEFAULT_ROUTER and DEFAULT_ROUTER in runs.ordered:
        sentences.append(f"The paper's default is {DEFAULT_ROUTER}; in these runs {best} is ahead of it.")
    return sentences
