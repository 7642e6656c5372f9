"""Transfer: the law of the page fitted to every corpus that the runs were evaluated on, side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from routelaw.figures.transfer import corpus_label
from routelaw.files import write_atomically
from routelaw.fitting.intervals import Interval
from routelaw.fitting.points import in_size_and_experts
from routelaw.fitting.transfer import CorpusFit, EffectiveSize, Transfer, fit_transfer
from routelaw.formatting import number
from routelaw.laws import get_law
from routelaw.report.page import Block, Entry, Grid, Heading, Text, known, listed
from routelaw.report.runs.analysis import Analysis
from routelaw.runs.table import RunTable

MOST_ROWS = 40
"""Models of one technique that the page has; the table beside it has them all."""


def transfer_of(table: RunTable, analysis: Analysis) -> Transfer | None:
    """None where the runs were evaluated on one corpus, or no technique can have a law in size."""
    targets = [analysis.target, *(loss for loss in table.losses if loss != analysis.target)]
    tables = {key: technique.table for key, technique in analysis.techniques.items() if key in analysis.points}
    if len(targets) < 2 or not tables:
        return None
    law = analysis.law if analysis.law is not None and in_size_and_experts(analysis.law) else get_law("bilinear")
    return fit_transfer(tables, law, targets, level=analysis.level)


def transfer_blocks(transfer: Transfer | None, analysis: Analysis, anchor: str) -> list[Block]:
    if transfer is None:
        return []
    law, labels = transfer.law, [corpus_label(target) for target in transfer.targets]
    lead = (
        f"The runs were evaluated on {listed(labels)}. Law {law.name}, {law.formula}, is fitted to each of these "
        "losses by itself. The models are the same, so what differs is the text."
    )
    blocks: list[Block] = [Text(lead)]
    for key in transfer.techniques:
        fits = transfer.of(key)
        if not fits:
            continue
        label = analysis.looks[key].label
        blocks += [Heading(f"{label}: coefficients and slopes", f"{anchor}-{key}"), _coefficients(fits)]
        blocks += [Heading(f"{label}: effective parameters", f"{anchor}-{key}-epc"), *_effective(fits)]
    if len(blocks) > 1:
        blocks.append(Text(_explained(transfer), "soft"))
    refused = [
        f"{analysis.looks[key].label} on {corpus_label(target)}: {why}"
        for (key, target), why in transfer.refusals.items()
    ]
    return [*blocks, Text(f"Not fitted: {' '.join(refused)}", "soft")] if refused else blocks


def _explained(transfer: Transfer) -> str:
    some = next(iter(transfer.fits.values()))
    share = f"{some.level:.0%} interval over resampled sizes".replace("%", " %")
    without = [corpus_label(fit.target) for fit in transfer.fits.values() if fit.draws is None]
    bars = f"Under a figure stands its {share}."
    if without:
        bars = "Three sizes at least are needed for intervals, so there are none here."
        if len(without) < len(transfer.fits):
            bars = f"Under a figure stands its {share}, where there are three sizes."
    return (
        f"{bars} a(E) is the slope of log L in log N at that E, b(N) the slope in log E at that size: the further "
        "below zero, the more is gained. Effective parameters N̄ are the dense size of equal loss on that text, "
        "under the same law, as a multiple of N; there are none where larger dense models are no better under it. "
        "Those outside the sizes trained are extrapolated."
    )


def _coefficients(fits: dict[str, CorpusFit]) -> Grid:
    first = next(iter(fits.values()))
    experts = sorted({e for fit in fits.values() for e in fit.size_slopes if e > 1})
    sizes = list(dict.fromkeys(size for fit in fits.values() for size in fit.expert_slopes))
    shown_e, shown_n = _ends(experts), _ends(sizes)
    head = ["corpus", *first.fit.law.names, *(f"a(E = {e})" for e in shown_e), *(f"b({size})" for size in shown_n)]
    rows = []
    for target, fit in fits.items():
        settled = "" if fit.fit.status == "converged" else fit.fit.status
        entries = [Entry(corpus_label(target), under=settled)]
        entries += [_figure(fit.fit.params[name], fit.intervals.get(name)) for name in first.fit.law.names]
        entries += [_figure(fit.size_slopes.get(e)) for e in shown_e]
        rows.append([*entries, *(_figure(fit.expert_slopes.get(size)) for size in shown_n)])
    return Grid([*head], rows)


def _ends(values: list) -> list:
    return values if len(values) < 3 else [values[0], values[-1]]


def _figure(value: float | None, interval: Interval | None = None) -> Entry:
    if value is None:
        return Entry("–")
    return Entry(_written(value), under=known(interval, _written) if interval else "")


def _written(value: float) -> str:
    return number(value, 3).replace("-", "−")


def _effective(fits: dict[str, CorpusFit]) -> list[Block]:
    found = {target: {(e.size, e.active_params, e.experts): e for e in fit.effective} for target, fit in fits.items()}
    models = sorted({model for each in found.values() for model in each}, key=lambda m: (m[1], m[2]))
    note = []
    if len(models) > MOST_ROWS:
        largest = {size: max(e for s, _, e in models if s == size) for size, _, _ in models}
        models = [model for model in models if model[2] == largest[model[0]]]
        note = [Text("Of each size the largest E; tables/transfer_effective.csv has every model.", "soft")]
    rows = [
        [Entry(f"{size}, E = {experts}"), *(_multiple(each.get((size, n, experts))) for each in found.values())]
        for size, n, experts in models
    ]
    return [Grid(["model", *(corpus_label(target) for target in fits)], rows), *note]


def _multiple(found: EffectiveSize | None) -> Entry:
    if found is None:
        return Entry("–")
    if np.isnan(found.effective):
        return Entry("–", under="larger is no better")
    under = known(found.interval, number) if found.interval else number(found.effective, 3)
    if found.extrapolated:
        under += ", extrapolated"
    return Entry(f"{number(found.ratio, 3)} ×", under=under, tone="good" if found.ratio > 1 else "bad")


def write_transfer_tables(transfer: Transfer | None, folder: Path) -> list[str]:
    """Coefficients and slopes, and effective parameters of every model; returns the names of the files."""
    written = []
    for name, frame in _frames(transfer).items() if transfer is not None and transfer.fits else ():
        content = frame.replace([np.inf, -np.inf], np.nan).to_csv(index=False, lineterminator="\n")
        write_atomically(content.encode(), folder / f"{name}.csv")
        written.append(f"{name}.csv")
    return written


def _frames(transfer: Transfer) -> dict[str, pd.DataFrame]:
    coefficients, effective = [], []
    for fit in transfer.fits.values():
        of = {"technique": fit.technique, "target": fit.target}
        intervals, law = fit.intervals, {"law": fit.fit.law.name, "status": fit.fit.status}
        for name, value in fit.fit.params.items():
            ends = intervals[name].ends if name in intervals else (None, None)
            coefficients.append({**of, **law, "quantity": name, "value": value, **_low_high(ends)})
        slopes = {f"a(E={e})": a for e, a in fit.size_slopes.items()}
        slopes |= {f"b({size})": b for size, b in fit.expert_slopes.items()}
        coefficients += [{**of, **law, "quantity": q, "value": v, **_low_high((None, None))} for q, v in slopes.items()]
        for each in fit.effective:
            ends = each.interval.ends if each.interval else (None, None)
            model = {"size": each.size, "active_params": each.active_params, "experts": each.experts}
            effective.append({**of, **model, "effective_params": each.effective, **_low_high(ends)})
            effective[-1]["extrapolated"] = each.extrapolated
    return {"transfer_coefficients": pd.DataFrame(coefficients), "transfer_effective": pd.DataFrame(effective)}


def _low_high(ends: tuple[float | None, float | None]) -> dict[str, float | None]:
    return dict(zip(("low", "high"), ends, strict=True))
