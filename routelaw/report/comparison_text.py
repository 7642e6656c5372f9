"""Which technique wins where and how surely, and what routing gains over dense: in words and two small tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from routelaw.report.analysis import Analysis
from routelaw.report.contest import CLEARLY, OPEN, Cell, Contest, PairwiseComparison, stands_out
from routelaw.report.page import Block, Bullets, Entry, Grid, Text
from routelaw.report.words import counted, listed, loss_share, percent

RESTS_ON = {"sizes": "over the sizes", "seeds": "by repeated seeds", "misfit": "by the scatter of runs about the law"}
MOST_TOLD = 6


def winners(analysis: Analysis, contest: Contest) -> list[Block]:
    """Which technique wins where, and how surely."""
    if len(contest.order) == 1:
        only = analysis.looks[contest.order[0]].label
        return [Text(f"{only} is the only routed technique here: there is no other to compare it with.", "key")]
    first = contest.order[0]
    duels = [duel for (p, _), duel in contest.duels.items() if p == first and duel.cells]
    blocks: list[Block] = [Text(_headline(analysis, contest, duels), "key")]
    blocks.append(Bullets([_told(analysis, duel) for duel in duels[:MOST_TOLD]]))
    if len(contest.order) > 2:
        blocks.append(Text("Every pair: how much lower the loss of the row is than that of the column, on average."))
        blocks.append(_duel_grid(analysis, contest))
    blocks.append(Text("The lowest loss at each size and E, and under it the lead on the next:"))
    blocks.append(_winner_grid(analysis, contest))
    blocks.append(Text(_noise_words(contest, analysis.level), "soft"))
    return blocks


def _headline(analysis: Analysis, contest: Contest, duels: Sequence[PairwiseComparison]) -> str:
    name = analysis.looks[contest.order[0]].label
    beaten = [d for d in duels if d.verdict == CLEARLY and d.lead > 0]
    if duels and len(beaten) == len(duels):
        return f"{name} has the lowest loss, and clearly so."
    if not any(d.interval for d in duels):
        return f"{name} is ahead on average, and nothing here says how much of that is chance: no seed was repeated."
    if not beaten and all(d.verdict == OPEN for d in duels):
        return f"These runs cannot tell which technique is best: {name} is ahead on average, by no more than chance."
    unsure = listed([analysis.looks[d.second].label for d in duels if d not in beaten])
    clear = listed([analysis.looks[d.second].label for d in beaten])
    return f"{name} is ahead on average" + (f", clearly of {clear}" if clear else "") + f", not surely of {unsure}."


def _told(analysis: Analysis, duel: PairwiseComparison) -> str:
    better, worse = (duel.first, duel.second) if duel.lead >= 0 else (duel.second, duel.first)
    wins = duel.wins if duel.lead >= 0 else duel.cells - duel.wins
    names = analysis.looks[better].label, analysis.looks[worse].label
    lead = abs(duel.lead)
    shared = f"{wins} of the {duel.cells} models they share ({counted(duel.sizes, 'size')})"
    where = shared if duel.cells > 1 else "the one model they share"
    how = f"lower loss in {where}, by {100 * loss_share(lead):.1f} % on average"
    if duel.interval is None or duel.probability is None:
        return f"{names[0]} against {names[1]}: {how}; how much of that is chance is not known."
    ends = sorted(loss_share(end if duel.lead >= 0 else -end) for end in duel.interval)
    sure = max(duel.probability, 1 - duel.probability)
    spread = f"{analysis.level:.0%} interval {percent(ends[0])} to {percent(ends[1])}, {RESTS_ON[duel.by]}"
    verdict = {CLEARLY: "is clearly better than", OPEN: "cannot be told apart from"}.get(
        duel.verdict, "is probably, not surely, better than"
    )
    return f"{names[0]} {verdict} {names[1]}: {how} ({spread}; probability {sure:.2f})."


def _duel_grid(analysis: Analysis, contest: Contest) -> Grid:
    rows = []
    for p in contest.order:
        entries = [Entry("" if p == q else "–") for q in contest.order]
        for place, q in enumerate(contest.order):
            duel, sign = (contest.duels[p, q], 1) if (p, q) in contest.duels else (contest.duels.get((q, p)), -1)
            if duel is not None and duel.cells:
                lead = sign * duel.lead
                clear = ("good" if lead > 0 else "bad") if duel.verdict == CLEARLY else "none"
                wins = duel.wins if sign > 0 else duel.cells - duel.wins
                entries[place] = Entry(percent(loss_share(lead)), under=f"lower in {wins} of {duel.cells}", tone=clear)
        rows.append([Entry(analysis.looks[p].label), *entries])
    return Grid(["", *(analysis.looks[q].label for q in contest.order)], rows)


def _winner_grid(analysis: Analysis, contest: Contest) -> Grid:
    rows = [
        [Entry(size), *(_winner(analysis, contest, contest.at(size=size, experts=e)) for e in contest.experts)]
        for size in contest.sizes
    ]
    return Grid(["size", *(f"E = {e}" for e in contest.experts)], rows)


def _winner(analysis: Analysis, contest: Contest, cells: list[Cell]) -> Entry:
    if not cells:
        return Entry("")
    name = analysis.looks[cells[0].technique].label
    if len(cells) == 1:
        return Entry(name, under="alone")
    first, second = cells[:2]
    lead = second.log_loss - first.log_loss
    sure = contest.noise is not None and stands_out(lead, first.seeds, second.seeds, contest.noise, analysis.level)
    return Entry(name, under=f"by {100 * loss_share(lead):.1f} %", tone="good" if sure else "none")


def _noise_words(contest: Contest, level: float) -> str:
    if contest.noise is None:
        return "No model was repeated and no law was fitted, so nothing says how much of these leads is chance."
    spread = 100 * loss_share(contest.noise.spread)
    source = {
        "seeds": f"models trained with several seeds ({contest.noise.degrees:.0f} repetitions) differ by",
        "misfit": "no model was repeated; runs scatter about the selected law by",
    }[contest.noise.kind]
    return (
        f"Green: the lead is larger than chance at {level:.0%}; grey: it may be chance. Here {source} {spread:.2f} %."
    )


def gains(analysis: Analysis, contest: Contest) -> list[Block]:
    """The best of each technique against the dense model of its size, honestly negative where it is."""
    compared = [cell for cell in contest.cells if cell.gain is not None]
    if not compared:
        return [Text("There is no dense run of the same size, so what routing gains cannot be said.", "soft")]
    rows = []
    for size in contest.sizes:
        best = {key: _best(contest.at(technique=key, size=size)) for key in contest.order}
        dense = next((cell.dense_loss for cell in compared if cell.size == size), None)
        entries = [Entry(size), Entry("–" if dense is None else f"{dense:.4f}")]
        rows.append([*entries, *(_gain(analysis, contest, cell) for cell in best.values())])
    head = ["size", "dense loss", *(analysis.looks[key].label for key in contest.order)]
    note = (
        "The gain is the share of the dense loss that routing takes off: plus is better, green or red is more than "
        "chance. Of each technique the best E, which flatters it a little: the best of several is partly luck."
    )
    return [Text(_gain_words(analysis, contest, compared)), Grid(head, rows), Text(note, "soft")]


def _best(cells: list[Cell]) -> Cell | None:
    """The lowest loss that has a dense one beside it."""
    return next((cell for cell in cells if cell.gain is not None), None)


def _gain_words(analysis: Analysis, contest: Contest, compared: list[Cell]) -> str:
    best = max(compared, key=lambda cell: cell.gain or 0.0)
    where = f"{analysis.looks[best.technique].label} at {best.size} with E = {best.experts}"
    if (best.gain or 0.0) <= 0:
        return f"No routed model beats the dense one of its size; nearest is {where} ({percent(best.gain or 0.0)})."
    share = f"{100 * (best.gain or 0.0):.1f} % of the loss"
    said = f"The largest gain over a dense model of the same size is {share}: {where}."
    losing = []
    for key in contest.order:
        for size in contest.sizes:
            cell = _best(contest.at(technique=key, size=size))
            if cell is not None and (cell.gain or 0.0) <= 0:
                losing.append(f"{analysis.looks[key].label} at {size}")
    return said + (f" With no number of experts better than dense: {listed(losing)}." if losing else "")


def _gain(analysis: Analysis, contest: Contest, cell: Cell | None) -> Entry:
    if cell is None or cell.gain is None or cell.dense_loss is None:
        return Entry("")
    lead = abs(math.log10(cell.dense_loss / cell.loss))
    sure = contest.noise is not None and stands_out(lead, cell.seeds, cell.dense_seeds, contest.noise, analysis.level)
    tone = ("good" if cell.gain > 0 else "bad") if sure else "none"
    return Entry(percent(cell.gain), under=f"E = {cell.experts}", tone=tone)
