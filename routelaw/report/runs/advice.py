"""The section "Advice": the paper's recommendations to practitioners, judged on the runs of one source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from routelaw.errors import InputError
from routelaw.fitting.advice import advise
from routelaw.fitting.advice.result import Recommendation, sentence_of
from routelaw.fitting.claims import FAILS, HOLDS
from routelaw.formatting import printable
from routelaw.report.page import Block, Bullets, Entry, Grid, Heading, Text

if TYPE_CHECKING:
    from routelaw.report.runs.sections import Source

TONES = {HOLDS: "good", FAILS: "bad"}


def advice_blocks(source: Source) -> list[Block]:
    """Nothing where there is no routed run to advise on."""
    analysis = source.analysis
    if analysis is None or not analysis.points:
        return []
    try:
        advice = advise(analysis.table, target=source.target, level=analysis.level)
    except InputError as error:
        return [Text(f"There is no advice: {str(error).removeprefix(f'{analysis.table.source}: ')}", "soft")]
    rows = [
        [Entry(f"{r.number}. {r.title}"), Entry(r.verdict, tone=TONES.get(r.verdict, "none")), Entry(r.paper)]
        for r in advice.recommendations
    ]
    blocks: list[Block] = [
        Text(printable(" ".join(advice.scope))),
        Grid(["", "on these runs", "the paper"], rows, wide=True),
    ]
    for recommendation in advice.recommendations:
        blocks += _blocks(source, recommendation)
    return [*blocks, *([Bullets(list(map(printable, advice.warnings)))] if advice.warnings else [])]


def _blocks(source: Source, recommendation: Recommendation) -> Iterator[Block]:
    yield Heading(f"{recommendation.number}. {recommendation.title}", source.anchor(f"advice-{recommendation.number}"))
    findings = [f"{finding.verdict.capitalize()}: {sentence_of(finding)}" for finding in recommendation.findings]
    yield Bullets(list(map(printable, findings)))
    for table in recommendation.tables:
        yield Text(printable(f"{table.title}:"))
        yield Grid(list(map(printable, table.header)), [[Entry(printable(cell)) for cell in row] for row in table.rows])
    if recommendation.remarks:
        yield Bullets(list(map(printable, recommendation.remarks)))
