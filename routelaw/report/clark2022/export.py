"""The tables as CSV files and as one JSON summary."""

from __future__ import annotations

import csv
from pathlib import Path

from routelaw.report.clark2022.verdict import ResultTable

FIELDS = ("table", "row", "column", "printed", "ours", "difference", "verdict", "convention", "low", "high", "note")


def write_csv(table: ResultTable, folder: Path) -> Path:
    path = folder / f"{table.name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for cell in table.cells:
            numbers = map(_number, (cell.printed_value, cell.ours, cell.difference))
            verdict = (cell.verdict, cell.convention or table.convention)
            ends = map(_number, (cell.low, cell.high))
            writer.writerow([table.name, cell.row, cell.column, *numbers, *verdict, *ends, cell.note])
    return path


def _number(value: float | None) -> str:
    """Twelve digits: what differs beyond them between machines is rounding."""
    return "" if value is None else f"{value:.12g}"


def table_summary(table: ResultTable) -> dict[str, object]:
    return {
        "title": table.title,
        "paper": table.paper,
        "cells": len(table.cells),
        "verdicts": table.counts(),
        "convention": table.convention,
        "tolerance": table.tolerance,
        "file": f"tables/{table.name}.csv",
    }
