"""Recommendation 1: does routing help at every size, and up to which?"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from routelaw.fitting.advice.result import AdviceTable, Recommendation, listed, shown, shown_interval
from routelaw.fitting.advice.runs import PAPER_LAW, AdviceRuns, mean_of_shared, share_taken_off
from routelaw.fitting.claims import Claim, Effect, Outcome, weakest
from routelaw.fitting.fit_report import FitReport
from routelaw.fitting.intervals import Interval
from routelaw.fitting.validation import error_e4
from routelaw.formatting import number

TITLE = "Use routing at every size"
PAPER = "Use routing when training any model with N ≤ 1.3B."


def use_routing(runs: AdviceRuns) -> Recommendation:
    tables, remarks = [], []
    claims = [
        Claim(
            f"{router} helps",
            f"{router} lowers the loss of the dense model at every size",
            partial(helps_at_every_size, router),
            PAPER,
            quantity="least gain of a size, % of the loss, mean over E",
        )
        for router in runs.ordered
    ] or [Claim("routing helps", "Routing lowers the loss at every size", helps_nowhere, PAPER)]
    if runs.ordered:
        claims.append(
            Claim(
                "beyond the sizes trained",
                "By the law, routing still helps beyond the largest size trained",
                cutoff_beyond,
                PAPER,
                quantity=f"log10 of N_cut over that size ({runs.ordered[0]})",
            )
        )
    cutoffs = _cutoffs(runs)
    if cutoffs:
        rows = [
            [c["router"], c["law"], _cut_words(c), "–" if c["error"] is None else error_e4(c["error"])] for c in cutoffs
        ]
        title = "N_cut, the size beyond which routing stops helping, by law; and the law's error on unseen sizes"
        tables.append(AdviceTable(title, ["router", "law", "N_cut", "error (log10 L, ×1e-4)"], rows))
        remarks += _disagreement(runs, cutoffs)
    gains = _gains(runs)
    return Recommendation(
        1,
        TITLE,
        PAPER,
        tuple(claim(runs) for claim in claims),
        tuple(tables),
        (*_worse_than_dense(gains), *remarks),
        {"gains_percent": gains, "n_cut": cutoffs},
        decided_by=(claims[0].name,),  # whoever routes takes the best router
    )


def helps_nowhere(runs: AdviceRuns) -> Outcome:
    """There is no routed run to ask."""
    return "There is no finished routed run."


def helps_at_every_size(router: str, runs: AdviceRuns) -> Outcome:
    """At each size the mean over E of log10 of the dense loss over the routed one. Holds if the interval of the lowest
    lies above zero; does not hold if one lies below with an interval that allows for the number of sizes."""
    own = runs.usual_routed[runs.usual_routed["router"] == router]
    sizes = [size for size in runs.sizes if size in set(own["size"])]
    with_dense = [size for size in sizes if size in runs.dense.index]
    if not with_dense:
        return f"There is no dense run at {listed(sizes)}, so what {router} gains is not known."
    least, effect = weakest({size: partial(_gain_at, runs, router, size) for size in with_dense}, runs.level)
    gain = share_taken_off(effect)
    means = {size: share_taken_off(_gain_at(runs, router, size, runs.level)).value for size in with_dense}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    lacking = [size for size in sizes if size not in with_dense]
    why = f"Mean gain over E: {shown(gain)} at {least}, the weakest of {len(means)} sizes"
    why += f"; {means[low]:.1f} % ({low}) to {means[high]:.1f} % ({high})." if len(means) > 1 else "."
    why = why.replace("the weakest of 1 sizes", "the only size with dense runs")
    why += f" No dense run at {listed(lacking)}." if lacking else ""
    return gain, effect.verdict(), why


def _gain_at(runs: AdviceRuns, router: str, size: str, level: float) -> Effect:
    own = runs.usual_routed[(runs.usual_routed["router"] == router) & (runs.usual_routed["size"] == size)]
    gains = runs.dense["log_loss"][size] - own["log_loss"].to_numpy()
    variance = 1 / runs.dense["seeds"][size] + float((1 / own["seeds"]).sum()) / len(own) ** 2
    return mean_of_shared(gains, variance, runs.noise(size), level)


def cutoff_beyond(runs: AdviceRuns) -> Outcome:
    """N_cut under the paper's law, fitted to the best router, over the largest size trained. Holds if its interval lies
    above one."""
    router = runs.ordered[0]
    report = runs.paper_fit(router)
    if report is None:
        return f"No law in N and E can be fitted: {runs.why_no_law(router)}"
    if not report.fit.points.dense.any():
        return "There is no dense run: at E = 1 the law would only be extrapolated."
    largest = float(report.fit.points.x["active_params"].max())
    value, interval = _n_cut(report)
    if not np.isfinite(value):
        return f"Under law {report.fit.law.name} there is no N_cut: routing helps at any size, or at none."
    if value <= 0:
        return f"Under law {report.fit.law.name} routing helps at no size."
    if interval is None:
        why = report.warnings[0] if report.warnings else "too few sizes to resample."
        return f"Under law {report.fit.law.name} N_cut is {number(value, 3)}, with no interval: {why}"
    low = -np.inf if interval.open_low or interval.low <= 0 else np.log10(interval.low / largest)
    high = np.inf if interval.open_high else np.log10(interval.high / largest)
    effect = Effect(float(np.log10(value / largest)), float(low), float(high))
    at_least = low > 0
    verdict = effect.verdict() if np.isfinite(high) or not at_least else "holds"
    where = shown_interval(value, interval)
    return effect, verdict, f"N_cut = {where} under law {report.fit.law.name}; the largest size is {number(largest)}."


def _n_cut(report: FitReport) -> tuple[float, Interval | None]:
    return report.derived["n_cut"], report.intervals.get("n_cut")


def _cutoffs(runs: AdviceRuns) -> list[dict[str, Any]]:
    found = []
    for router in runs.ordered:
        for law, report in runs.fits(router).items():
            value, interval = _n_cut(report)
            found.append(
                {
                    "router": router,
                    "law": law,
                    "n_cut": value,
                    "interval": interval.ends if interval else None,
                    "never_ends": bool(np.isinf(value)),
                    "error": report.validation.leave_size_out,
                    "status": report.fit.status,
                }
            )
    return found


def _cut_words(cutoff: dict[str, Any]) -> str:
    if cutoff["never_ends"]:
        return "none: routing never stops helping"
    if cutoff["interval"] is None:
        return "not determined"
    low, high = cutoff["interval"]
    ends = f"{'(…' if low is None else f'[{number(low, 3)}'}, {'…)' if high is None else f'{number(high, 3)}]'}"
    return f"{number(cutoff['n_cut'], 3)} {ends}"


def _disagreement(runs: AdviceRuns, cutoffs: list[dict[str, Any]]) -> list[str]:
    """Where a law of another form predicts unseen sizes better and says something else of the cut-off."""
    better = []
    for router in runs.ordered:
        own = {c["law"]: c for c in cutoffs if c["router"] == router and c["error"] is not None}
        ends = [c for c in own.values() if not c["never_ends"]]
        never = [c for c in own.values() if c["never_ends"]]
        if ends and never and min(c["error"] for c in never) < min(c["error"] for c in ends):
            better.append(router)
    if not better:
        return []
    return [
        f"N_cut depends on the form of the law: for {listed(better)} the law in which routing never stops helping "
        f"predicts unseen sizes better than {PAPER_LAW}, which has an N_cut."
    ]


def _gains(runs: AdviceRuns) -> list[dict[str, Any]]:
    """The gain of every routed model over the dense one of its size, in percent of the loss."""
    rows = runs.usual_routed[runs.usual_routed["size"].isin(runs.dense.index)]
    dense = runs.dense["log_loss"].reindex(rows["size"]).to_numpy()
    gains = 100 * (1 - 10.0 ** (rows["log_loss"].to_numpy() - dense))
    return [
        {"router": router, "size": size, "experts": int(experts), "gain": float(gain)}
        for router, size, experts, gain in zip(rows["router"], rows["size"], rows["experts"], gains, strict=True)
    ]


def _worse_than_dense(gains: list[dict[str, Any]]) -> list[str]:
    worse = [f"{g['router']} {g['size']} E = {g['experts']} ({g['gain']:.1f} %)" for g in gains if g["gain"] <= 0]
    return [f"{len(worse)} of {len(gains)} routed models are no better than dense: {listed(worse)}."] if worse else []
