"""What a figure is: a name, where it stands in the paper, a caption, and a function from a run table to a picture.

A module of this package that defines `FIGURES` (a tuple) takes part in `routelaw reproduce`; nothing else has to know.
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


@dataclass(frozen=True)
class Figure:
    name: str
    """File name without suffix, e.g. "joint_curves"."""
    title: str
    caption: str
    """What is drawn, with which convention, and what to see in it; a paragraph for the page."""
    draw: Callable[[RunTable], Picture]
    paper: str = ""
    """The paper's own label, e.g. "Figure 2 (joint_curves)"; empty for figures of ours."""

    def save(self, table: RunTable, folder: Path) -> list[Path]:
        """Draw and write SVG and PNG; returns the paths written."""
        with matplotlib.rc_context(style.RC):
            picture = self.draw(table)
            paths = [folder / f"{self.name}.{kind}" for kind in ("svg", "png")]
            for path in paths:
                picture.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
        picture.clear()
        return paths
