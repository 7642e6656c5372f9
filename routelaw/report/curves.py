"""Training curves: the loss of every run against the tokens it has seen, evaluated and in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from routelaw.report.analysis import Analysis
from routelaw.report.logs import binned_means, evenly
from routelaw.report.run_rows import RunRow
from routelaw.report.techniques import PlotStyle
from routelaw.runs.table import RunTable

MOST_POINTS = 100
"""Points of one curve: a screen shows no more."""
MOST_RUNS = 600
"""Beyond these a page would be slow to draw."""
Log = Sequence[Mapping[str, Any]]
Curve = tuple[list[float], list[float]]
"""Abscissae and losses."""


def curve_data(
    rows: Sequence[RunRow],
    table: RunTable | None,
    target: str,
    logs: Mapping[str, Log],
    keys: Mapping[tuple[str, str], str],
    looks: Mapping[str, PlotStyle],
) -> dict[str, Any] | None:
    """What the page draws; None where no run has a curve. `keys` names techniques by (router, variant)."""
    abscissa = "tokens" if table is None or table.frame["tokens"].notna().any() else "step"
    evaluated = _evaluated(table, target, abscissa) if table is not None else {}
    curves = []
    for row in rows:
        validation = evaluated.get(row.run_id, ([], []))
        training = _training(logs.get(row.run_id, ()), row)
        if max(len(validation[0]), len(training[0])) > 1:
            curves.append(
                {
                    "run": row.run_id,
                    "router": keys.get((row.router, row.variant), row.router),
                    "size": row.size,
                    "label": row.label,
                    "seed": row.seed,
                    "status": row.status,
                    "validation": validation,
                    "training": training,
                }
            )
    if not curves:
        return None
    shown = curves if len(curves) <= MOST_RUNS else [curves[i] for i in evenly(len(curves), MOST_RUNS)]
    return {
        "curves": shown,
        "left_out": len(curves) - len(shown),
        "abscissa": abscissa,
        "looks": {key: {"label": look.label, "colour": look.colour} for key, look in looks.items()},
        "sizes": _sizes(rows),
    }


def technique_keys(analysis: Analysis | None) -> dict[tuple[str, str], str]:
    """(router, variant) -> the key under which its colour is known."""
    return {(t.router, t.variant): t.key for t in analysis.techniques.values()} if analysis else {}


def _sizes(rows: Sequence[RunRow]) -> list[str]:
    active = {row.size: row.active_params or 0.0 for row in rows}
    return sorted(active, key=active.__getitem__)


def _evaluated(table: RunTable, target: str, abscissa: str) -> dict[str, Curve]:
    if target not in table.frame:
        return {}
    rows = table.frame[table.frame[abscissa].notna() & table.frame[target].notna()]
    rows = rows[rows[abscissa].astype(float) > 0].sort_values(abscissa, kind="stable")
    curves = {}
    for run_id, own in rows.groupby("run_id", sort=False):
        x, y = own[abscissa].to_numpy(float), own[target].to_numpy(float)
        kept = evenly(len(x), MOST_POINTS)
        curves[str(run_id)] = [float(x[i]) for i in kept], [float(f"{y[i]:.5g}") for i in kept]
    return curves


def _training(log: Log, row: RunRow) -> Curve:
    """Loss of the training batches, averaged over neighbouring rows of the log: single batches are noisy."""
    finite = [(entry["step"], entry["loss"]) for entry in log if isinstance(entry.get("loss"), int | float)]
    if not finite or row.spec is None:
        return [], []
    steps_B, losses_B = binned_means(np.array(finite, float), MOST_POINTS // 2).T
    tokens = row.spec.train.batch * row.spec.model.sequence_length
    return (steps_B * tokens).tolist(), [float(f"{loss:.5g}") for loss in losses_B]
