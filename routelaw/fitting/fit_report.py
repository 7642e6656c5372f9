"""A fit with what one should know before believing it: errors on unseen points, intervals, and warnings in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import (
    DEFAULT_DRAWS,
    DEFAULT_LEVEL,
    Draws,
    Interval,
    Method,
    Quantity,
    bootstrap,
    derived_quantities,
    parameter_quantities,
)
from routelaw.fitting.profile import profile_intervals
from routelaw.fitting.validation import Validation, error_e4, validate
from routelaw.formatting import html_lines, html_table, number, text_table
from routelaw.laws.law import Array, Law

Range = tuple[float, float]

DEFAULT_METHOD: Method = "size-bootstrap"
FAR_BEYOND = 10.0
"""A size this many times the largest one fitted is called far beyond the data."""
DERIVED_MEANINGS = {
    "n_cut": "N_cut: size beyond which routing stops helping",
    "epc": "effective parameters N̄(N, E)",
    "epc_max": "most effective parameters, N̄_max(N)",
    "a_of_e": "a(E): slope in log N",
    "b_of_n": "b(N): slope in log Ê",
    "loss": "loss (nats per token)",
}


@dataclass(frozen=True, eq=False)
class FitReport:
    """A fit, and how far to trust it: intervals, errors on runs it has not seen, what follows from it, warnings.

    Printed it is a table; in a notebook, too.

    >>> report = rl.judge(fit, draws=50)
    >>> print(report)
    bilinear fitted to s-base, loss_validation: 20 points of 4 sizes, converged
    log L = a·log N + b·log E + c·log N·log E + d
    parameter  value  90 % interval  meaning
    a          ...
    >>> report.intervals["a"].low < report.fit.params["a"] < report.intervals["a"].high
    True
    >>> sorted(report.as_dict()["rmsle"])
    ['in_sample', 'largest_size_out', 'leave_one_out', 'leave_size_out']
    """

    fit: Fit
    validation: Validation
    derived: dict[str, float]
    at: dict[str, float]
    """Where the derived quantities are evaluated: active_params and experts."""
    intervals: dict[str, Interval]
    method: Method | None
    """How the intervals were made; None when the data were too few for any."""
    level: float
    warnings: tuple[str, ...]
    draws: Draws | None = None

    def __repr__(self) -> str:
        return "\n".join([*self._head(), text_table(*self._parameters()), *self._foot()])

    def _repr_html_(self) -> str:
        return html_lines(self._head()) + html_table(*self._parameters()) + html_lines(self._foot())

    def _head(self) -> list[str]:
        points, law = self.fit.points, self.fit.law
        counted = f"{len(points)} points of {len(points.sizes)} sizes"
        return [f"{law.name} fitted to {points.router}, {points.target}: {counted}, {self.fit.status}", law.formula]

    def _parameters(self) -> tuple[list[str], list[list[str]]]:
        at = f"at N = {number(self.at['active_params'])}, E = {self.at['experts']:g}"
        meanings = {name: f"{said}, {at}" for name, said in DERIVED_MEANINGS.items() if name != "n_cut"}
        meanings |= {"n_cut": DERIVED_MEANINGS["n_cut"]}
        meanings |= {p.name: p.meaning for p in (*self.fit.law.parameters, *self.fit.law.constants)}
        header = ["parameter", "value", f"{100 * self.level:g} % interval", "meaning"]
        return header, [
            [name, number(value), _shown(self.intervals.get(name)), meanings.get(name, at)]
            for name, value in {**self.fit.params, **self.derived}.items()
        ]

    def _foot(self) -> list[str]:
        errors = self.validation.errors.items()
        said = ", ".join(f"{name.replace('_', ' ')} {error_e4(error)}" for name, error in errors)
        left_out = self.fit.points.left_out
        return [
            f"RMSLE, error in log10 L ×1e-4: {said}",
            *([f"left out: {'; '.join(left_out)}"] if left_out else []),
            *(f"warning: {warning}" for warning in self.warnings),
        ]

    def as_dict(self) -> dict[str, Any]:
        """What `routelaw fit --json` prints."""
        return {
            "law": self.fit.law.name,
            "router": self.fit.points.router,
            "target": self.fit.points.target,
            "points": len(self.fit.points),
            "sizes": self.fit.points.sizes,
            "status": self.fit.status,
            "error": self.fit.error,
            "params": self.fit.params,
            "intervals": {name: i.ends for name, i in self.intervals.items()},
            "interval_method": self.method,
            "level": self.level,
            "rmsle": self.validation.errors,
            "derived": self.derived,
            "at": self.at,
            "left_out": list(self.fit.points.left_out),
            "warnings": list(self.warnings),
        }


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    low = "(…" if interval.open_low else f"[{number(interval.low)}"
    return f"{low}, {'…)' if interval.open_high else f'{number(interval.high)}]'}"


def judge(
    fit: Fit,
    *,
    method: Method = DEFAULT_METHOD,
    level: float = DEFAULT_LEVEL,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    active_params: float | None = None,
    experts: float | None = None,
) -> FitReport:
    """Judge a fit: intervals at this `level`, errors on runs left out, and what the data do not determine.

    `method` is size-bootstrap, case-bootstrap or profile. What follows from the law (effective parameters, slopes,
    loss) is reported at `active_params` and `experts`: the middle size and about 64, unless given.

    >>> report = rl.judge(fit, draws=50, level=0.8)
    >>> report.method, report.level
    ('size-bootstrap', 0.8)
    >>> sorted(report.derived)
    ['a_of_e', 'b_of_n', 'epc', 'epc_max', 'loss', 'n_cut']
    """
    at = reference_point(fit, active_params, experts)
    validation = validate(fit)
    derived = derived_quantities(fit.law, at["active_params"], at["experts"])
    quantities = [*parameter_quantities(fit.law), *derived]
    warnings = [*fit.warnings, *validation.warnings]
    intervals, resampled, used = _intervals(fit, quantities, method, level, draws, seed, warnings)
    values = {q.name: q.at(fit.params_BP) for q in derived}
    warnings += _warnings(fit, quantities, intervals, values, level)
    if outside := extrapolation(fit, at["active_params"], at["experts"]):
        warnings.append(f"what is reported at the point asked for is an extrapolation: {outside}.")
    return FitReport(fit, validation, values, at, intervals, used, level, tuple(warnings), resampled)


def reference_point(fit: Fit, active_params: float | None, experts: float | None) -> dict[str, float]:
    """Where to evaluate what follows from a law: as asked, else the middle size and a usual expert count, both seen."""
    for what, value in (("size", active_params), ("number of experts", experts)):
        if value is not None and not (np.isfinite(value) and value >= 1):
            raise InputError(f"the {what} to report on must be a finite number of at least 1, not {value:g}.")
    sizes = np.unique(fit.points.x["active_params"])
    seen = np.unique(fit.points.x["experts"])
    middle = float(sizes[np.argmin(np.abs(np.log(sizes) - np.log(sizes).mean()))])
    usual = float(seen[np.argmin(np.abs(np.log(seen) - np.log(64.0)))])
    return {"active_params": active_params or middle, "experts": experts or usual}


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
    values = {q.name: q.at(fit.params_BP) for q in derived}
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


def _intervals(
    fit: Fit, quantities: list[Quantity], method: Method, level: float, draws: int, seed: int, warnings: list[str]
) -> tuple[dict[str, Interval], Draws | None, Method | None]:
    """Intervals, the draws behind them, and the method in the end: a profile where there are too few sizes."""
    check_method(fit, method)
    if method != "profile":
        try:
            resampled = bootstrap(fit, method, draws, seed)
            return _open_ends_profiled(fit, resampled, quantities, level), resampled, method
        except InputError as error:
            warnings.append(f"{error} Profile intervals instead: they take the runs of a size as independent.")
            try:
                check_method(fit, "profile")
            except InputError as refusal:
                warnings[-1] = f"no intervals: {error} {refusal}"
                return {}, None, None
    made = profile_intervals(fit, quantities, level)
    return {q.name: i for q, i in zip(quantities, made, strict=True)}, None, "profile"


def check_method(fit: Fit, method: Method) -> None:
    """Refuse what a method would get wrong."""
    if method == "profile" and fit.error == "huber":
        raise InputError("profile intervals are those of squared error: with --error huber use a bootstrap.")
    if method != "size-bootstrap" and fit.law.along_training:
        raise InputError(f"law {fit.law.name} follows whole curves, whose points are not independent: resample sizes.")


def _open_ends_profiled(fit: Fit, draws: Draws, quantities: list[Quantity], level: float) -> dict[str, Interval]:
    """Bootstrap intervals; where one runs into the limit of its quantity, the hull with the profile.

    A parameter at its bound stays there in most resamples, and their spread would say that it is known exactly.
    """
    made = {q.name: draws.interval(q, level) for q in quantities}
    loose = [
        q for q in quantities if (made[q.name].open_low or made[q.name].open_high) and np.isfinite(made[q.name].low)
    ]
    if not loose or fit.error == "huber" or fit.law.along_training:
        return made
    for quantity, profile in zip(loose, profile_intervals(fit, loose, level), strict=True):
        own = made[quantity.name]
        if np.isnan(profile.low):
            continue
        made[quantity.name] = Interval(
            min(own.low, profile.low),
            max(own.high, profile.high),
            own.open_low or profile.open_low,
            own.open_high or profile.open_high,
        )
    return made


def unbounded(law: Law) -> str:
    return f"N̄_max is unbounded under law {law.name}, which does not saturate in E: more experts help without end."


def _warnings(
    fit: Fit, quantities: list[Quantity], intervals: dict[str, Interval], derived: dict[str, float], level: float
) -> list[str]:
    """What the data do not determine, in words."""
    sentences = []
    of_the_law = {*fit.law.names, *(c.name for c in fit.law.constants), "n_cut"}
    for quantity in quantities:
        interval = intervals.get(quantity.name)
        if interval is None or quantity.name not in of_the_law:
            continue
        if np.isinf(derived.get(quantity.name, 0.0)):
            continue
        if interval.open_low or interval.open_high:
            ends = [f"above {interval.low:.3g}"] * (not interval.open_low) + [f"below {interval.high:.3g}"] * (
                not interval.open_high
            )
            known = f"only known to lie {ends[0]}" if ends else "not limited on either side"
            sentences.append(f"{quantity.name} is not determined by these points: at {level:.0%} it is {known}.")
        elif quantity.log and interval.high > 100 * interval.low:
            sentences.append(
                f"{quantity.name} is determined only to a factor of {interval.high / interval.low:.2g} "
                f"({interval.low:.3g} to {interval.high:.3g} at {level:.0%})."
            )
    largest = float(fit.points.x["active_params"].max())
    cut = derived.get("n_cut")
    if cut is not None and np.isfinite(cut) and cut > FAR_BEYOND * largest:
        sentences.append(
            f"n_cut = {cut:.3g} lies {cut / largest:.0f} times beyond the largest size fitted ({largest:.3g}): "
            f"it depends on the form of the law as much as on the data."
        )
    if np.isinf(derived.get("epc_max", 0.0)):
        sentences.append(unbounded(fit.law))
    if cut is not None and np.isinf(cut):
        sentences.append(f"under law {fit.law.name} routing never stops helping: there is no n_cut.")
    return sentences


def extrapolation(fit: Fit, active_params: float, experts: float) -> str:
    """How (N, E) lies outside the points of a fit; empty inside."""
    sizes, expert_counts = (fitted_range(fit.points.x[name]) for name in ("active_params", "experts"))
    return " and ".join(outside_grid(sizes, expert_counts, active_params, experts))


def fitted_range(values_N: Array) -> Range:
    return float(np.min(values_N)), float(np.max(values_N))


def outside_grid(sizes: Range, expert_counts: Range, active_params: float, experts: float) -> Iterator[str]:
    if reason := outside("size", "largest", active_params, sizes):
        yield reason
    fewest, most = expert_counts
    if experts > most:
        yield f"E is beyond the {most:g} fitted"
    if experts < fewest:
        yield f"E is below the {fewest:g} fitted"


def outside(what: str, extreme: str, value: float, fitted: Range) -> str:
    low, high = fitted
    least = {"largest": "smallest", "most": "least"}[extreme]
    if value > high * 1.01:
        return f"{what} is {_times(value / high)}× the {extreme} fitted"
    if value < low * 0.99:
        return f"{what} is {_times(low / value)}× below the {least} fitted"
    return ""


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}" if ratio < 1e5 else f"{ratio:.1e}"
