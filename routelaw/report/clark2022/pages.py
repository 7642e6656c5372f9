"""The page of the reproduction: tables with their verdicts, figures, and what is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from routelaw.report.clark2022 import OF_THE_PAPER, OURS
from routelaw.report.clark2022 import verdict as v
from routelaw.report.clark2022.findings import findings, totals
from routelaw.report.clark2022.printed import CORRECTIONS, MISSING
from routelaw.report.clark2022.verdict import PrintedCell, ResultTable
from routelaw.report.page import Block, Bullets, Entry, Grid, Heading, Picture, Section, Text, render
from routelaw.runs.table import RunTable

TONES = {v.MATCHES: "good", v.CLOSE: "near", v.DIFFERS: "bad", v.NOT_REPRODUCIBLE: "none", v.HOLDS: "good",
         v.PARTLY: "near", v.NOT_SUPPORTED: "bad", v.OURS: "mine"}  # fmt: skip
MARKS = {v.MATCHES: "✓", v.CLOSE: "≈", v.DIFFERS: "✗", v.NOT_REPRODUCIBLE: "–", v.HOLDS: "✓", v.PARTLY: "≈",
         v.NOT_SUPPORTED: "✗", v.OURS: ""}  # fmt: skip
TITLE = "Unified Scaling Laws for Routed Language Models, recomputed"
LEAD = (
    "Every table of Clark et al. (2022) that its released losses allow, printed beside ours, with a verdict and the "
    "convention used; its figures redrawn from the same losses; what we found beyond it; and what the release cannot "
    "give."
)


def build_page(
    runs: RunTable, tables: Mapping[str, ResultTable], pictures: Sequence[Picture], not_drawn: Sequence[tuple[str, str]]
) -> str:
    of_paper = sorted((p for p in pictures if p.source), key=_place)
    ours = [p for p in pictures if not p.source]
    sections = [
        Section("What was found", "found", [*(Text(p) for p in findings(tables)), *_overview(tables)]),
        Section("How a verdict is reached", "verdicts", [Bullets(_rules())]),
        Section("The paper's tables", "tables", _table_blocks(tables, OF_THE_PAPER)),
        Section("The paper's figures", "figures", of_paper or [Text("No figure was drawn.", "soft")]),
        Section("Beyond the paper", "ours", [*_table_blocks(tables, OURS), *ours]),
        Section("What the release cannot give", "missing", [_missing(), *_undrawn(not_drawn)]),
        Section("Formulas and labels corrected before use", "corrections", [Bullets(CORRECTIONS)]),
        Section("The data", "data", [Bullets([f"Read from {runs.source}.", *runs.notes])]),
    ]
    footer = (
        "Losses: Clark et al. 2022, released under CC-BY 4.0 (google-deepmind/scaling_laws_for_routing). Computed by "
        "routelaw; the same numbers stand in tables/*.csv and summary.json beside this page."
    )
    return render(TITLE, LEAD, sections, footer)


def _place(picture: Picture) -> int:
    """Figures of the main text by number, then those of the appendix."""
    number = re.match(r"Figure (\d+)", picture.source)
    return int(number[1]) if number else 1000


def _rules() -> list[str]:
    return [
        "✓ matches: our value, rounded or cut off to the digits shown, is the printed one. Both are allowed because "
        "the paper does both.",
        "≈ close: within the tolerance stated under the table.",
        "✗ differs: neither; the table says what may be behind it.",
        "– not reproducible from the release: the runs it rests on were not published.",
        "In each cell the printed number stands above ours, which has one digit more. RMSLE and slopes are in log10 "
        "of the loss; RMSE is in nats.",
        "Statements hold, hold in part (at least three quarters of the cases) or are not supported; blue cells are "
        "ours alone.",
    ]


def _overview(tables: Mapping[str, ResultTable]) -> list[Block]:
    shown = [verdict for verdict in v.VERDICTS if verdict != v.OURS]
    rows = [
        [Entry(table.title, link=table.name), *(_count(table.counts().get(verdict, 0), verdict) for verdict in shown)]
        for table in (tables[name] for name in OF_THE_PAPER)
    ]
    total = totals(tables)
    rows.append([Entry("all"), *(_count(total[verdict], verdict) for verdict in shown)])
    short = {v.NOT_REPRODUCIBLE: "not in release"}
    head = ["table", *(f"{MARKS[verdict]} {short.get(verdict, verdict)}" for verdict in shown)]
    return [Heading("Verdicts", "overview"), Grid(head, rows)]


def _count(number: int, verdict: str) -> Entry:
    return Entry(str(number), tone=TONES[verdict]) if number else Entry("·")


def _table_blocks(tables: Mapping[str, ResultTable], names: Mapping[str, object]) -> list[Block]:
    blocks: list[Block] = []
    for table in (tables[name] for name in names):
        blocks.append(Heading(table.title, table.name, table.paper))
        blocks.append(_statements(table) if table.layout == "list" else _matrix(table))
        if table.reading:
            blocks.append(Text(table.reading, "key"))
        unit = f" In units of {table.unit}." if table.unit else ""
        blocks.append(Text(f"Convention: {table.convention}{unit} {table.tolerance}".strip(), "soft"))
        notes = _notes(table)
        if notes and table.layout == "matrix":
            blocks.append(Bullets(notes))
    return blocks


def _matrix(table: ResultTable) -> Grid:
    rows = list(dict.fromkeys(cell.row for cell in table.cells))
    columns = list(dict.fromkeys(cell.column for cell in table.cells))
    by_place = {(cell.row, cell.column): cell for cell in table.cells}
    body = [
        [Entry(row), *(_entry(by_place[row, c]) if (row, c) in by_place else Entry("") for c in columns)]
        for row in rows
    ]
    return Grid(["", *columns], body)


def _entry(cell: PrintedCell) -> Entry:
    span = f"{cell.shown(cell.low)} … {cell.shown(cell.high)}" if cell.low is not None else ""
    return Entry(
        cell.shown(cell.ours), under=span, over=cell.printed_shown, mark=MARKS[cell.verdict], tone=TONES[cell.verdict]
    )


def _statements(table: ResultTable) -> Grid:
    rows = []
    for cell in table.cells:
        compared = f"Printed {cell.printed_shown}, ours {cell.shown(cell.ours)}. " if cell.printed else ""
        said = Entry(cell.verdict, mark=MARKS[cell.verdict], tone=TONES[cell.verdict])
        rows.append([Entry(cell.row), said, Entry(compared + cell.note)])
    return Grid(["statement", "verdict", "what it rests on"], rows, wide=True)


def _notes(table: ResultTable) -> list[str]:
    """Each reason once, with the cells it explains where it does not explain them all."""
    places: dict[str, list[str]] = {}
    for cell in table.cells:
        if cell.note:
            places.setdefault(cell.note, []).append(f"{cell.row}, {cell.column}")
    return [f"{'; '.join(at) if len(at) < 3 else f'{len(at)} cells'}: {note}" for note, at in places.items()]


def _missing() -> Grid:
    rows = [[Entry(m.what), Entry(m.paper), Entry(m.why)] for m in MISSING]
    return Grid(["what", "where in the paper", "why"], rows, wide=True)


def _undrawn(not_drawn: Sequence[tuple[str, str]]) -> list[Block]:
    return [Text(f"Figure {title} was not drawn: {why}") for title, why in not_drawn]
