"""What a report is made from: the runs of a store and the tables imported into it, or one table of losses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from routelaw.errors import InputError
from routelaw.runs.files import read_runs
from routelaw.runs.folders import EVALUATIONS
from routelaw.runs.store import FAILED, Store, StoredRun
from routelaw.runs.table import FINISHED, SOURCE, RunTable
from routelaw.specs.run import RunSpec, meaning_of

OWN = "own"
DIVERGED = "diverged"


@dataclass(frozen=True)
class KnownRun:
    """A run as its folder tells it, evaluated or not."""

    run_id: str
    folder: Path
    status: str
    reason: str
    """Why it failed or diverged, where it did."""
    spec: RunSpec | None
    """None where spec.json cannot be read."""
    seconds: float | None
    dropped: float | None
    """Share of assignments dropped at the last logged step, averaged over the routed layers."""


@dataclass(frozen=True, eq=False)
class ReportData:
    """One source of losses. Sources are never mixed: they differ in corpus and recipe, and no law holds for both."""

    name: str
    """`own`, or the name of an imported table."""
    source: str
    table: RunTable | None
    """None while no run has been evaluated."""
    runs: tuple[KnownRun, ...] = ()
    """Folders of a store's own runs; a table of losses has none."""
    excluded: tuple[str, ...] = ()
    """Runs that take no part in laws and comparisons, and why, in sentences."""
    comparable: RunTable | None = None
    """The table without the runs set aside."""


def _by_source(table: RunTable) -> list[ReportData]:
    """A table put together from several sources falls into them again."""
    names = list(table.frame[SOURCE].unique()) if SOURCE in table.frame else []
    if len(names) < 2:
        return [ReportData(OWN, table.source, table, comparable=table)]
    rows = {str(name): table.frame[table.frame[SOURCE] == name].reset_index(drop=True) for name in names}
    parts = {name: replace(table, frame=frame) for name, frame in rows.items()}
    return [ReportData(name, f"{name} in {table.source}", part, comparable=part) for name, part in parts.items()]


def read_report_data(path: str | Path) -> list[ReportData]:
    """The source at `path`: a store's own runs first, then its imported tables."""
    path = Path(path)
    if (path / EVALUATIONS).is_file():
        return [_own([StoredRun(path.name, path)], read_runs(path))]
    if not path.is_dir():
        return _by_source(read_runs(path))
    store = Store(path)
    runs = store.runs()
    found = [_own(runs, _table(store, runs))] if runs else []
    for name, file in store.imported().items():
        table = read_runs(file)
        found.append(ReportData(name, f"{file}", table, comparable=table))
    if not found:
        store.table()  # raises, and says what a store is
    return found


def _table(store: Store, runs: list[StoredRun]) -> RunTable | None:
    """None where the runs have begun and not been evaluated; damaged files are an error."""
    files = [run.folder / EVALUATIONS for run in runs]
    return store.table() if any(b"\n" in file.read_bytes() for file in files if file.is_file()) else None


def _own(stored: list[StoredRun], table: RunTable | None) -> ReportData:
    runs = tuple(map(_known, stored))
    source = table.source if table is not None else str(stored[0].folder.parent)
    if table is None:
        return ReportData(OWN, source, None, runs)
    unfinished = {run.run_id: run.status for run in runs if run.status not in (FINISHED, DIVERGED)}
    if unfinished:
        last = table.frame["run_id"].map(unfinished)
        table = replace(table, frame=table.frame.assign(status=last.fillna(table.frame["status"]).astype("str")))
    specs = {run.run_id: run.spec for run in runs if run.spec is not None}
    comparable, excluded = one_recipe(table, specs)
    return ReportData(OWN, source, table, runs, excluded, comparable)


def _known(run: StoredRun) -> KnownRun:
    try:
        spec, run_id = run.spec, run.spec.run_id
    except InputError:
        spec, run_id = None, run.run_id
    last, result, status = run.last_logged(), run.result, run.status
    reason = ""
    if status == FAILED:
        reason = str(run.failure.get("reason", "")) or "no reason was recorded"
    elif status == DIVERGED:
        reason = f"the loss or its gradient stopped being finite before step {result.get('step', '?')}"
    seconds = result.get("seconds", last.get("seconds"))
    return KnownRun(run_id, run.folder, status, reason, spec, seconds, _mean_drop(last))


def _mean_drop(row: dict[str, Any]) -> float | None:
    shares = [layer["dropped"] for layer in row.get("layers") or [] if layer.get("dropped") is not None]
    return sum(shares) / len(shares) if shares else None


def one_recipe(table: RunTable, specs: dict[str, RunSpec]) -> tuple[RunTable, tuple[str, ...]]:
    """The runs whose losses may be compared: of one corpus, and of one recipe where a model was trained under several.

    A table has no columns for corpus, learning rate or batch, so runs that differ there would count as seeds of one
    model. A recipe that goes with the size is left alone: only the same model under two of them is a conflict.
    """
    data = {i: (s.corpus, s.model.vocabulary, s.model.sequence_length) for i, s in specs.items()}
    usual = _commonest(list(data.values()))
    other_data = {i for i, d in data.items() if d != usual}
    said = []
    if other_data:
        said.append(
            f"{_runs(len(other_data))} of another corpus, vocabulary or sequence length: their losses cannot be "
            f"compared with those of the {len(data) - len(other_data)} others."
        )
    recipes = {i: _recipe(s) for i, s in specs.items() if i not in other_data}
    usual_recipe = _commonest(list(recipes.values()))
    under: dict[str, set[str]] = {}
    for i, recipe in recipes.items():
        under.setdefault(_model(specs[i]), set()).add(recipe)
    other_recipe = {i for i, recipe in recipes.items() if recipe != usual_recipe and len(under[_model(specs[i])]) > 1}
    if other_recipe:
        said.append(
            f"{_runs(len(other_recipe))} of models that were also trained under the recipe of most runs: a law takes "
            f"one recipe (batch, learning rate, steps and the like) at a time."
        )
    left = other_data | other_recipe
    if not left:
        return table, ()
    return replace(table, frame=table.frame[~table.frame["run_id"].isin(left)]), tuple(said)


def _recipe(spec: RunSpec) -> str:
    return str({k: v for k, v in sorted(meaning_of(spec.train).items()) if k != "seed"})


def _model(spec: RunSpec) -> str:
    return str((meaning_of(spec.model), meaning_of(spec.router)))


def _commonest(values: list) -> Any:
    return Counter(values).most_common(1)[0][0] if values else None


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"
