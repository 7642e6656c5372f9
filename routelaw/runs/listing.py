"""The runs of a store at a glance: one row per run, its own and imported ones, as they now stand."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from routelaw.errors import InputError
from routelaw.files import made_folder, write_atomically
from routelaw.runs.files import read_runs
from routelaw.runs.folders import RESULT, columns_of, read_evaluations, table_of_lines
from routelaw.runs.store import DIVERGED, FINISHED, IMPORTED, RUN_ID, STOPPED, UNFINISHED, Store, StoredRun
from routelaw.runs.table import SOURCE, RunTable
from routelaw.specs.names import canonical_router

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
OWN = "own"
"""Where a run is from: trained into this store, or the name of an imported table."""
SHOWN = [
    "run_id", "source", "router", "variant", "size", "experts", "k", "routing_frequency", "seed", "status", "step",
    "loss_validation", "active_params", "total_params", "flops_per_token",
]  # fmt: skip
FILTERS = ("router", "size", "experts", "k", "seed", "status", "source", "variant")


def list_runs(store: Store, notice: Callable[[str], None] = lambda _: None) -> pd.DataFrame:
    """The last row of every run; a run that has begun and was not evaluated yet has no loss. What is damaged is listed
    as far as it can be, and said."""
    frames = [_last_rows(read_runs(path), name) for name, path in store.imported().items()]
    runs = store.runs()
    evaluations = read_evaluations(run.folder for run in runs)
    table = table_of_lines(evaluations, str(store.path)) if evaluations else None
    for sentence in store.damage(runs, table):
        notice(sentence)
    if table is not None:
        own = _last_rows(table, OWN)
        unfinished = {run.run_id: run.status for run in runs if not run.ended}
        for sentence in _without_result(runs, own, unfinished):
            notice(sentence)
        own["status"] = [unfinished.get(run, status) for run, status in zip(own["run_id"], own["status"], strict=True)]
        frames.insert(0, own)
    begun = [run for run in runs if run.folder not in evaluations]
    if begun:
        frames.insert(0, pd.DataFrame([_begun(run) for run in begun]))
    if not frames:
        raise InputError(f"{store.path}: there are no runs in it.")
    return pd.concat(frames, ignore_index=True)


def filtered(rows: pd.DataFrame, wanted: Mapping[str, str]) -> pd.DataFrame:
    """Rows whose columns read as asked; several values are separated by commas. A column that is none is an error."""
    for name, values in wanted.items():
        if name not in FILTERS:
            raise InputError(f"runs are filtered by {', '.join(FILTERS)}, not by {name!r}.")
        choices = {canonical_router(value) if name == "router" else value.strip() for value in values.split(",")}
        rows = rows[rows[name].astype(str).isin(choices)]
    return rows


def export_table(store: Store, *, everything: bool) -> RunTable:
    """The store's own runs as one table; with `everything` imported ones too, told apart by `from_table`."""
    if not everything:
        return store.table()
    tables = {name: read_runs(path) for name, path in store.imported().items()}
    if any(run.ended for run in store.runs()):
        tables = {OWN: store.table(), **tables}
    if not tables:
        raise InputError(f"{store.path}: there are no runs in it.")
    # A table without steps has one row per run; a number of 0 lets it stand beside those that have them.
    frames = [t.frame.assign(**{SOURCE: name, "step": t.frame["step"].fillna(0)}) for name, t in tables.items()]
    return RunTable.from_frame(pd.concat(frames, ignore_index=True), str(store.path))


def import_table(store: Store, table: RunTable, name: str) -> int:
    """Keep someone else's table beside the store's own runs; returns how many runs it has.

    Its name must be nothing that the store knows already or may come to know: `remove` goes by names.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"the name of an imported table is letters, digits, - and _, at most 60, not {name!r}.")
    known = store.imported()
    if name in known:
        raise InputError(f"{store.path} has an imported table {name!r} already; choose another --name.")
    if name in (OWN, UNFINISHED, IMPORTED) or RUN_ID.fullmatch(name):
        raise InputError(f"{name!r} is a name that a store uses itself, or gives to runs; choose another --name.")
    ours = {run.run_id for run in store.runs()}
    if name in ours or (store.path / name).exists():
        raise InputError(f"{store.path} holds a run or folder {name!r}; choose another --name.")
    for file in known.values():
        ours |= set(read_runs(file).frame["run_id"])
    theirs = set(table.frame["run_id"])
    if both := sorted(ours & theirs):
        raise InputError(f"{table.source}: run {both[0]} is in {store.path} already ({len(both)} such runs).")
    buffer = io.BytesIO()
    table.frame.to_parquet(buffer, index=False, write_page_checksum=True)
    with made_folder(store.path / IMPORTED) as folder:
        write_atomically(buffer.getvalue(), folder / f"{name}.parquet")
    return len(theirs)


def _last_rows(table: RunTable, source: str) -> pd.DataFrame:
    """The last row of each run, and of each loss the last value that there is. The first loss of a table stands for
    that on validation."""
    frame = table.frame.sort_values("step", kind="stable")
    last = frame.groupby("run_id", sort=False).tail(1).set_index("run_id")
    names = {loss: loss if nth else "loss_validation" for nth, loss in enumerate(table.losses)}
    valued = {
        name: frame[frame[loss].notna()].groupby("run_id", sort=False).tail(1).set_index("run_id")[loss]
        for loss, name in names.items()
    }
    rows = last.assign(source=source, **valued).reset_index()
    return rows[[*SHOWN, *(name for name in names.values() if name not in SHOWN)]].sort_values(
        ["active_params", "router", "experts", "seed"], kind="stable"
    )


def _without_result(runs: Sequence[StoredRun], rows: pd.DataFrame, unfinished: Mapping[str, str]) -> list[str]:
    """Runs whose evaluations go to the end and that have no result: damaged, or killed in that very moment."""
    ended = set(rows["run_id"][rows["status"].isin((FINISHED, DIVERGED))])
    return [
        f"{run.folder} is damaged: the run has ended, and its {RESULT} is missing; the same command writes it again."
        for run in runs
        if run.run_id in ended and unfinished.get(run.run_id) == STOPPED
    ]


def _begun(run: StoredRun) -> dict[str, Any]:
    columns = columns_of(run.spec) | {"run_id": run.run_id, "source": OWN, "status": run.status, "step": 0}
    return {name: columns.get(name) for name in SHOWN}
