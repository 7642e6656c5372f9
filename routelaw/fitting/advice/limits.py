"""Recommendation 5: what do the interaction c and the saturation E_max of the paper's law say about limits?"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from routelaw.fitting.advice.result import AdviceTable, Recommendation, listed, shown_interval
from routelaw.fitting.advice.runs import OTHER_LAW, PAPER_LAW, AdviceRuns
from routelaw.fitting.claims import Claim, Effect, Outcome, weakest
from routelaw.fitting.fit_report import FitReport
from routelaw.fitting.intervals import Interval, parameter_quantities
from routelaw.fitting.validation import error_e4
from routelaw.formatting import number

TITLE = "Limits: c and E_max"
PAPER = "Future routing research should focus on the terms c and E_max; indicative of limits to arbitrary scaling."
NAMES = {"c": "c", "e_max": "E_max"}


def limits(runs: AdviceRuns) -> Recommendation:
    claims = (
        Claim("c", "c > 0 for every router: experts help less as models grow", partial(_every, "c"), PAPER,
              quantity="least c"),
        Claim("e_max", "E_max lies within the E trained for every router: gains level off there",
              partial(_every, "e_max"), PAPER, quantity="least log10 of the largest E over E_max"),
    )  # fmt: skip
    found = [_row(runs, router, report) for router in runs.ordered if (report := runs.paper_fit(router))]
    tables = []
    if found:
        rows = [[r["router"], r["law"], r["shown"]["c"], r["shown"].get("e_max", "–"), r["identified"]] for r in found]
        title = "The coefficients: intervals are the wider of resampled sizes and resampled runs"
        tables.append(AdviceTable(title, ["router", "law", "c", "E_max", "identified"], rows))
    return Recommendation(
        5,
        TITLE,
        PAPER,
        tuple(claim(runs) for claim in claims),
        tuple(tables),
        tuple(_remarks(runs)),
        {"coefficients": [{k: v for k, v in row.items() if k != "shown"} for row in found]},
    )


def _every(name: str, runs: AdviceRuns) -> Outcome:
    """The coefficient of the paper's law for each router, c above zero or E_max below the largest E trained, with the
    wider of the intervals from resampled sizes and from resampled runs. Holds if it does for every router; does not
    hold if one interval, which allows for the number of routers, lies on the other side."""
    if not runs.ordered:
        return "There is no finished routed run."
    reports = {r: report for r in runs.ordered if (report := runs.paper_fit(r)) and name in report.fit.params}
    lacking = [router for router in runs.ordered if router not in reports]
    if not reports:
        return f"The law cannot be fitted: {runs.why_no_law(lacking[0])}"
    least, effect = weakest({router: partial(_effect, runs, router, name) for router in reports}, runs.level)
    unknown = [router for router in reports if coefficient_interval(runs, router, name, runs.level) is None]
    said = [f"Not identified for {listed(unknown)}."] if unknown else []
    said += [f"No such law for {listed(lacking)}: {runs.why_no_law(lacking[0])}"] if lacking else []
    if not unknown:
        interval = coefficient_interval(runs, least, name, runs.level)
        said = [
            f"Least sure of {least}: {NAMES[name]} = {shown_interval(reports[least].fit.params[name], interval)}.",
            *said,
        ]
    return effect, effect.verdict(), " ".join(said)


def _effect(runs: AdviceRuns, router: str, name: str, level: float) -> Effect:
    """Positive where there is a limit."""
    report = runs.paper_fit(router)
    assert report is not None
    fit = report.fit
    value, interval = fit.params[name], coefficient_interval(runs, router, name, level)
    low, high = -math.inf, math.inf
    if interval is not None:
        low, high = (
            (-math.inf if interval.open_low else interval.low),
            (math.inf if interval.open_high else interval.high),
        )
    if name == "c":
        return Effect(value, low, high)
    most = float(fit.points.x["experts"].max())
    return Effect(
        math.log10(most / value),
        math.log10(most / high) if math.isfinite(high) else -math.inf,
        math.log10(most / low) if low > 0 else math.inf,
    )


def coefficient_interval(runs: AdviceRuns, router: str, name: str, level: float) -> Interval | None:
    """The wider at either end of resampled sizes, which share a pattern in E, and resampled runs, of which those of a
    size are alike. None where the coefficient ended at its bound, or where there are too few sizes."""
    report = runs.paper_fit(router)
    if report is None or report.draws is None or name not in report.intervals:
        return None
    (quantity,) = (q for q in parameter_quantities(report.fit.law) if q.name == name)
    by_size = report.draws.interval(quantity, level)
    if router not in runs.resampled_runs:
        return by_size
    by_run = runs.resampled_runs[router].interval(quantity, level)
    open_low, open_high = by_size.open_low or by_run.open_low, by_size.open_high or by_run.open_high
    return Interval(min(by_size.low, by_run.low), max(by_size.high, by_run.high), open_low, open_high)


def _row(runs: AdviceRuns, router: str, report: FitReport) -> dict[str, Any]:
    values = {name: report.fit.params[name] for name in NAMES if name in report.fit.params}
    intervals = {name: coefficient_interval(runs, router, name, runs.level) for name in values}
    closed = [NAMES[name] for name, i in intervals.items() if i and not i.open_low and not i.open_high]
    return {
        "router": router,
        "law": report.fit.law.name,
        "status": report.fit.status,
        "values": values,
        "intervals": {name: i.ends if i else None for name, i in intervals.items()},
        "identified": " and ".join(closed) or "neither",
        "shown": {
            name: shown_interval(value, i) if (i := intervals[name]) else f"{number(value, 3)}, no interval"
            for name, value in values.items()
        },
    }


def _remarks(runs: AdviceRuns) -> list[str]:
    """Whether a law without an interaction predicts unseen sizes better, so that c is one form's way of bending."""
    better, worse, at_bound = [], [], {}
    for router in runs.ordered:
        paper, other = (runs.fits(router).get(law) for law in (PAPER_LAW, OTHER_LAW))
        if paper is not None:
            for warning in paper.fit.warnings:
                if "ended at its" in warning:
                    at_bound.setdefault(warning, []).append(router)
        if paper is None or other is None:
            continue
        errors = paper.validation.leave_size_out, other.validation.leave_size_out
        if errors[0] is not None and errors[1] is not None:
            said = f"{router} {error_e4(errors[1])} against {error_e4(errors[0])}"
            (better if errors[1] < errors[0] else worse).append(said)
    sentences = [f"{listed(routers)}: {warning}" for warning, routers in at_bound.items()]
    if better:
        sentences.append(
            f"Law {OTHER_LAW}, with an irreducible loss and no interaction c, predicts unseen sizes better (error in "
            f"log10 L, ×1e-4): {listed(better)}. A positive c may then be the form of the law, and no limit."
        )
        sentences += [f"Not so for {listed(worse)}."] if worse else []
    return sentences
