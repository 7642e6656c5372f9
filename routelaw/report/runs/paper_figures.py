"""The paper's figures of a source: those that its runs allow, and what the others lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from routelaw.errors import InputError
from routelaw.figures import all_figures
from routelaw.figures.drawing import KINDS, try_to_draw, with_choices
from routelaw.figures.figure import Figure
from routelaw.figures.selection import relative_notes
from routelaw.report.page import Block, Bullets, Picture, Text, embedded
from routelaw.runs.table import RunTable

ELSEWHERE = ("expert_slope", "law_ranking")
"""What charts of the page show already: the slope in log E, and laws by their error on unseen sizes."""
SLOW = "cutoff_by_law"
"""Refits every law to hundreds of resamples, which takes longer than all the rest of a report."""


@dataclass(frozen=True)
class PaperFigures:
    """What was written to a folder, and why not the rest."""

    drawn: tuple[tuple[Figure, str], ...] = ()
    """Each with its picture as a data URI."""
    not_drawn: Mapping[str, str] = field(default_factory=dict)
    """By title."""
    notes: tuple[str, ...] = ()


def draw_paper_figures(table: RunTable | None, target: str, folder: Path) -> PaperFigures:
    """Draw all that the table allows, with this loss as its main one."""
    if table is None:
        return PaperFigures()
    drawn, not_drawn = [], {}
    try:
        chosen = with_choices(table, target)
    except InputError as error:
        return PaperFigures(notes=(str(error),))
    for figure in all_figures():
        if figure.name in (*ELSEWHERE, SLOW):
            continue
        if sentence := try_to_draw(figure, chosen, folder):
            not_drawn[figure.title] = sentence
        else:
            drawn.append((figure, embedded([folder / f"{figure.name}.{kind}" for kind in KINDS])))
    return PaperFigures(tuple(drawn), not_drawn, tuple(relative_notes(chosen)) if drawn else ())


def paper_figure_blocks(made: PaperFigures, anchor: Callable[[str], str], address: Callable[[str], str]) -> list[Block]:
    """`anchor` and `address` turn a name into an anchor of the page and a file beside it."""
    blocks: list[Block] = [Text(note, "soft") for note in made.notes]
    for figure, image in made.drawn:
        files = [(kind.upper(), address(f"{figure.name}.{kind}")) for kind in KINDS]
        name = anchor(f"figure-{figure.name}")
        blocks.append(Picture(name, figure.title, figure.caption, image, figure.paper, files))
    if made.drawn:
        blocks.append(Text(f"`routelaw figures` draws one more, {SLOW}, which takes longest.", "soft"))
    if made.not_drawn:
        blocks.append(Text("What these runs do not allow, and what is missing for it:"))
        blocks.append(Bullets([f"{title}: {sentence}" for title, sentence in made.not_drawn.items()]))
    return blocks
