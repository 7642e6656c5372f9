"""Pictures of runs and laws. One file per figure or family of figures, found by being there."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from routelaw.figures.figure import Figure


def all_figures() -> list[Figure]:
    """Every figure, in the order of module names and of each module's FIGURES."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    return [figure for module in modules for figure in getattr(module, "FIGURES", ())]
