"""From trained runs to one file that travels, and from that to the tables that are committed.

    python -m experiments.miniature.train.tables [STORE|runs.tar.gz] [--out experiments/miniature/data]

A pack has the ended runs of a store: what they are and how they went, without weights. Beside it, held.json says how
long an allocation held the device.

    RUN_ID/spec.json, result.json, evaluations.jsonl, log.jsonl
    RUN_ID/loads.jsonl        the last row: the load of every expert on every evaluation set
    RUN_ID/allocation.json    the machine, the day, and how it began

From the tables every figure can be redrawn without a GPU.

    runs.csv.gz      the run table, every evaluation a row; also the studies of each run and its learning rate
    rates.csv.gz     the same of rates.toml and routed_rates.toml alone: with the others they would count as seeds
    runs_of_no_study.csv.gz   the same of runs that no sweep file has any more (other learning rates, say): no report
                     reads it, since among the others they would count as seeds
    specs.jsonl      what each run is, in full
    routing.csv.gz   each routed block as it was logged: load, drops, over-subscription, the router's losses
    costs.csv        machine, day, seconds and tokens per second of each run
    allocations.csv  when allocations began and how long they held the device, where the pack came with held.json

What these files have of other runs stays: the folders of runs may be gone with the machine that trained them. Which
studies a run belongs to is looked up again, which is all that is done without a store: after a change to a sweep file.
The same runs give the same bytes, added at once or in parts.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.miniature.studies import (
    ALLOCATIONS,
    COSTS,
    DATA,
    LARGEST_RATES,
    OF_NONE,
    OF_RATES,
    QUICK,
    RATES,
    ROUTED_RATES,
    ROUTING,
    SPECS,
    STUDIES,
    TABLE,
    run_program,
    specs_in,
    studies_of_runs,
)
from routelaw.errors import InputError
from routelaw.files import write_atomically
from routelaw.runs.files import compress, decompress, read_runs, write_runs
from routelaw.runs.folders import EVALUATIONS, LOG, RESULT, SPEC, table_of
from routelaw.runs.store import Store, StoredRun
from routelaw.runs.table import RunTable
from routelaw.specs.run import RunSpec, meaning_of

LOADS, ALLOCATION, HELD = "loads.jsonl", "allocation.json", "held.json"
PACKED = (SPEC, RESULT, EVALUATIONS, LOG, LOADS, ALLOCATION)
ABOUT = ("machine", "runs_at_a_time", "torch", "python", "date", "began", "predictions", "committed")
"""What an allocation says of a run: machine, day, when it began, the hash of the blind test's predictions then, and
whether these were committed."""
OF_ROUTERS = ("loss_", "router_")
"""Beginnings of columns that not every router has: they come last, in order."""


def pack(store: Store, file: Path) -> int:
    """Write every ended run of the store to `file`; returns how many."""
    runs = [run for run in store.runs() if run.ended]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for run in runs:
            for name in PACKED:
                if (run.folder / name).is_file():
                    content, entry = _content(run, name), tarfile.TarInfo(f"{run.run_id}/{name}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(gzip.compress(buffer.getvalue(), mtime=0), file, force=True)
    return len(runs)


def unpack(file: Path, store: Store) -> None:
    """Put the runs of `file` into a store that does not have them, each by one rename."""
    store.check_writable()
    with tempfile.TemporaryDirectory(dir=store.path, prefix=".unpacked.") as folder:
        try:
            with tarfile.open(file, "r:gz") as archive:
                archive.extractall(folder, filter="data")
        except (OSError, EOFError, tarfile.TarError) as error:
            raise InputError(f"{file}: this is not a file of packed runs, or it is damaged ({error}).") from None
        for path in sorted(Path(folder).iterdir()):
            run = StoredRun(path.name, path)
            if run.spec.run_id != path.name or not run.result:
                raise InputError(f"{file}: {path.name} is not the ended run that its name says.")
            path.rename(store.path / path.name)


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The store at `path`, or one made of a file of packed runs for as long as it is needed."""
    if path.is_dir():
        yield Store(path)
        return
    with tempfile.TemporaryDirectory(prefix="routelaw-runs-", ignore_cleanup_errors=True) as folder:
        store = Store(Path(folder))
        unpack(path, store)
        yield store


def _content(run: StoredRun, name: str) -> bytes:
    """The file's content; of the loads only the last row, since those of all evaluations would be most of it."""
    content = (run.folder / name).read_bytes()
    return b"".join(content.splitlines(keepends=True)[-1:]) if name == LOADS else content


def write_tables(store: Store | None, out: Path) -> dict[str, int]:
    """Add the ended runs of the store, if any, to the files in `out`; returns the rows of each."""
    source = str(store.path if store else out)
    runs = [run for run in store.runs() if run.ended] if store else []
    specs = specs_in(out) | {run.run_id: run.spec for run in runs}
    if not (runs if store else specs):
        raise InputError(f"{source}: no run has ended there.")
    if len({(spec.corpus, spec.model.vocabulary) for spec in specs.values()}) > 1:
        raise InputError(f"{source}: its runs are of another text than those of {out}; give them their own --out.")
    frame = _run_table(runs, specs, out, source)
    of_rates = frame["studies"].isin((RATES, ROUTED_RATES, LARGEST_RATES))
    of_none = frame["studies"] == ""
    parts = {OF_NONE: frame[of_none], TABLE: frame[~of_rates & ~of_none], OF_RATES: frame[of_rates]}
    tables = {name: RunTable.from_frame(part, source) for name, part in parts.items() if len(part)}
    routing = _added(out / ROUTING, [row for run in runs for row in _routing(run)], runs)
    costs = _added(out / COSTS, [_cost(run) for run in runs], runs)
    lines = [json.dumps({"run_id": i, "spec": meaning_of(spec)}, sort_keys=True) for i, spec in sorted(specs.items())]

    out.mkdir(parents=True, exist_ok=True)
    for name in parts:
        if name in tables:
            write_runs(tables[name], out / name, force=True)
        else:
            (out / name).unlink(missing_ok=True)
    if len(routing):
        write_atomically(compress(_csv(routing), ".gz"), out / ROUTING, force=True)
    write_atomically(_csv(costs), out / COSTS, force=True)
    # Last: a run counts as trained once it is here.
    write_atomically("".join(f"{line}\n" for line in lines).encode(), out / SPECS, force=True)
    rows = {name: len(table.frame) for name, table in tables.items()}
    return rows | {ROUTING: len(routing), COSTS: len(costs), SPECS: len(lines)}


def _run_table(runs: Sequence[StoredRun], specs: Mapping[str, RunSpec], out: Path, source: str) -> pd.DataFrame:
    new = [table_of([run.folder for run in runs], source).frame] if runs else []
    there = [read_runs(file).frame for file in (out / TABLE, out / OF_RATES, out / OF_NONE) if file.is_file()]
    frame = pd.concat([*new, *there]).drop_duplicates(["run_id", "step"])  # the new ones stay
    frame = frame[frame["run_id"].isin(specs)].sort_values(["run_id", "step"], ignore_index=True)
    belongs = studies_of_runs(next(iter(specs.values())), (*STUDIES, QUICK))
    rates = {run_id: spec.train.learning_rate for run_id, spec in specs.items()}
    studies = {run_id: " ".join(belongs.get(run_id, ())) for run_id in specs}
    counts = pd.DataFrame({run_id: asdict(spec.counts) for run_id, spec in specs.items()}).T
    counted = {name: frame["run_id"].map(counts[name]).astype(frame[name].dtype) for name in counts}
    return frame.assign(learning_rate=frame["run_id"].map(rates), studies=frame["run_id"].map(studies), **counted)


def _added(file: Path, rows: Sequence[Mapping[str, Any]], runs: Sequence[StoredRun]) -> pd.DataFrame:
    """These rows, and those of other runs in the file, as text: what was written once stays as it was."""
    frame = _as_text(pd.DataFrame(rows).to_csv(index=False, float_format="%.6g")) if rows else pd.DataFrame()
    if file.is_file():
        there = _as_text(decompress(file.read_bytes(), str(file)).decode())
        frame = pd.concat([there[~there["run_id"].isin([run.run_id for run in runs])], frame]).fillna("")
    if frame.empty:
        return frame
    own = sorted(name for name in frame if name.startswith(OF_ROUTERS))
    common = [name for name in frame if name not in own]
    return frame.sort_values("run_id", kind="stable")[common + own]


def _as_text(content: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(content), dtype=str, keep_default_na=False)


def _csv(frame: pd.DataFrame) -> bytes:
    return frame.to_csv(index=False, lineterminator="\n").encode()


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
    result, allocation = run.result, run.folder / ALLOCATION
    about = json.loads(allocation.read_bytes()) if allocation.is_file() else {}
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


def add_allocation(held: Path, table: Path) -> None:
    """A line of what an allocation said of itself, if it did; the last word of those that said it more than once."""
    if not held.is_file():
        return
    there = [pd.read_csv(table)] if table.is_file() else []
    rows = pd.concat([*there, pd.DataFrame([json.loads(held.read_bytes())])])
    rows = rows.sort_values(["began", "seconds"]).drop_duplicates("began", keep="last")
    write_atomically(_csv(rows), table, force=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="a store, or runs.tar.gz of an allocation")
    parser.add_argument("--out", type=Path, default=DATA)
    given = parser.parse_args()
    with opened(given.runs) if given.runs else nullcontext() as store:
        for name, count in write_tables(store, given.out).items():
            print(f"{given.out / name}: {count} rows")
    if given.runs:
        add_allocation(given.runs.with_name(HELD), given.out / ALLOCATIONS)


if __name__ == "__main__":
    run_program(main)
