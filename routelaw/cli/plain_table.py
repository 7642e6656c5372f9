"""A table of text for a terminal, whatever the text says; one of many rows is written line by line.

Rich measures and wraps every cell, which takes a millisecond for each row of a listing. Where all cells are single
lines that fit, the same characters are put together here, and Rich draws what stands around them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from routelaw.formatting import printable

LONG = 100
"""Rows from which a table is written line by line."""


class PlainTable(Table):
    """The first column is text and the others are figures. Cells are text: markup in them is shown."""

    def __init__(self, title: str, *columns: str) -> None:
        self._waiting: list[tuple[str, ...]] = []
        """Rows that Rich does not know yet, each cell a line of printable text."""
        shown = Text(printable(title)) if title else None
        super().__init__(title=shown, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        # Names stay whole; a terminal too narrow for them wraps the figures instead, and cuts none off.
        for i, column in enumerate(columns):
            self.add_column(
                Text(printable(column)), justify="left" if i == 0 else "right", no_wrap=i == 0, overflow="fold"
            )

    @property
    def row_count(self) -> int:
        return len(self.rows) + len(self._waiting)

    def add_row(self, *cells: Any, **options: Any) -> None:
        if not options and len(cells) == len(self.columns) and all(isinstance(cell, str) for cell in cells):
            self._waiting.append(tuple(map(printable, cells)))
            return
        self._hand_over()
        super().add_row(*(Text(printable(c)) if isinstance(c, str) else c for c in cells), **options)

    def add_section(self) -> None:
        self._hand_over()
        super().add_section()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self._hand_over()
        yield from super().__rich_console__(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        self._hand_over()
        return super().__rich_measure__(console, options)

    def _hand_over(self) -> None:
        for cells in self._waiting:
            super().add_row(*map(Text, cells))
        self._waiting = []

    def write_long(self, console: Console) -> bool:
        """Write many rows as Rich would; False, and nothing is written, where they are few or would not fit."""
        headers = [column.header.plain for column in self.columns if isinstance(column.header, Text)]
        sides = {column.justify for column in self.columns}
        if len(self._waiting) < LONG or self.rows or len(headers) < len(self.columns) or not sides <= {"left", "right"}:
            return False
        texts = list(zip(headers, *self._waiting, strict=True))
        widths = [max(map(_width, column)) for column in texts]
        if sum(widths) + 3 * len(widths) > console.width:
            return False
        padded = [
            [_padded(cell, width, column.justify) for cell in cells[1:]]
            for column, cells, width in zip(self.columns, texts, widths, strict=True)
        ]
        lines: Iterator[str] = (f" {'   '.join(cells)} \n" for cells in zip(*padded, strict=True))
        short = PlainTable("", *headers)
        short.title = self.title
        for column, own, width in zip(short.columns, self.columns, widths, strict=True):
            column.justify, column.min_width = own.justify, width
        short.add_row(*self._waiting[0])
        first = next(lines)
        with console.capture() as captured:
            console.print(short)
        before, found, after = captured.get().partition(first)
        if not found:
            return False
        console.file.write("".join((before, first, *lines, after)))
        return True


def _width(cell: str) -> int:
    return len(cell) if cell.isascii() else cell_len(cell)


def _padded(cell: str, width: int, justify: str) -> str:
    space = " " * (width - _width(cell))
    return cell + space if justify == "left" else space + cell
