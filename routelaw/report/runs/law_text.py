"""What the laws say, in words and tables: the selected law with its parameters, and all laws by how they predict."""

from __future__ import annotations

import math
from collections.abc import Mapping

from routelaw.fitting.fit_report import FitReport
from routelaw.fitting.selection import Ranked, mean_error
from routelaw.report.page import Block, Bullets, Entry, Grid, Text, amount, counted, known, listed, loss_share
from routelaw.report.runs.analysis import TOO_FEW, Analysis

DERIVED = {
    "n_cut": "N_cut: size beyond which routing stops helping",
    "epc": "N̄: dense size of equal loss",
    "loss": "predicted loss",
}
FAR = (
    "N_cut, where routing would stop helping, lies far beyond these sizes or is not determined by them: it depends on "
    "the form of the law as much as on the data."
)
MOST_NAMED = 3
"""Techniques that are named one by one where they share a reason; more are counted."""
METHODS = {
    "size-bootstrap": "from refits to resampled sizes",
    "profile": "from profiles, which take runs of one size as independent",
}


def law_blocks(analysis: Analysis) -> list[Block]:
    """The selected law: why, how well it predicts, its parameters with intervals, and every warning."""
    blocks: list[Block] = []
    if analysis.law is None:
        blocks.append(Text(_why_none(analysis), "key"))
    else:
        law = analysis.law
        blocks.append(Text(f"Law {law.name}: {law.formula} ({law.source}). It was selected because {analysis.why}."))
        blocks.append(Text(_errors(analysis)))
        if analysis.judged:
            blocks.append(_parameters(analysis))
            blocks.append(Text(_methods(analysis), "soft"))
        if analysis.compared:
            blocks.append(Text(_compared(analysis)))
    sentences = without_law({analysis.looks[key].label: why for key, why in analysis.refusals.items()})
    sentences += _without_selected(analysis)
    sentences += _warnings(analysis)
    if sentences:
        blocks.append(Bullets(sentences))
    left_out = [
        f"{analysis.looks[key].label} {'; '.join(points.left_out)}"
        for key, points in analysis.points.items()
        if points.left_out
    ]
    if left_out:
        blocks.append(Text(f"Left out of fits and comparisons: {', '.join(left_out)}.", "soft"))
    return blocks


def without_law(reasons: Mapping[str, str]) -> list[str]:
    """Which techniques have no law. A study of options may train dozens at one size: they share a sentence."""
    alike: dict[str, list[str]] = {}
    for name, why in reasons.items():
        alike.setdefault(why, []).append(name)
    sentences: list[str] = []
    for why, names in alike.items():
        if len(names) <= MOST_NAMED:
            sentences += [f"{name} has no law: {why}" for name in names]
        else:
            sentences.append(f"{len(names)} techniques have no law, each for this reason: {why}")
    return sentences


def _why_none(analysis: Analysis) -> str:
    if analysis.techniques:
        return "No law in size and experts could be fitted to these runs; what was measured stands below."
    if analysis.dense is None:
        return "There are no routed runs, and too few sizes of dense ones for a law: three are needed."
    slope = analysis.dense.params.get("a", math.nan)
    return f"There are no routed runs. The dense ones follow L ∝ N^{slope:.3f} over {len(analysis.dense.points)} sizes."


def _errors(analysis: Analysis) -> str:
    errors = {key: judged.validation.leave_size_out for key, judged in analysis.judged.items()}
    said = [
        f"{analysis.looks[key].label} {1e4 * e:.1f} ({100 * loss_share(e):.2f} % of the loss)"
        for key, e in errors.items()
        if e is not None
    ]
    if not said:
        return "How well it predicts an unseen size cannot be said: without one of these sizes it is not determined."
    return f"Error on model sizes it has not seen, in 10⁻⁴ of log10 L: {listed(said)}."


def _parameters(analysis: Analysis) -> Grid:
    """One column per technique; under each value its interval."""
    judged = analysis.judged
    assert analysis.law is not None
    rows = []
    for parameter in analysis.law.parameters:
        entries = [_value(j.fit.params[parameter.name], j, parameter.name) for j in judged.values()]
        rows.append([Entry(parameter.name, under=parameter.meaning), *entries])
    some = next(iter(judged.values()))
    at = f"at N = {amount(some.at['active_params'])}, E = {some.at['experts']:g}"
    for name, meaning in DERIVED.items():
        if any(name in j.derived for j in judged.values()):
            where = "" if name == "n_cut" else f" {at}"
            entries = [_value(j.derived.get(name, math.nan), j, name) for j in judged.values()]
            rows.append([Entry(f"{meaning}{where}"), *entries])
    return Grid(["parameter", *(analysis.looks[key].label for key in judged)], rows)


def _value(value: float, judged: FitReport, name: str) -> Entry:
    def write(number: float) -> str:
        return amount(number) if name in ("n_cut", "epc") else f"{number:.4g}".replace("-", "−")

    if math.isinf(value):
        return Entry("none" if name == "n_cut" else "∞")
    return Entry(write(value), under=known(judged.intervals.get(name), write))


def _methods(analysis: Analysis) -> str:
    used = list(dict.fromkeys(METHODS[j.method] for j in analysis.judged.values() if j.method))
    if not used:
        return "No intervals: these points do not allow any."
    some = next(iter(analysis.judged.values()))
    return (
        f"Under each value its {some.level:.0%} interval, {listed(used)}; an open end (…) is one the data do not set."
    )


def _compared(analysis: Analysis) -> str:
    """Techniques under the law at one point, by refits of all of them to the same resampled sizes."""
    compared = analysis.compared
    assert compared is not None
    looks = analysis.looks
    where = f"N = {amount(compared.at['active_params'])}, E = {compared.at['experts']:g}"
    ends = {key: f"{low:.3f} to {high:.3f}" for key, (low, high) in compared.interval.items()}
    losses = [f"{looks[key].label} {compared.loss[key]:.3f} ({ends[key]})" for key in compared.routers]
    pairs = [
        f"{looks[p].label} beats {looks[q].label} with probability {compared.better_probability[p, q]:.2f}"
        for p, q in zip(compared.routers, compared.routers[1:], strict=False)
    ]
    return f"Under this law the loss at {where} is {listed(losses)}; {listed(pairs)}."


def _without_selected(analysis: Analysis) -> list[str]:
    """Techniques that have laws, and not this one."""
    if analysis.law is None:
        return []
    sentences = []
    for key, rows in analysis.ranked.items():
        if rows and key not in analysis.judged:
            why = next(
                (s.reason for s in analysis.skipped[key] if s.law == analysis.law.name), "it could not be fitted."
            )
            sentences.append(f"{analysis.looks[key].label} is not under this law: {why}")
    return sentences


def _warnings(analysis: Analysis) -> list[str]:
    """Each warning once, with the techniques it is about."""
    about: dict[str, list[str]] = {}
    for key, judged in analysis.judged.items():
        for warning in dict.fromkeys(FAR if w.startswith("n_cut") else w for w in judged.warnings):
            about.setdefault(warning, []).append(analysis.looks[key].label)
    return [f"{listed(names)}: {warning}" for warning, names in about.items()]


def ranking_grid(analysis: Analysis) -> list[Block]:
    """Laws by leave-size-out error; under it the interval, and whether the best law beats it by more than noise."""
    fitted = [key for key, rows in analysis.ranked.items() if rows]
    names = {r.fit.law.name: r.fit.law for key in fitted for r in analysis.ranked[key]}
    order = sorted(names, key=lambda name: (mean_error(analysis.ranked, name), len(names[name].parameters)))
    rows = []
    for name in order:
        entries = [_rank(next((r for r in analysis.ranked[key] if r.fit.law.name == name), None)) for key in fitted]
        about = f"{counted(len(names[name].parameters), 'parameter')}: {names[name].formula}"
        rows.append([Entry(name, under=about), *entries])
    blocks: list[Block] = [Grid(["law", *(analysis.looks[key].label for key in fitted)], rows)]
    note = (
        "Leave-size-out error in 10⁻⁴ of log10 L, under it its interval over resampled sizes. Green: the best for this "
        "technique; grey: within noise of it; red: clearly worse. Where a size cannot be spared, the error in sample."
    )
    blocks.append(Text(note, "soft"))
    return [*blocks, *_not_fitted(analysis, fitted)]


def _not_fitted(analysis: Analysis, fitted: list[str]) -> list[Block]:
    skipped = [s for key in fitted for s in analysis.skipped[key]]
    few = list(dict.fromkeys(s.law for s in skipped if TOO_FEW in s.reason))
    said = [f"Not tried where points are {TOO_FEW} parameter: {listed(few)}."] if few else []
    said += dict.fromkeys(s.reason[0].upper() + s.reason[1:] for s in skipped if TOO_FEW not in s.reason)
    return [Text(" ".join(said), "soft")] if said else []


def _rank(row: Ranked | None) -> Entry:
    if row is None:
        return Entry("")
    error = row.validation.leave_size_out
    if error is None or row.interval is None:
        return Entry(f"({1e4 * row.validation.in_sample:.1f})", under="in sample")
    tone = "good" if row.behind == 0 else "bad" if row.clearly_worse else "none"
    settled = "" if row.fit.status == "converged" else f", {row.fit.status}"
    low, high = (f"{1e4 * end:,.0f}" for end in row.interval)
    return Entry(f"{1e4 * error:,.1f}", under=f"{low} to {high}{settled}", tone=tone)
