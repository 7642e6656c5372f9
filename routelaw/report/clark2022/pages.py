"""The page of the reproduction: tables with their verdicts, figures, and what is missing.

What was found stands in words above them. Every figure in these sentences is read from the tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from routelaw.report.clark2022 import OF_THE_PAPER, OURS, printed
from routelaw.report.clark2022 import verdict as v
from routelaw.report.clark2022.laws_compared import row_of
from routelaw.report.clark2022.printed import CORRECTIONS, MISSING
from routelaw.report.clark2022.verdict import (
    CLOSE,
    DIFFERS,
    FAILS,
    HOLDS,
    MATCHES,
    NOT_REPRODUCIBLE,
    NOT_SUPPORTED,
    PARTLY,
    PrintedCell,
    ResultTable,
    size_text,
)
from routelaw.report.page import Block, Bullets, Entry, Grid, Heading, Picture, Section, Text, render
from routelaw.runs.table import RunTable

RANKINGS = ("ranking_s_base", "ranking_rl_r", "ranking_hash")


def totals(tables: Mapping[str, ResultTable]) -> Counter[str]:
    return sum((Counter(table.counts()) for table in tables.values()), Counter())


def findings(tables: Mapping[str, ResultTable]) -> list[str]:
    return [_numbers(tables), _conventions(tables), _coefficients(tables), _better_laws(tables), _limits(tables)]


def _numbers(tables: Mapping[str, ResultTable]) -> str:
    count = totals(tables)
    numbers = sum(count[v] for v in (MATCHES, CLOSE, DIFFERS, NOT_REPRODUCIBLE))
    statements = sum(count[v] for v in (HOLDS, PARTLY, NOT_SUPPORTED, FAILS))
    return (
        f"Of {numbers} printed numbers, {count[MATCHES]} come out to the printed digits, {count[CLOSE]} are close, "
        f"{count[DIFFERS]} differ and {count[NOT_REPRODUCIBLE]} cannot be computed from the release. Of {statements} "
        f"comparative statements, {count[HOLDS]} hold, {count[PARTLY]} hold in part, {count[NOT_SUPPORTED]} are not "
        f"supported by the released losses and {count[FAILS]} {'does' if count[FAILS] == 1 else 'do'} not hold."
    )


def _conventions(tables: Mapping[str, ResultTable]) -> str:
    slopes, transfer = tables["expert_slopes"], [tables[f"transfer_{r}"] for r in ("hash", "s_base", "rl_r")]
    cells = sum(len(t.cells) for t in transfer)
    near = sum(t.counts().get(MATCHES, 0) + t.counts().get(CLOSE, 0) for t in transfer)
    relabelled = [c for c in slopes.cells if "=" in c.column]
    return (
        "Three conventions are not stated in print and decide what comes out. The table of leave-one-out errors "
        "leaves out whole model sizes. The column 25M of the table of b(N) belongs to the 55M model: read so, "
        f"{sum(c.verdict == MATCHES for c in relabelled)} of its {len(relabelled)} numbers match. The transfer table "
        f"is the bilinear law on routed runs alone, with errors in nats: {near} of its {cells} numbers for routers "
        f"then match or are close."
    )


def _coefficients(tables: Mapping[str, ResultTable]) -> str:
    held, optimum, statements = tables["saturation_held"], tables["saturated_optimum"], tables["claims"]
    hash_held = [c for c in held.cells if c.row == "HASH"]
    maxima = ", ".join(f"{optimum.cell(r, 'e_max').ours:.0f}" for r in printed.ROUTERS.values())
    unsupported = [c.row for c in statements.cells if c.verdict in (NOT_SUPPORTED, FAILS)]
    listed = "; ".join(f"“{row}”" for row in unsupported)
    return (
        f"The six printed coefficients are not the optimum on the released runs (E_max there: {maxima}), yet fit them "
        f"almost equally well; with the printed saturation held, {sum(c.verdict == MATCHES for c in hash_held)} of "
        f"HASH's {len(hash_held)} other coefficients match. The coefficients are known less well than their digits "
        f"suggest, and these statements do not follow from the data: {listed}."
    )


def _better_laws(tables: Mapping[str, ResultTable]) -> str:
    def errors(law: str) -> str:
        found = [tables[t].cell(row_of(law), "leave-size-out") for t in RANKINGS]
        return "/".join(c.shown(c.ours) for c in found)

    best = [tables[t].cells[0].row.split(" (")[0] for t in RANKINGS]
    names = ", ".join(f"{law} for {label}" for law, label in zip(best, printed.ROUTERS.values(), strict=True))
    return (
        f"Judged by a size it has not seen, the paper's law errs by {errors('saturated')}e-4 in log10 L "
        f"(S-BASE/RL-R/HASH). The same number of parameters spent on an irreducible loss instead of an interaction "
        f"gives {errors('irreducible')}e-4. Lowest of all the laws tried: {names}."
    )


def _limits(tables: Mapping[str, ResultTable]) -> str:
    cut = tables["n_cut_by_law"]
    spans = []
    for label in printed.ROUTERS.values():
        cell = cut.cell("saturated", label)
        assert cell.ours is not None
        assert cell.low is not None
        assert cell.high is not None
        spans.append(f"{label} {size_text(cell.ours)} ({size_text(cell.low)} to {size_text(cell.high)})")
    endless = sorted({c.row for c in cut.cells if c.ours == float("inf")})
    return (
        f"N_cut, the size beyond which routing would stop helping, is {', '.join(spans)} under the paper's law, with "
        f"90 % intervals. Under {' and '.join(endless)} it does not exist. It is far outside the sizes trained, and "
        f"no law here is entitled to it."
    )


TONES = {v.MATCHES: "good", v.CLOSE: "near", v.DIFFERS: "bad", v.NOT_REPRODUCIBLE: "none", v.HOLDS: "good",
         v.PARTLY: "near", v.NOT_SUPPORTED: "bad", v.FAILS: "bad", v.OURS: "mine"}  # fmt: skip
MARKS = {v.MATCHES: "✓", v.CLOSE: "≈", v.DIFFERS: "✗", v.NOT_REPRODUCIBLE: "–", v.HOLDS: "✓", v.PARTLY: "≈",
         v.NOT_SUPPORTED: "✗", v.FAILS: "✗", v.OURS: ""}  # fmt: skip
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
        "Statements hold, hold in part (at least three quarters of the cases), are not supported, or do not hold; blue "
        "cells are ours alone.",
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
