"""Runs that have ended: in the store of this machine, or in the tables, where the machine that trained them is gone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf
from pathlib import Path

from routelaw.errors import InputError
from routelaw.runs.files import read_runs
from routelaw.runs.store import Store
from routelaw.runs.table import FINISHED
from routelaw.specs.files import from_stored
from routelaw.specs.run import RunSpec

TABLE, OF_RATES, OF_NONE, SPECS = "runs.csv.gz", "rates.csv.gz", "runs_of_no_study.csv.gz", "specs.jsonl"
ROUTING, COSTS, ALLOCATIONS = "routing.csv.gz", "costs.csv", "allocations.csv"
"""The tables; table.py writes them."""


@dataclass(frozen=True)
class Ended:
    spec: RunSpec
    loss: float
    """On the validation text; infinite if it diverged."""


def ended_in(store: Store) -> dict[str, Ended]:
    """By id, in its order."""
    results = {run.run_id: (run.spec, run.result) for run in store.runs() if run.ended}
    return {
        run_id: Ended(spec, result["loss_validation"] if result["status"] == FINISHED else inf)
        for run_id, (spec, result) in results.items()
    }


def recorded_in(folder: Path) -> dict[str, Ended]:
    """By id, in its order; none where there are no tables."""
    specs, losses = specs_in(folder), {}
    for file in (folder / TABLE, folder / OF_RATES, folder / OF_NONE):
        if file.is_file():
            last = read_runs(file).frame.sort_values("step").groupby("run_id").tail(1)
            finished = last["status"] == FINISHED
            losses |= dict(zip(last["run_id"], last["loss_validation"].where(finished, inf), strict=True))
    if without := specs.keys() - losses:
        raise InputError(f"{folder / SPECS}: the tables beside it have no row of {', '.join(sorted(without)[:3])}.")
    return {run_id: Ended(spec, losses[run_id]) for run_id, spec in specs.items()}


def specs_in(folder: Path) -> dict[str, RunSpec]:
    file = folder / SPECS
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    return {row["run_id"]: from_stored(row["spec"], str(file)) for row in rows}
