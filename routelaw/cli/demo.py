"""`routelaw demo`: the whole story so far on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page and figures.")] = Path("out/demo"),
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    data: Annotated[Path | None, typer.Option(help="A run table to use instead of the paper's.")] = None,
) -> None:
    """Fit, judge and apply scaling laws to the paper's losses and redraw its figures; offline, to simulated ones."""
    raise NotImplementedError
