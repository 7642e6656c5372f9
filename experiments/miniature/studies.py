"""The studies of the miniature in the order in which they are trained, the runs that each consists of, and those that
have ended: in the store of this machine, or in the tables, where the machine that trained them is gone.

A sweep file says its runs exactly once the corpus is known, and of that only its id and its vocabulary matter: so what
belongs to which study can be told without the corpus, from any of its runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from routelaw.errors import InputError
from routelaw.runs.files import read_runs
from routelaw.runs.store import Store
from routelaw.runs.table import FINISHED
from routelaw.specs.files import from_stored
from routelaw.specs.run import RunSpec
from routelaw.sweeps.sweep import read_sweep

HERE = Path(__file__).parent
SWEEPS, DATA, PREDICTIONS = HERE / "sweeps", HERE / "data", HERE / "predictions"
"""The sweep files; the tables of what was trained; what was predicted of it before."""
RATES, ROUTED_RATES, MAIN, LARGEST, QUICK = "rates", "routed_rates", "main", "largest", "quick"
LARGEST_RATES, MORE_SEEDS, BETWEEN = "largest_rates", "more_seeds", "between"
WEIGHTS_OF_RL = "rl_weights"
STUDIES = (
    RATES, WEIGHTS_OF_RL, "paper_weights", ROUTED_RATES, MAIN, "seeds", "robustness", "k", "routing_frequency",
    "lengths", "rl_variants", "sinkhorn_temperature", "shared_decisions", "permuted_hash", "stacked_ffws",
    "base_layers", LARGEST, LARGEST_RATES, MORE_SEEDS, BETWEEN,
)  # fmt: skip
"""What the others need comes first, what is easiest to do without towards the end."""
OF_LARGEST = (LARGEST, LARGEST_RATES)
"""Not trained before predictions are there."""
ON_REQUEST = (*OF_LARGEST, MORE_SEEDS, BETWEEN)
"""Not trained unless asked for: the blind test has its time, and the others are for time that is left."""
TABLE, OF_RATES, OF_NONE, SPECS = "runs.csv.gz", "rates.csv.gz", "runs_of_no_study.csv.gz", "specs.jsonl"
ROUTING, COSTS, ALLOCATIONS, SPEEDS = "routing.csv.gz", "costs.csv", "allocations.csv", "speeds.csv"
"""The tables; train/tables.py writes them, and train/machine.py the speeds."""


def run_program(main: Callable[[], None]) -> None:
    """A program of this folder; wrong input is one sentence."""
    try:
        main()
    except InputError as error:
        sys.exit(str(error))


def specs_of(study: str, corpus_id: str, vocabulary: int, folder: Path = SWEEPS) -> list[RunSpec]:
    """The runs of a study on a corpus that does not have to be there."""
    corpus: Any = SimpleNamespace(id=corpus_id, vocabulary=vocabulary)
    return [run.spec for run in read_sweep(folder / f"{study}.toml", opened=lambda _: corpus).runs]


def studies_of_runs(known: RunSpec, studies: Sequence[str] = STUDIES) -> dict[str, tuple[str, ...]]:
    """Run id → the studies it belongs to, for every run of them, trained or not, on the corpus of the one known."""
    belongs: dict[str, tuple[str, ...]] = {}
    for study in studies:
        for each in specs_of(study, known.corpus, known.model.vocabulary):
            belongs[each.run_id] = (*belongs.get(each.run_id, ()), study)
    return belongs


@dataclass(frozen=True)
class EndedRun:
    spec: RunSpec
    loss: float
    """On the validation text; infinite if it diverged."""


def ended_in(store: Store) -> dict[str, EndedRun]:
    """By id, in its order."""
    results = {run.run_id: (run.spec, run.result) for run in store.runs() if run.ended}
    return {
        run_id: EndedRun(spec, result["loss_validation"] if result["status"] == FINISHED else inf)
        for run_id, (spec, result) in results.items()
    }


def recorded_in(folder: Path) -> dict[str, EndedRun]:
    """By id, in its order; none where there are no tables."""
    specs, losses = specs_in(folder), {}
    for file in (folder / TABLE, folder / OF_RATES, folder / OF_NONE):
        if file.is_file():
            last = read_runs(file).frame.sort_values("step").groupby("run_id").tail(1)
            finished = last["status"] == FINISHED
            losses |= dict(zip(last["run_id"], last["loss_validation"].where(finished, inf), strict=True))
    if without := specs.keys() - losses:
        raise InputError(f"{folder / SPECS}: the tables beside it have no row of {', '.join(sorted(without)[:3])}.")
    return {run_id: EndedRun(spec, losses[run_id]) for run_id, spec in specs.items()}


def specs_in(folder: Path) -> dict[str, RunSpec]:
    file = folder / SPECS
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    return {row["run_id"]: from_stored(row["spec"], str(file)) for row in rows}
