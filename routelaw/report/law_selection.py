"""The selected law of a report, and how far it may be trusted: judgements, and techniques compared under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from routelaw.errors import InputError
from routelaw.fitting.compare import Ranked, RouterComparison, compare_routers
from routelaw.fitting.fit import Fit
from routelaw.fitting.fit_report import FitReport, judge, reference_point
from routelaw.fitting.intervals import Interval, bootstrap
from routelaw.fitting.points import knows_routing
from routelaw.fitting.quantities import derived_quantities, parameter_quantities
from routelaw.fitting.validation import Validation
from routelaw.laws.law import Law


def in_size_and_experts(law: Law) -> bool:
    """A law in (N, E): what explorers, EPC and b(N) need."""
    return set(law.inputs) == {"active_params", "experts"}


def check_law(law: Law) -> None:
    """Refuse a law that cannot be selected for routed runs."""
    if law.along_training or not knows_routing(law) or not in_size_and_experts(law):
        raise InputError(f"law {law.name} is not a law of the final loss in (N, E), which a report needs.")


def mean_error(ranked: Mapping[str, Sequence[Ranked]], law: str) -> float:
    """Leave-size-out error of a law averaged over the techniques; infinite where one lacks it."""
    rows = [[r for r in laws if r.fit.law.name == law] for laws in ranked.values() if laws]
    errors = [r[0].validation.leave_size_out if r else None for r in rows]
    known = [e for e in errors if e is not None]
    return sum(known) / len(known) if known and len(known) == len(errors) else float("inf")


def choose_law(ranked: Mapping[str, Sequence[Ranked]], asked: Law | None) -> tuple[Law | None, str]:
    """The selected law: the simplest in (N, E) that no technique's best law beats by more than noise.

    With few sizes errors on unseen sizes are noisy, and a law of many parameters that leads by chance would be drawn
    where it means nothing.
    """
    ranked = {key: laws for key, laws in ranked.items() if any(r.validation.leave_size_out for r in laws)} or ranked
    rows = {key: {r.fit.law.name: r for r in laws} for key, laws in ranked.items() if laws}
    if asked:
        fitted = any(asked.name in own for own in rows.values())
        return (asked if fitted else None), "it was asked for" if fitted else ""
    names = {n: r.fit.law for own in rows.values() for n, r in own.items() if in_size_and_experts(r.fit.law)}
    everywhere = {n: law for n, law in names.items() if all(n in own for own in rows.values())} or names
    judged = {n: law for n, law in everywhere.items() if mean_error(ranked, n) < float("inf")}
    if not judged:
        simplest = min(everywhere.values(), key=lambda law: len(law.parameters), default=None)
        return simplest, "it has the fewest parameters, and the sizes are too few to tell laws apart"
    settled = {n: law for n, law in judged.items() if all(own[n].fit.status == "converged" for own in rows.values())}
    candidates = settled or judged
    best = min(candidates, key=lambda n: mean_error(ranked, n))
    even = [n for n in candidates if not any(own[n].clearly_worse for own in rows.values())]
    front = min(even or [best], key=lambda n: (len(judged[n].parameters), mean_error(ranked, n)))
    if front == best:
        return judged[front], "it predicts sizes it has not seen best of the laws that settled"
    return judged[front], f"it is the simplest law that none beats by more than noise ({best} has the lowest error)"


def judge_fit(fit: Fit, validation: Validation, level: float) -> FitReport:
    """Intervals from resampled sizes where leaving one out still determines the law, else from profiles.

    Where no resample but the data themselves determines a law, all resamples are equal and would say that it is known
    exactly. A fit that did not settle inside its bounds gets no profiles: they take minutes there, and there is little
    to know.
    """
    resamples = validation.leave_size_out is not None
    if fit.status == "converged":
        return judge(fit, method="size-bootstrap" if resamples else "profile", level=level)
    at = reference_point(fit, None, None)
    derived = derived_quantities(fit.law, at["active_params"], at["experts"])
    values = {q.name: q.value(float(q.of(fit.params_BP)[0])) for q in derived}
    draws = None
    if resamples:
        try:
            draws = bootstrap(fit)
        except InputError:
            draws = None
    made = {q.name: draws.interval(q, level) for q in [*parameter_quantities(fit.law), *derived]} if draws else {}
    closed = {name: interval for name, interval in made.items() if _is_known(interval)}
    method = "size-bootstrap" if draws else None
    warnings = (*fit.warnings, *validation.warnings)
    return FitReport(fit, validation, values, at, closed, method, level, warnings, draws)


def _is_known(interval: Interval) -> bool:
    """A parameter that stays at its bound in every resample looks exactly known, and is not."""
    return not interval.open_low and not interval.open_high and interval.low < interval.high


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
