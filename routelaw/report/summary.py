"""A source of losses in words and large numbers: what was trained, for how long, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from routelaw.report.analysis import Analysis
from routelaw.report.page import Block, Bullets, Facts, Text
from routelaw.report.report_data import DIVERGED, ReportData
from routelaw.report.run_rows import RunRow
from routelaw.report.techniques import label_of
from routelaw.report.words import amount, counted, listed, percent, span
from routelaw.runs.store import FAILED, RUNNING, STOPPED
from routelaw.runs.table import FINISHED
from routelaw.specs.techniques import DENSE

MOST_REASONS = 12


def trained(report_data: ReportData, rows: Sequence[RunRow]) -> list[Block]:
    """What was trained, and what went wrong."""
    routed = [row for row in rows if row.router and row.router != DENSE]
    names = list(dict.fromkeys(label_of(row.router, row.variant) for row in routed))
    sizes = {row.size: row.active_params for row in rows if row.size and row.active_params}
    parts = [f"{counted(len(rows), 'run')}{_states(rows)}."]
    dense = any(row.router == DENSE for row in rows)
    if rows and sizes:
        what = listed([*(["dense models"] if dense else []), *names])
        by_size = sorted(sizes, key=lambda size: sizes[size] or 0.0)
        parts.append(f"Trained: {what}, at {counted(len(sizes), 'size')} ({', '.join(by_size)}){_choices(routed)}.")
    parts += [sentence for sentence in (_length(rows), _seeds(rows), _corpus(rows)) if sentence]
    blocks: list[Block] = [Text(" ".join(parts))]
    notes = list(report_data.table.notes) if report_data.table is not None else []
    if report_data.excluded:
        blocks.append(Text("Set aside for laws and comparisons:"))
        blocks.append(Bullets(report_data.excluded))
    ended_badly = [row for row in rows if row.reason]
    if ended_badly:
        told = [f"{row.label} (run {row.run_id}) {row.status}: {row.reason.rstrip('.')}." for row in ended_badly]
        more = [f"{len(told) - MOST_REASONS} more stand in the run table."] if len(told) > MOST_REASONS else []
        blocks.append(Bullets([*told[:MOST_REASONS], *more]))
    if report_data.table is not None and report_data.table.warnings:
        blocks.append(Text("Hard to believe in the table:"))
        blocks.append(Bullets(report_data.table.warnings))
    if notes:
        blocks.append(Text(" ".join(notes), "soft"))
    return blocks


def scale(rows: Sequence[RunRow]) -> list[Block]:
    """At what scale the verdicts below hold: nowhere else."""
    sentence = scale_sentence([(row.active_params, row.tokens) for row in rows if row.status == FINISHED])
    return [Text(sentence, "key")] if sentence else []


def scale_sentence(runs: Sequence[tuple[float | None, float | None]]) -> str:
    """In words, from (active parameters, tokens) of each run; empty where no run says both."""
    known = [(size, tokens) for size, tokens in runs if size and tokens]
    if not known:
        return ""
    sizes, tokens = span([size for size, _ in known]), span([tokens for _, tokens in known])
    each = span([tokens / size for size, tokens in known], lambda ratio: f"{ratio:.2g}")
    return (
        f"What is said here holds for models of {sizes} active parameters after {tokens} tokens ({each} to a "
        "parameter). At other sizes, or after longer training, it may be the other way round."
    )


def facts(rows: Sequence[RunRow], analysis: Analysis | None) -> Facts:
    finished = sum(row.status == FINISHED for row in rows)
    items = [(f"{finished:,}" + ("" if finished == len(rows) else f" of {len(rows):,}"), "runs finished")]
    sizes = {row.size for row in rows if row.size}
    items.append((str(len(sizes)), "size" if len(sizes) == 1 else "sizes"))
    if analysis is not None and analysis.techniques:
        items.append((str(len(analysis.techniques)), "routed techniques" if len(analysis.techniques) > 1 else "router"))
    tokens = [row.tokens for row in rows if row.tokens]
    if tokens:
        items.append((amount(max(tokens)), "tokens a run"))
    gains = [] if analysis is None else [m.gain for m in analysis.pairwise.models if m.gain is not None]
    if gains:
        items.append((percent(-max(gains)), "loss, best routed against dense of its size"))
    return Facts(items)


def _states(rows: Sequence[RunRow]) -> str:
    counts = Counter(row.status for row in rows)
    if set(counts) == {FINISHED}:
        return ", all finished" if len(rows) > 1 else ", finished"
    known = [state for state in (FINISHED, RUNNING, STOPPED, DIVERGED, FAILED) if state in counts]
    others = sorted(set(counts) - set(known))
    return ": " + listed([f"{counts[state]} {state}" for state in [*known, *others]])


def _choices(routed: Sequence[RunRow]) -> str:
    if not routed:
        return ""
    said = [f"E = {span([row.experts or 1 for row in routed], lambda e: f'{e:g}')}"]
    for name, symbol in (("k", "K"), ("routing_frequency", "R")):
        values = sorted({getattr(row, name) for row in routed if getattr(row, name) is not None})
        if values:
            said.append(f"{symbol} = {listed([f'{v:.3g}' for v in values])}")
    return ", " + ", ".join(said)


def _length(rows: Sequence[RunRow]) -> str:
    tokens = sorted({row.tokens for row in rows if row.tokens and row.status == FINISHED})
    if not tokens:
        return ""
    return f"Finished runs have seen {span(tokens)} tokens."


def _seeds(rows: Sequence[RunRow]) -> str:
    models = Counter((r.router, r.variant, r.size, r.experts, r.k, r.routing_frequency) for r in rows if r.router)
    repeated = [n for n in models.values() if n > 1]
    if not repeated:
        return "Every model was trained with one seed."
    seeds = f"{span(repeated, str)} seeds"
    if len(repeated) == len(models):
        return f"Every model was trained with {seeds}."
    return f"{counted(len(repeated), 'model')} of {len(models)} with {seeds}, the others with one."


def _corpus(rows: Sequence[RunRow]) -> str:
    """Corpora by the beginning of their content hash, which is how specs name them."""
    specs = [row.spec for row in rows if row.spec is not None]
    said = {
        f"{s.corpus[:12]} (vocabulary {s.model.vocabulary:,}, sequences of {s.model.sequence_length:,})" for s in specs
    }
    return f"Corpus {listed(sorted(said))}." if said else ""
