"""routelaw: the workbench for routed language models and their scaling laws.

The names below are what a user types. They load on first use, so `import routelaw` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routelaw.errors import InputError
    from routelaw.fitting import Fit, Points, fit_law, select_points
    from routelaw.fitting.compare import compare_routers, rank_laws
    from routelaw.fitting.judgement import Judgement, judge
    from routelaw.laws import Law, Parameter, PowerSum, all_laws, coefficient, get_law, load_law
    from routelaw.plans.budget import Budget, best_models
    from routelaw.plans.literature import published
    from routelaw.runs.files import read_runs, write_runs
    from routelaw.runs.table import RunTable
    from routelaw.specs.counting import count
    from routelaw.specs.sizes import PAPER_SIZES, get_size

_HOME = {
    "InputError": "errors",
    "RunTable": "runs.table",
    "read_runs": "runs.files",
    "write_runs": "runs.files",
    "Law": "laws",
    "Parameter": "laws",
    "PowerSum": "laws",
    "all_laws": "laws",
    "coefficient": "laws",
    "get_law": "laws",
    "load_law": "laws",
    "Points": "fitting",
    "select_points": "fitting",
    "Fit": "fitting",
    "fit_law": "fitting",
    "Judgement": "fitting.judgement",
    "judge": "fitting.judgement",
    "rank_laws": "fitting.compare",
    "compare_routers": "fitting.compare",
    "Budget": "plans.budget",
    "best_models": "plans.budget",
    "published": "plans.literature",
    "count": "specs.counting",
    "PAPER_SIZES": "specs.sizes",
    "get_size": "specs.sizes",
}
__all__ = [
    "PAPER_SIZES", "Budget", "Fit", "InputError", "Judgement", "Law", "Parameter", "Points", "PowerSum", "RunTable",
    "all_laws", "best_models", "coefficient", "compare_routers", "count", "fit_law", "get_law", "get_size", "judge",
    "load_law", "published", "rank_laws", "read_runs", "select_points", "write_runs",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'routelaw' has no attribute {name!r}")
    return getattr(importlib.import_module(f"routelaw.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
