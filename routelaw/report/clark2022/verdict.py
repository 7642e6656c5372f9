"""The tables of a reproduction: printed beside ours, and the verdict (routelaw/fitting/claims.py).

A printed number carries as many digits as its authors chose, and they sometimes cut digits off where others round. So a
value *matches* when rounding or cutting it to the digits shown gives the printed number. It is *close* within a
tolerance that each table states, and it *differs* otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from routelaw.fitting.claims import (
    CLOSE,
    DIFFERS,
    FAILS,
    HOLDS,
    MATCHES,
    NOT_SUPPORTED,
    PARTLY,
    JudgedClaim,
    compared_with_print,
    decimals_of,
)

NOT_REPRODUCIBLE = "not reproducible from the release"
OURS = "ours"
VERDICTS = (MATCHES, CLOSE, DIFFERS, NOT_REPRODUCIBLE, HOLDS, PARTLY, NOT_SUPPORTED, FAILS, OURS)
"""The first four judge numbers, the next four statements; `ours` marks results without a printed counterpart."""

M, B = 1e6, 1e9
Layout = Literal["matrix", "list"]


@dataclass(frozen=True)
class PrintedCell:
    row: str
    column: str
    ours: float | None
    verdict: str
    printed: str | None = None
    """As printed, in units of `scale`."""
    scale: float = 1.0
    low: float | None = None
    high: float | None = None
    note: str = ""
    """Why it differs, or what a statement rests on: one or two sentences."""
    convention: str = ""
    """Where it is another than the table's."""

    @classmethod
    def of(cls, claim: JudgedClaim) -> PrintedCell:
        ours = claim.ours.value if claim.ours else None
        return cls(claim.claim.statement, "statement", ours, claim.verdict, note=claim.why)

    @property
    def printed_value(self) -> float | None:
        return None if self.printed is None else float(self.printed) * self.scale

    @property
    def difference(self) -> float | None:
        if self.ours is None or self.printed_value is None:
            return None
        return self.ours - self.printed_value

    def shown(self, value: float | None) -> str:
        """A value in the cell's units, with one digit more than print; sizes as people write them."""
        if value is None or math.isnan(value):
            return "–"
        if math.isinf(value):
            return "∞" if value > 0 else "−∞"
        if self.scale in (M, B):
            return size_text(value)
        whole = self.printed is not None and "." not in self.printed and self.scale == 1.0
        decimals = 0 if whole else decimals_of(self.printed or "") + 1
        return f"{value / self.scale:,.{decimals}f}".replace("-", "−")

    @property
    def printed_shown(self) -> str:
        if self.printed is None:
            return ""
        unit = {M: "M", B: "B"}.get(self.scale, "")
        digits = f"{int(self.printed):,}" if self.printed.isdigit() else self.printed.replace("-", "−")
        return digits + unit


@dataclass(frozen=True)
class ResultTable:
    name: str
    """File name of its CSV."""
    title: str
    paper: str
    """Where it stands in the paper; empty for tables of ours."""
    convention: str
    """Which points, which law, which error: what has to be known to compute the same."""
    cells: tuple[PrintedCell, ...]
    tolerance: str = ""
    """What `close` means here, in words."""
    unit: str = ""
    reading: str = ""
    """What to see in it."""
    layout: Layout = "matrix"

    def counts(self) -> dict[str, int]:
        found = [cell.verdict for cell in self.cells]
        return {verdict: found.count(verdict) for verdict in VERDICTS if verdict in found}

    def cell(self, row: str, column: str) -> PrintedCell:
        return next(cell for cell in self.cells if (cell.row, cell.column) == (row, column))


def judge(
    row: str,
    column: str,
    printed: str,
    ours: float,
    *,
    tolerance: float = 0.0,
    scale: float = 1.0,
    note: str = "",
    convention: str = "",
    low: float | None = None,
    high: float | None = None,
) -> PrintedCell:
    """A cell with its verdict. `tolerance` is absolute, in natural units; `note` is kept where the digits differ."""
    verdict = compared_with_print(printed, ours, scale, tolerance)
    kept = "" if verdict == MATCHES else note
    return PrintedCell(row, column, ours, verdict, printed, scale, low, high, kept, convention)


def size_text(parameters: float) -> str:
    """739.5B, 1.4T; beyond any model that could be built, a power of ten."""
    if parameters >= 1e16:
        return f"1e{math.log10(parameters):.0f}"
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if parameters >= scale:
            return f"{parameters / scale:,.1f}{unit}"
    return f"{parameters:,.0f}"
