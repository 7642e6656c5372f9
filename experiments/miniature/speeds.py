"""How fast does each model of a study train by itself? Runs of an allocation share a GPU: their own pace tells little.

    python -m experiments.miniature.speeds [--study k] [--sizes 3M 0.8M] [--out speeds.csv]

Times a few steps of every run's shape, alone, the way `routelaw sweep --dry-run --measure` does, and writes tokens per
second by run. The corpora must be built (allocation.py does it); a shape that was trained on this machine is compiled
already, which is most of the time it takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from experiments.miniature.studies import HERE, STUDIES
from experiments.miniature.study import SPEEDS
from routelaw.errors import InputError
from routelaw.files import write_atomically
from routelaw.runs.store import Store
from routelaw.specs.sizes import get_size
from routelaw.sweeps.estimate.trial import time_tasks
from routelaw.sweeps.local import Machine
from routelaw.sweeps.sweep import PlannedRun, read_sweep
from routelaw.sweeps.task import Task
from routelaw.training.device import device_name, resolve_device


def measured(runs: Sequence[PlannedRun], store: Store) -> pd.DataFrame:
    """A row for each run, timed one after another."""
    machine = Machine.here([run.execution for run in runs], 1)
    tasks = [Task.of(run, machine.execution(run.execution), store, ()) for run in runs]
    paces = time_tasks(tasks, machine, lambda done: print(f"{done} of {len(tasks)}", flush=True))
    return pd.DataFrame({
        "run_id": [run.spec.run_id for run in runs],
        "tokens_per_second": [
            run.spec.tokens_after(1) / pace.step_seconds for run, pace in zip(runs, paces, strict=True)
        ],
        "device": device_name(resolve_device(machine.device)),
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", choices=STUDIES, default="k")
    parser.add_argument("--sizes", nargs="+", help="these alone")
    parser.add_argument("--out", type=Path, default=HERE / SPEEDS)
    given = parser.parse_args()
    sizes = [get_size(size) for size in given.sizes or ()]
    runs = read_sweep(HERE / f"{given.study}.toml").runs
    runs = [run for run in runs if not sizes or run.spec.model.architecture in sizes]
    found = measured(runs, Store(HERE.parents[1] / "out" / "miniature" / "runs"))
    content = found.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    write_atomically(content.encode(), given.out, force=True)
    print(f"{given.out}: {len(found)} rows")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(str(error))
