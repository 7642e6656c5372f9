"""routelaw: the workbench for routed language models and their scaling laws.

    import routelaw as rl

    # Text to tokens, a trained model, other texts; then many runs.
    rl.build_corpus(["python"], "out/corpus", vocabulary=512)
    options = {"size": "0.2M", "steps": 200, "batch": 16, "sequence_length": 64, "learning_rate": 6e-3}
    run = rl.train(corpus="out/corpus", router="s-base", experts=8, **options).finish()
    run.evaluate("my_text.txt").bits_per_byte
    store = rl.run_sweep(rl.load_sweep("my_sweep.toml"), "sweep", jobs=2).finish()

    # Losses, yours or a CSV of anyone's: laws and routers compared, a law fitted, and how far to trust it.
    table = rl.read_runs("sweep")
    rl.compare(table)
    fit = rl.fit_law("irreducible", rl.select_points(table, "s-base"))
    rl.judge(fit)
    rl.advise(table)

    # Which model for a budget; one page with all of it.
    rl.plan(rl.Budget(memory_bytes=24e9, flops_per_token=1e9), table)
    rl.write_report("sweep", "report")

The names below are what a user types. They load on first use, so `import routelaw` costs nothing, and only those that
train need torch. `help(rl.train)` and so on show an example of each; the tests run them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from routelaw.corpus import Corpus, Reading, build_corpus, open_corpus
    from routelaw.errors import InputError
    from routelaw.figures.drawing import draw_figures
    from routelaw.fitting import Fit, Points, fit_law, select_points
    from routelaw.fitting.advice import advise
    from routelaw.fitting.advice.result import Advice
    from routelaw.fitting.comparison import Comparison, compare, compare_routers
    from routelaw.fitting.fit_report import FitReport, judge
    from routelaw.fitting.league import League, league
    from routelaw.fitting.selection import rank_laws
    from routelaw.laws import Law, Parameter, PowerSum, all_laws, coefficient, get_law, load_law, scale
    from routelaw.laws.critical_batch import CriticalBatch, converged_loss
    from routelaw.plans.budget import Budget, Plan, best_models, plan
    from routelaw.plans.equivalents import equivalents
    from routelaw.plans.literature import published
    from routelaw.plans.predictor import Predictor
    from routelaw.report.runs.report import write_report
    from routelaw.routers.description import RouterDescription, RouterOption, describe_router, describe_routers
    from routelaw.routers.router import load_router
    from routelaw.runs.files import read_runs, write_runs
    from routelaw.runs.filters import best_of, where
    from routelaw.runs.store import Store
    from routelaw.runs.table import RunTable
    from routelaw.specs.counting import count
    from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
    from routelaw.specs.sizes import PAPER_SIZES, get_size
    from routelaw.sweeps.one_run import Training, train
    from routelaw.sweeps.run_sweep import Ray, SweepTraining, load_sweep, run_sweep
    from routelaw.sweeps.sweep import Sweep
    from routelaw.training.trained import Run

_HOME = {
    "Corpus": "corpus",
    "Reading": "corpus",
    "build_corpus": "corpus",
    "open_corpus": "corpus",
    "InputError": "errors",
    "draw_figures": "figures.drawing",
    "Fit": "fitting",
    "Points": "fitting",
    "fit_law": "fitting",
    "select_points": "fitting",
    "Advice": "fitting.advice.result",
    "advise": "fitting.advice",
    "Comparison": "fitting.comparison",
    "compare": "fitting.comparison",
    "compare_routers": "fitting.comparison",
    "rank_laws": "fitting.selection",
    "FitReport": "fitting.fit_report",
    "judge": "fitting.fit_report",
    "League": "fitting.league",
    "league": "fitting.league",
    "Law": "laws",
    "Parameter": "laws",
    "PowerSum": "laws",
    "all_laws": "laws",
    "coefficient": "laws",
    "get_law": "laws",
    "load_law": "laws",
    "CriticalBatch": "laws.critical_batch",
    "converged_loss": "laws.critical_batch",
    "scale": "laws",
    "Budget": "plans.budget",
    "best_models": "plans.budget",
    "published": "plans.literature",
    "equivalents": "plans.equivalents",
    "Predictor": "plans.predictor",
    "Plan": "plans.budget",
    "plan": "plans.budget",
    "write_report": "report.runs.report",
    "RouterDescription": "routers.description",
    "RouterOption": "routers.description",
    "describe_router": "routers.description",
    "describe_routers": "routers.description",
    "load_router": "routers.router",
    "read_runs": "runs.files",
    "write_runs": "runs.files",
    "best_of": "runs.filters",
    "where": "runs.filters",
    "Store": "runs.store",
    "RunTable": "runs.table",
    "count": "specs.counting",
    "ModelSpec": "specs.run",
    "RouterSpec": "specs.run",
    "RunSpec": "specs.run",
    "TrainSpec": "specs.run",
    "PAPER_SIZES": "specs.sizes",
    "get_size": "specs.sizes",
    "Training": "sweeps.one_run",
    "train": "sweeps.one_run",
    "Ray": "sweeps.run_sweep",
    "SweepTraining": "sweeps.run_sweep",
    "load_sweep": "sweeps.run_sweep",
    "run_sweep": "sweeps.run_sweep",
    "Sweep": "sweeps.sweep",
    "Run": "training.trained",
}
__all__ = [
    "PAPER_SIZES", "Advice", "Budget", "Comparison", "Corpus", "CriticalBatch", "Fit", "FitReport",
    "InputError", "Law", "League", "ModelSpec", "Parameter", "Plan", "Points", "PowerSum", "Predictor", "Ray",
    "Reading", "RouterDescription", "RouterOption", "RouterSpec", "Run", "RunSpec", "RunTable", "Store",
    "Sweep", "SweepTraining", "TrainSpec", "Training", "advise", "all_laws", "best_models", "best_of",
    "build_corpus", "coefficient", "compare", "compare_routers", "converged_loss", "count", "describe_router",
    "describe_routers", "draw_figures", "equivalents", "fit_law", "get_law", "get_size", "judge", "league",
    "load_law", "load_router", "load_sweep", "open_corpus", "plan", "published", "rank_laws", "read_runs",
    "run_sweep", "scale", "select_points", "train", "where", "write_report", "write_runs",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'routelaw' has no attribute {name!r}")
    return getattr(importlib.import_module(f"routelaw.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
