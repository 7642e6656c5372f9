"""What a report is made from: the runs of a store and the tables imported into it, or one table of losses.

Every run of a source becomes one row, evaluated or not: what the run table shows and charts name their curves by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from routelaw.errors import InputError
from routelaw.fitting.points import one_corpus
from routelaw.report.runs.analysis import label_of
from routelaw.runs.files import read_runs
from routelaw.runs.folders import EVALUATIONS
from routelaw.runs.store import FAILED, Store, StoredRun
from routelaw.runs.table import FINISHED, SOURCE, RunTable, last_rows
from routelaw.specs.names import DENSE
from routelaw.specs.run import RunSpec, meaning_of
from routelaw.specs.sizes import size_label

OWN = "own"
DIVERGED = "diverged"
FROM_TABLE = (
    "router", "variant", "size", "experts", "k", "routing_frequency", "seed", "step", "tokens", "status",
    "active_params", "total_params", "flops_per_token",
)  # fmt: skip


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
    """The table without the runs excluded."""


def _by_source(table: RunTable) -> list[ReportData]:
    """A table put together from several sources falls into them again."""
    names = list(table.frame[SOURCE].unique()) if SOURCE in table.frame else []
    if len(names) < 2:
        return [_of_table(OWN, table.source, table)]
    rows = {str(name): table.frame[table.frame[SOURCE] == name].reset_index(drop=True) for name in names}
    parts = {name: replace(table, frame=frame) for name, frame in rows.items()}
    return [_of_table(name, f"{name} in {table.source}", part) for name, part in parts.items()]


def _of_table(name: str, source: str, table: RunTable) -> ReportData:
    """Losses on several corpora cannot be compared: techniques are, on the one of most runs."""
    left_out: list[str] = []
    comparable = replace(table, frame=one_corpus(table.frame, left_out))
    excluded = tuple(f"{sentence}: their losses cannot be compared with those of the others." for sentence in left_out)
    return ReportData(name, source, table, excluded=excluded, comparable=comparable)


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
        found.append(_of_table(name, f"{file}", table))
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


def one_recipe(
    table: RunTable, specs: dict[str, RunSpec], varies: Sequence[str] = ("seed",)
) -> tuple[RunTable, tuple[str, ...]]:
    """The runs whose losses may be compared: of one corpus, and of one recipe where a model was trained under several.

    A table has no columns for corpus, learning rate or batch, so runs that differ there would count as seeds of one
    model. A recipe that goes with the size is left alone: only the same model under two of them is a conflict. Fields
    of training that may vary are no part of the recipe.
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
    recipes = {i: _recipe(s, varies) for i, s in specs.items() if i not in other_data}
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


def _recipe(spec: RunSpec, varies: Sequence[str]) -> str:
    return str({k: v for k, v in sorted(meaning_of(spec.train).items()) if k not in varies})


def _model(spec: RunSpec) -> str:
    return str((meaning_of(spec.model), meaning_of(spec.router)))


def _commonest(values: list) -> Any:
    return Counter(values).most_common(1)[0][0] if values else None


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"


@dataclass(frozen=True)
class RunRow:
    run_id: str
    source: str
    router: str = ""
    variant: str = ""
    size: str = ""
    experts: int | None = None
    k: int | None = None
    routing_frequency: float | None = None
    seed: int | None = None
    step: int | None = None
    tokens: int | None = None
    status: str = ""
    reason: str = ""
    active_params: float | None = None
    total_params: float | None = None
    flops_per_token: float | None = None
    dropped: float | None = None
    seconds: float | None = None
    losses: dict[str, float] = field(default_factory=dict)
    """The last value of each loss."""
    spec: RunSpec | None = None
    folder: Path | None = None

    @property
    def label(self) -> str:
        """`S-BASE 0.8M, E = 8`: what a reader would call it."""
        name = f"{label_of(self.router, self.variant)} {self.size}"
        routed = self.router != DENSE and self.experts is not None
        return name + (f", E = {self.experts}" if routed else "") + (f", K = {self.k}" if (self.k or 1) > 1 else "")


def rows_of(report_data: ReportData) -> list[RunRow]:
    """By router, size and E; runs that have not been evaluated stand with what their spec says."""
    known = {run.run_id: run for run in report_data.runs}
    rows = _evaluated(report_data.table, report_data.name, known) if report_data.table is not None else []
    there = {row.run_id for row in rows}
    rows += [_begun(run, report_data.name) for run in report_data.runs if run.run_id not in there]
    return sorted(
        rows, key=lambda r: (r.router, r.variant, r.active_params or 0, r.experts or 0, r.k or 0, r.seed or 0)
    )


def _evaluated(table: RunTable, source: str, known: dict[str, KnownRun]) -> list[RunRow]:
    frame = table.frame
    losses: dict[str, dict[str, float]] = {}
    for loss in table.losses:
        valued = last_rows(frame[frame[loss].notna()])
        for run_id, value in zip(valued["run_id"], valued[loss], strict=True):
            losses.setdefault(str(run_id), {})[loss] = float(value)
    rows = []
    for record in last_rows(frame)[["run_id", *FROM_TABLE]].to_dict("records"):
        run_id = str(record.pop("run_id"))
        cells: dict[str, Any] = {str(name): None if pd.isna(value) else value for name, value in record.items()}
        run = known.get(run_id)
        if run is not None:
            cells["status"] = run.status
        rows.append(RunRow(run_id, source, **cells, losses=losses.get(run_id, {}), **_of_folder(run)))
    return rows


def _of_folder(run: KnownRun | None) -> dict[str, Any]:
    names = ("reason", "dropped", "seconds", "spec", "folder")
    return {} if run is None else {name: getattr(run, name) for name in names}


def _begun(run: KnownRun, source: str) -> RunRow:
    spec = run.spec
    if spec is None:
        return RunRow(run.run_id, source, status=run.status, **_of_folder(run))
    return RunRow(
        run.run_id,
        source,
        router=spec.router.name,
        variant=spec.variant,
        size=size_label(spec.counts.active_params),
        experts=spec.router.experts,
        k=spec.router.k,
        routing_frequency=spec.routing_frequency,
        seed=spec.train.seed,
        status=run.status,
        **asdict(spec.counts),
        **_of_folder(run),
    )
