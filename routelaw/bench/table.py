"""What a benchmark gives: rows of numbers, what they are measured against, and where. Failures are part of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    candidate: str
    reason: str
    """One line: the error's kind and how its message begins."""
    row: str = ""

    def __str__(self) -> str:
        return f"{self.row}: {self.candidate} failed: {self.reason}"


@dataclass(frozen=True)
class Row:
    name: str
    figures: Mapping[str, float]
    """By column. What could not be measured is left out."""
    failures: tuple[Failure, ...] = ()

    def __str__(self) -> str:
        figures = ", ".join(f"{column} {value:g}" for column, value in self.figures.items())
        return "\n".join([f"{self.name}: {figures or 'nothing'}", *(f"  {failure}" for failure in self.failures)])


@dataclass(frozen=True)
class Environment:
    device: str
    torch: str
    date: str

    def __str__(self) -> str:
        """Without the date, as files of results name machines."""
        return f"{self.device}, torch {self.torch}"


@dataclass(frozen=True)
class Description:
    """The words of a table."""

    setting: str
    """What was computed on what."""
    baseline: str
    """What ratios are measured against."""
    columns: Mapping[str, str]
    """By name, what it means."""


@dataclass(frozen=True)
class Table:
    name: str
    setting: str
    baseline: str
    columns: Mapping[str, str]
    rows: Mapping[str, Mapping[str, float]]
    failures: tuple[Failure, ...]
    machine: Environment

    @property
    def present(self) -> list[str]:
        """The columns that at least one row fills or failed to."""
        failed = {failure.candidate for failure in self.failures}
        return [c for c in self.columns if c in failed or any(c in row for row in self.rows.values())]

    def figures(self) -> dict[str, float | str]:
        """All in one line for a file of results: `row/column`, failures in words."""
        numbers = {f"{name}/{column}": value for name, row in self.rows.items() for column, value in row.items()}
        return numbers | {
            f"{failure.row}/{failure.candidate}": f"failed: {failure.reason}" for failure in self.failures
        }

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "columns": dict(self.columns),
            "rows": {name: dict(row) for name, row in self.rows.items()},
        }


def row(name: str, figures: Mapping[str, float], failures: Mapping[str, str] | None = None) -> Row:
    """To four digits, without what is no number; `failures` by candidate."""
    known = {column: float(f"{value:.4g}") for column, value in figures.items() if math.isfinite(value)}
    return Row(name, known, tuple(Failure(who, why, name) for who, why in (failures or {}).items()))


def gathered(name: str, description: Description, rows: Iterable[Row], machine: Environment) -> Table:
    """A table of rows, in the order in which they come."""
    found, columns = list(rows), description.columns
    unexplained = {column for r in found for column in r.figures} - set(columns)
    assert not unexplained, f"{name} has columns that it does not explain: {sorted(unexplained)}"
    failures = tuple(failure for r in found for failure in r.failures)
    by_name = {r.name: r.figures for r in found}
    return Table(name, description.setting, description.baseline, dict(columns), by_name, failures, machine)
