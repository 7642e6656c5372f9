"""Every run of a source in one row, evaluated or not: what the run table shows and charts name their curves by."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from routelaw.report.report_data import KnownRun, ReportData
from routelaw.report.techniques import label_of
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE
from routelaw.specs.run import RunSpec
from routelaw.specs.sizes import size_label

FROM_TABLE = (
    "router", "variant", "size", "experts", "k", "routing_frequency", "seed", "step", "tokens", "status",
    "active_params", "total_params", "flops_per_token",
)  # fmt: skip


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
    frame = table.frame.sort_values("step", kind="stable")
    last = frame.groupby("run_id", sort=False).tail(1)
    losses = _last_values(frame, table.losses)
    rows = []
    for record in last[["run_id", *FROM_TABLE]].to_dict("records"):
        run_id = str(record.pop("run_id"))
        cells: dict[str, Any] = {str(name): None if pd.isna(value) else value for name, value in record.items()}
        run = known.get(run_id)
        if run is not None:
            cells["status"] = run.status
        rows.append(RunRow(run_id, source, **cells, losses=losses.get(run_id, {}), **_of_folder(run)))
    return rows


def _last_values(frame: pd.DataFrame, losses: Iterable[str]) -> dict[str, dict[str, float]]:
    values: dict[str, dict[str, float]] = {}
    for loss in losses:
        valued = frame[frame[loss].notna()].groupby("run_id", sort=False)[loss].last()
        for run_id, value in valued.items():
            values.setdefault(str(run_id), {})[loss] = float(value)
    return values


def _of_folder(run: KnownRun | None) -> dict[str, Any]:
    if run is None:
        return {}
    return {
        "reason": run.reason,
        "dropped": run.dropped,
        "seconds": run.seconds,
        "spec": run.spec,
        "folder": run.folder,
    }


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
