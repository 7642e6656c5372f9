"""A source of losses in words: what was trained and what went wrong, which technique wins where, what routing gains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from routelaw.fitting.pairwise import CLEARLY, OPEN, MeasuredModel, PairwiseComparison, TechniqueRanking, stands_out
from routelaw.report.page import (
    Block,
    Bullets,
    Entry,
    Facts,
    Grid,
    Text,
    amount,
    counted,
    listed,
    loss_share,
    percent,
    span,
)
from routelaw.report.runs.analysis import Analysis, label_of, shared_settings, without
from routelaw.report.runs.data import DIVERGED, ReportData, RunRow
from routelaw.runs.store import FAILED, RUNNING, STOPPED
from routelaw.runs.table import FINISHED
from routelaw.specs.names import DENSE

MOST_REASONS = 12
RESTS_ON = {"sizes": "over the sizes", "seeds": "by repeated seeds", "misfit": "by the scatter of runs about the law"}
MOST_TOLD = 6


def trained(report_data: ReportData, rows: Sequence[RunRow]) -> list[Block]:
    """What was trained, and what went wrong."""
    routed = [row for row in rows if row.router and row.router != DENSE]
    shared = shared_settings(report_data.table) if report_data.table is not None else []
    sizes = {row.size: row.active_params for row in rows if row.size and row.active_params}
    parts = [f"{counted(len(rows), 'run')}{_states(rows)}."]
    dense = any(row.router == DENSE for row in rows)
    if rows and sizes:
        what = listed([*(["dense models"] if dense else []), *_techniques(routed, shared)])
        by_size = sorted(sizes, key=lambda size: sizes[size] or 0.0)
        parts.append(f"Trained: {what}, at {counted(len(sizes), 'size')} ({', '.join(by_size)}){_choices(routed)}.")
    if shared:
        parts.append(f"All have {listed(shared)}, which the names of techniques leave out.")
    parts += [sentence for sentence in (_length(rows), _seeds(rows), _corpus(rows)) if sentence]
    blocks: list[Block] = [Text(" ".join(parts))]
    notes = list(report_data.table.notes) if report_data.table is not None else []
    if report_data.excluded:
        blocks.append(Text("Excluded from laws and comparisons:"))
        blocks.append(Bullets(report_data.excluded))
    ended_badly = [row for row in rows if row.reason]
    if ended_badly:
        sentences = [f"{row.label} (run {row.run_id}) {row.status}: {row.reason.rstrip('.')}." for row in ended_badly]
        more = (
            [f"{len(sentences) - MOST_REASONS} more stand in the run table."] if len(sentences) > MOST_REASONS else []
        )
        blocks.append(Bullets([*sentences[:MOST_REASONS], *more]))
    if report_data.table is not None and report_data.table.warnings:
        blocks.append(Text("Hard to believe in the table:"))
        blocks.append(Bullets(report_data.table.warnings))
    if notes:
        blocks.append(Text(" ".join(notes), "soft"))
    return blocks


def _techniques(routed: Sequence[RunRow], shared: Sequence[str]) -> list[str]:
    """By name; where that is a long list, the routers with the number of their variants."""
    pairs = dict.fromkeys((row.router, without(row.variant, shared)) for row in routed)
    named = [(router, label_of(router, variant)) for router, variant in pairs]
    if len(named) <= MOST_TOLD:
        return [label for _, label in named]
    variants = Counter(router for router, _ in named)
    only = dict(named)
    return [only[r] if n == 1 else f"{label_of(r, '')} in {n} variants" for r, n in variants.items()]


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


def comparison_text(analysis: Analysis) -> list[Block]:
    """Which technique wins where, and how surely."""
    ranking = analysis.pairwise
    if len(ranking.order) == 1:
        only = analysis.looks[ranking.order[0]].label
        return [Text(f"{only} is the only routed technique here: there is no other to compare it with.", "key")]
    first = ranking.order[0]
    pairs = [pair for (p, _), pair in ranking.pairs.items() if p == first and pair.models]
    blocks: list[Block] = [Text(_headline(analysis, pairs), "key")]
    blocks.append(Bullets([_told(analysis, pair) for pair in pairs[:MOST_TOLD]]))
    if len(ranking.order) > 2:
        shown = len(_shown(analysis))
        which = "Every pair" if shown == len(ranking.order) else f"Pairs of {_those(shown, len(ranking.order))}"
        blocks.append(Text(f"{which}: how much lower the loss of the row is than that of the column, on average."))
        blocks.append(_pair_grid(analysis))
    blocks.append(Text("The lowest loss at each size and E, and under it the lead on the next:"))
    blocks.append(_winner_grid(analysis))
    blocks.append(Text(_noise_words(analysis.pairwise, analysis.level), "soft"))
    return blocks


def _headline(analysis: Analysis, pairs: Sequence[PairwiseComparison]) -> str:
    name = analysis.looks[analysis.pairwise.order[0]].label
    beaten = [d for d in pairs if d.verdict == CLEARLY and d.lead > 0]
    if pairs and len(beaten) == len(pairs):
        return f"{name} has the lowest loss, and clearly so."
    if not any(d.interval for d in pairs):
        return f"{name} is ahead on average, and nothing here says how much of that is chance: no seed was repeated."
    if not beaten and all(d.verdict == OPEN for d in pairs):
        return f"These runs cannot tell which technique is best: {name} is ahead on average, by no more than chance."
    unsure = _few([analysis.looks[d.second].label for d in pairs if d not in beaten])
    clear = _few([analysis.looks[d.second].label for d in beaten])
    return f"{name} is ahead on average" + (f", clearly of {clear}" if clear else "") + f", not surely of {unsure}."


def _few(names: Sequence[str]) -> str:
    """The names, or how many they are."""
    return listed(names) if len(names) <= MOST_TOLD else f"{len(names)} others"


def _shown(analysis: Analysis) -> list[str]:
    """The techniques that a grid of the page has room for, the best first."""
    return [key for key in analysis.pairwise.order if key in analysis.most_trained]


def _told(analysis: Analysis, pair: PairwiseComparison) -> str:
    better, worse = (pair.first, pair.second) if pair.lead >= 0 else (pair.second, pair.first)
    wins = pair.wins if pair.lead >= 0 else pair.models - pair.wins
    names = analysis.looks[better].label, analysis.looks[worse].label
    lead = abs(pair.lead)
    shared = f"{wins} of the {pair.models} models they share ({counted(pair.sizes, 'size')})"
    where = shared if pair.models > 1 else "the one model they share"
    how = f"lower loss in {where}, by {100 * loss_share(lead):.1f} % on average"
    if pair.interval is None or pair.probability is None:
        return f"{names[0]} against {names[1]}: {how}; how much of that is chance is not known."
    ends = sorted(loss_share(end if pair.lead >= 0 else -end) for end in pair.interval)
    sure = max(pair.probability, 1 - pair.probability)
    spread = f"{analysis.level:.0%} interval {percent(ends[0])} to {percent(ends[1])}, {RESTS_ON[pair.by]}"
    verdict = {CLEARLY: "is clearly better than", OPEN: "cannot be told apart from"}.get(
        pair.verdict, "is probably, not surely, better than"
    )
    return f"{names[0]} {verdict} {names[1]}: {how} ({spread}; probability {sure:.2f})."


def _those(shown: int, of: int) -> str:
    return f"the {shown} techniques of {of} that were trained at most sizes and E (tables/ has all)"


def _pair_grid(analysis: Analysis) -> Grid:
    ranking, order = analysis.pairwise, _shown(analysis)
    rows = []
    for p in order:
        entries = [Entry("" if p == q else "–") for q in order]
        for place, q in enumerate(order):
            pair, sign = (ranking.pairs[p, q], 1) if (p, q) in ranking.pairs else (ranking.pairs.get((q, p)), -1)
            if pair is not None and pair.models:
                lead = sign * pair.lead
                clear = ("good" if lead > 0 else "bad") if pair.verdict == CLEARLY else "none"
                wins = pair.wins if sign > 0 else pair.models - pair.wins
                entries[place] = Entry(percent(loss_share(lead)), under=f"lower in {wins} of {pair.models}", tone=clear)
        rows.append([Entry(analysis.looks[p].label), *entries])
    return Grid(["", *(analysis.looks[q].label for q in order)], rows)


def _winner_grid(analysis: Analysis) -> Grid:
    ranking = analysis.pairwise
    rows = [
        [Entry(size), *(_winner(analysis, ranking.at(size=size, experts=e)) for e in ranking.experts)]
        for size in ranking.sizes
    ]
    return Grid(["size", *(f"E = {e}" for e in ranking.experts)], rows)


def _winner(analysis: Analysis, models: list[MeasuredModel]) -> Entry:
    ranking = analysis.pairwise
    if not models:
        return Entry("")
    name = analysis.looks[models[0].technique].label
    if len(models) == 1:
        return Entry(name, under="alone")
    first, second = models[:2]
    lead = second.log_loss - first.log_loss
    sure = ranking.noise is not None and stands_out(lead, first.seeds, second.seeds, ranking.noise, analysis.level)
    return Entry(name, under=f"by {100 * loss_share(lead):.1f} %", tone="good" if sure else "none")


def _noise_words(ranking: TechniqueRanking, level: float) -> str:
    if ranking.noise is None:
        return "No model was repeated and no law was fitted, so nothing says how much of these leads is chance."
    spread = 100 * loss_share(ranking.noise.sd)
    source = {
        "seeds": f"models trained with several seeds ({ranking.noise.freedom:.0f} repetitions) differ by",
        "misfit": "no model was repeated; runs scatter about the selected law by",
    }[ranking.noise.kind]
    return (
        f"Green: the lead is larger than chance at {level:.0%}; grey: it may be chance. Here {source} {spread:.2f} %."
    )


def gains(analysis: Analysis) -> list[Block]:
    """The best of each technique against the dense model of its size, honestly negative where it is."""
    ranking = analysis.pairwise
    compared = [model for model in ranking.models if model.gain is not None]
    if not compared:
        return [Text("There is no dense run of the same size, so what routing gains cannot be said.", "soft")]
    order = _shown(analysis)
    rows = []
    for size in ranking.sizes:
        best = {key: _best(ranking.at(technique=key, size=size)) for key in order}
        dense = next((model.dense_loss for model in compared if model.size == size), None)
        entries = [Entry(size), Entry("–" if dense is None else f"{dense:.4f}")]
        rows.append([*entries, *(_gain(analysis, model) for model in best.values())])
    head = ["size", "dense loss", *(analysis.looks[key].label for key in order)]
    note = (
        "The gain is the share of the dense loss that routing takes off: plus is better, green or red is more than "
        "chance. Of each technique the best E, which flatters it a little: the best of several is partly luck."
    )
    if len(order) < len(ranking.order):
        note += f" Shown are {_those(len(order), len(ranking.order))}."
    return [Text(_gain_words(analysis, compared)), Grid(head, rows), Text(note, "soft")]


def _best(models: list[MeasuredModel]) -> MeasuredModel | None:
    """The lowest loss that has a dense one beside it."""
    return next((model for model in models if model.gain is not None), None)


def _gain_words(analysis: Analysis, compared: list[MeasuredModel]) -> str:
    ranking = analysis.pairwise
    best = max(compared, key=lambda model: model.gain or 0.0)
    where = f"{analysis.looks[best.technique].label} at {best.size} with E = {best.experts}"
    if (best.gain or 0.0) <= 0:
        return f"No routed model beats the dense one of its size; nearest is {where} ({percent(best.gain or 0.0)})."
    share = f"{100 * (best.gain or 0.0):.1f} % of the loss"
    said = f"The largest gain over a dense model of the same size is {share}: {where}."
    losing = []
    for key in ranking.order:
        for size in ranking.sizes:
            model = _best(ranking.at(technique=key, size=size))
            if model is not None and (model.gain or 0.0) <= 0:
                losing.append(f"{analysis.looks[key].label} at {size}")
    places = listed(losing) if len(losing) <= MOST_TOLD else f"{len(losing)} pairs of technique and size"
    return said + (f" With no number of experts better than dense: {places}." if losing else "")


def _gain(analysis: Analysis, model: MeasuredModel | None) -> Entry:
    ranking = analysis.pairwise
    if model is None or model.gain is None or model.dense_loss is None:
        return Entry("")
    lead = abs(math.log10(model.dense_loss / model.loss))
    sure = ranking.noise is not None and stands_out(lead, model.seeds, model.dense_seeds, ranking.noise, analysis.level)
    tone = ("good" if model.gain > 0 else "bad") if sure else "none"
    return Entry(percent(model.gain), under=f"E = {model.experts}", tone=tone)
