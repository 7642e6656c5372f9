"""What a figure is: a name, where it stands in the paper, a caption, and a function from a run table to a picture.

A module of this package that defines `FIGURES` (a tuple) is found by being there. `routelaw reproduce` draws those of
runs that the paper's authors released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.runs.table import RunTable


class CannotDraw(Exception):
    """A table lacks what a figure needs: one sentence that says what is missing, for the list of figures left out."""


@dataclass(frozen=True)
class Figure:
    name: str
    """File name without suffix, e.g. "joint_curves"."""
    title: str
    caption: str
    """What is drawn and with which convention, true of any table; a paragraph for the page."""
    draw: Callable[[RunTable], Picture]
    """Raises `CannotDraw` where the table lacks what the figure needs. Names, sizes, routers, K, R, steps and losses
    come from the table. A variant of "" is what is usual in it (`runs.variants.relative_to_usual`)."""
    paper: str = ""
    """The paper's own label, e.g. "Figure 2 (joint_curves)"; empty for figures of ours."""
    on_release: str = ""
    """What to see in the figure of the paper's released losses, told on their page alone."""
    released: bool = True
    """Whether the paper's authors released the runs that it shows; if not, `routelaw reproduce` leaves it out."""

    def save(self, table: RunTable, folder: Path) -> list[Path]:
        """Draw and write SVG and PNG; returns the paths written."""
        with matplotlib.rc_context(style.RC):
            picture = self.draw(table)
            paths = [folder / f"{self.name}.{kind}" for kind in ("svg", "png")]
            for path in paths:
                picture.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
        picture.clear()
        return paths
