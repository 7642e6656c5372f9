"""From trained runs to the files that are committed: every figure can be redrawn from them without a GPU.

    python -m experiments.miniature.table STORE|runs.tar.gz [--out experiments/miniature]

    runs.csv.gz      the run table, every evaluation a row; also the studies of each run and its learning rate
    rates.csv.gz     the same of rates.toml and routed_rates.toml alone: with the others they would count as seeds
    specs.jsonl      what each run is, in full
    routing.csv.gz   each routed block as it was logged: load, drops, over-subscription, the router's losses
    costs.csv        machine, day, seconds and tokens per second of each run

The same runs give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.miniature.packing import SITTING, opened
from experiments.miniature.studies import HERE, RATES, ROUTED_RATES, ended_runs, studies_of_runs
from routelaw.errors import InputError
from routelaw.runs.codecs import compress
from routelaw.runs.files import write_runs
from routelaw.runs.folders import table_of
from routelaw.runs.store import Store, StoredRun
from routelaw.runs.table import RunTable
from routelaw.runs.writing import write_atomically
from routelaw.specs.files import to_mapping

ABOUT = ("machine", "runs_at_a_time", "torch", "python", "date", "began", "predictions")
"""What a sitting says of a run: machine, day, when it began and the hash of the blind test's predictions then."""


def write_tables(store: Store, out: Path) -> dict[str, int]:
    """Write all files; returns the rows of each."""
    runs = ended_runs(store)
    if not runs:
        raise InputError(f"{store.path}: no run has ended there.")
    belongs = studies_of_runs(runs)
    only_rates = [run for run in runs if belongs.get(run.run_id) in ((RATES,), (ROUTED_RATES,))]
    others = [run for run in runs if run not in only_rates]
    out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for name, part in (("runs.csv.gz", others), ("rates.csv.gz", only_rates)):
        if part:
            table = _run_table(part, belongs, str(store.path))
            write_runs(table, out / name, force=True)
            rows[name] = len(table.frame)
    specs = [json.dumps({"run_id": run.run_id, "spec": to_mapping(run.spec)}, sort_keys=True) for run in runs]
    write_atomically("".join(f"{line}\n" for line in specs).encode(), out / "specs.jsonl", force=True)
    rows["specs.jsonl"] = len(specs)
    routing = pd.DataFrame([row for run in runs for row in _routing(run)])
    costs = pd.DataFrame([_cost(run) for run in runs])
    for name, frame in (("routing.csv.gz", routing), ("costs.csv", costs)):
        content = frame.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode()
        write_atomically(compress(content, ".gz") if name.endswith(".gz") else content, out / name, force=True)
        rows[name] = len(frame)
    return rows


def _run_table(runs: Sequence[StoredRun], belongs: dict[str, tuple[str, ...]], source: str) -> RunTable:
    frame = table_of([run.folder for run in runs], source).frame
    rates = {run.run_id: run.spec.train.learning_rate for run in runs}
    studies = {run.run_id: " ".join(belongs.get(run.run_id, ())) for run in runs}
    added = frame.assign(learning_rate=frame["run_id"].map(rates), studies=frame["run_id"].map(studies))
    return RunTable.from_frame(added, source)


def _routing(run: StoredRun) -> list[dict[str, Any]]:
    """Loads as multiples of an even one."""
    experts = run.spec.router.experts
    return [
        {
            "run_id": run.run_id,
            "step": row["step"],
            "block": layer["block"],
            "dropped": layer["dropped"],
            "oversubscribed": layer["oversubscribed"],
            "load_entropy": layer["load_entropy"],
            "fullest": max(layer["load"]) * experts,
            "emptiest": min(layer["load"]) * experts,
            **{f"loss_{name}": value for name, value in layer["losses"].items()},
            **{f"router_{name}": value for name, value in layer["metrics"].items()},
        }
        for row in run.log()
        for layer in row.get("layers") or []
    ]


def _cost(run: StoredRun) -> dict[str, Any]:
    """Seconds include evaluation and, in the first run of a shape, compiling; runs at a time share the machine. The
    pace is that of the second half of the log, which compiling does not reach."""
    result, sitting = run.result, run.folder / SITTING
    about = json.loads(sitting.read_bytes()) if sitting.is_file() else {}
    log = run.log()
    middle, last = log[len(log) // 2], log[-1]
    tokens = run.spec.tokens_after(last["step"] - middle["step"])
    return {
        "run_id": run.run_id,
        "status": result["status"],
        "steps": result["step"],
        "tokens": run.spec.tokens_after(result["step"]),
        "seconds": result["seconds"],
        "tokens_per_second": tokens / (last["seconds"] - middle["seconds"]) if tokens else None,
        "device": result["device"],
        "precision": result["precision"],
        **{name: about.get(name) for name in ABOUT},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a store, or runs.tar.gz of a sitting")
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    try:
        with opened(given.runs) as store:
            for name, count in write_tables(store, given.out).items():
                print(f"{given.out / name}: {count} rows")
    except InputError as error:
        sys.exit(str(error))
