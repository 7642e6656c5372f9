"""A page of figures for any run table: those that need nothing but sizes, experts and losses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from routelaw.errors import InputError
from routelaw.figures import all_figures
from routelaw.report.page import Bullets, Picture, Section, Text, embedded, render
from routelaw.report.reproduce import Step
from routelaw.report.whole_folder import whole_folder
from routelaw.runs.table import RunTable
from routelaw.runs.writing import write_atomically

DRAWN = ("main_results", "joint_curves", "linear_fits", "expert_slope", "max_effective")


def draw_overview(table: RunTable, out: Path, *, force: bool = False) -> Iterator[Step]:
    """Write figures and index.html to `out`, telling after each figure how far it is."""
    figures = [figure for figure in all_figures() if figure.name in DRAWN]
    pictures, not_drawn = [], []
    with whole_folder(out, force=force) as folder:
        (folder / "figures").mkdir()
        for done, figure in enumerate(figures, start=1):
            try:
                svg, png = figure.save(table, folder / "figures")
                links = [(p.suffix[1:].upper(), f"figures/{p.name}") for p in (svg, png)]
                pictures.append(Picture(figure.name, figure.title, figure.caption, embedded([svg, png]), links=links))
            except InputError as error:
                not_drawn.append(f"{figure.title}: {error}")
            yield Step(done, len(figures) + 1, f"figure {figure.name}")
        sections = [
            Section("The data", "data", [Text(f"{table.source}."), Bullets(table.notes)]),
            Section("Figures", "figures", pictures),
        ]
        if not_drawn:
            sections.append(Section("Not drawn", "missing", [Bullets(not_drawn)]))
        page = render("Losses and laws", f"What these losses say about routing: {table.source}.", sections)
        write_atomically(page.encode(), folder / "index.html")
    yield Step(len(figures) + 1, len(figures) + 1, "page")
