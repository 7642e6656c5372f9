"""How values are written for people: in messages, tables and pages alike."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

LONGEST = 60


def shortened(value: object, longest: int = LONGEST) -> str:
    """A value of the user's for a sentence, cut where it would fill the screen."""
    text = str(value)
    return text[:longest] + "…" if len(text) > longest else text


def printable(text: str) -> str:
    """Text from data as a terminal may show it: on one line, with control characters (colours, cursor movements,
    reversed writing) and halves of surrogate pairs written as escapes. Names come from files, and files from anywhere.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def duration(seconds: float) -> str:
    """`1:05:00`, and from a day on `2.5 days`."""
    days = seconds / 86_400
    return f"{days:,.1f} days" if days >= 1 else str(timedelta(seconds=round(seconds)))


def number(value: float, digits: int = 4, least: float = 1e5) -> str:
    """A parameter or quantity as people write it; from `least` on in K, M, B, T."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    # The unit is that of the rounded number: 999.9B reads 1T, not 1e+03B.
    rounded = abs(float(f"{value:.3g}"))
    if least <= rounded < 1e15:
        for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
            if rounded >= scale:
                return f"{value / scale:.3g}{unit}"
    return f"{value:.{digits}g}"


def byte_size(count: float, digits: int = 3) -> str:
    """Bytes in powers of a thousand, as data sheets have them; the unit is that of the rounded number."""
    rounded = float(f"{count:.{digits}g}")
    for scale, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if rounded >= scale:
            return f"{count / scale:.{digits}g} {unit}"
    return f"{count:.{digits}g} B"


def finite(value: Any) -> Any:
    """The same structure with plain numbers, and None where a number is infinite or undefined."""
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, as a terminal shows them."""
    cells = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same as HTML, as a notebook shows it. What comes from data is escaped."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_lines(lines: Sequence[str]) -> str:
    """Sentences below each other, escaped."""
    return "".join(f"<div>{html.escape(line)}</div>" for line in lines)
