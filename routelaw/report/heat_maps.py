"""Expert load and drops over training, per routed layer: what the page's heat maps show of each run.

A cell is the load of an expert over a stretch of training as a percentage of its even share 1/E: 100 is balance.
Many experts and many runs make many cells, so a page holds as many runs as its budget allows, spread over routers and
sizes, and says which files have the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from routelaw.report.logs import bin_starts, binned_means
from routelaw.report.run_rows import RunRow

MOST_BINS = 60
BUDGET = 1_500_000
"""Cells of all heat maps of a page, about four characters each."""
Log = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class HeatMaps:
    data: dict[str, Any] | None
    """None where no run has a log of routed layers."""
    left_out: int


def heat_map_data(rows: Sequence[RunRow], logs: Mapping[str, Log], budget: int = BUDGET) -> HeatMaps:
    """Runs in an order that shows every router and size before repeating one, until the budget is spent."""
    left = budget
    chosen: dict[str, dict[str, Any]] = {}
    left_out = 0
    for row in _spread([row for row in rows if _is_routed(logs.get(row.run_id, ()))]):
        maps = run_maps(logs[row.run_id])
        cells = sum(len(layer["load"]) * len(maps["steps"]) for layer in maps["layers"])
        if cells > left:
            left_out += 1
            continue
        left -= cells
        chosen[row.run_id] = {"run": row.run_id, "label": row.label, "seed": row.seed, "status": row.status, **maps}
    shown = [row for row in rows if row.run_id in chosen]
    if not shown:
        return HeatMaps(None, left_out)
    largest = max(shown, key=lambda row: (row.experts or 0, row.active_params or 0.0))
    return HeatMaps({"runs": [chosen[row.run_id] for row in shown], "first": shown.index(largest)}, left_out)


def run_maps(log: Log) -> dict[str, Any]:
    """Steps at the end of each bin; per layer, percent of the even share by expert and bin, and drops by bin."""
    rows = [row for row in log if row.get("layers")]
    layers = []
    for place, first in enumerate(rows[0]["layers"]):
        load_BE = binned_means(np.array([row["layers"][place]["load"] for row in rows], float), MOST_BINS)
        dropped_B = binned_means(np.array([_number(row["layers"][place].get("dropped")) for row in rows]), MOST_BINS)
        layers.append(
            {
                "block": int(first["block"]),
                "load": np.round(100 * load_BE * load_BE.shape[1]).astype(int).T.tolist(),
                "dropped": [float(f"{share:.4g}") for share in dropped_B],
            }
        )
    ends = [*(bin_starts(len(rows), MOST_BINS)[1:] - 1).tolist(), len(rows) - 1]
    return {"steps": [int(rows[end]["step"]) for end in ends], "layers": layers}


def _is_routed(log: Log) -> bool:
    """Whether there is anything to show: every row with layers has the same ones, and their loads are whole."""
    rows = [row["layers"] for row in log if row.get("layers")]
    shapes = {tuple((layer.get("block"), len(layer.get("load") or ())) for layer in layers) for layers in rows}
    whole = all(None not in layer["load"] for layers in rows for layer in layers if layer.get("load"))
    return len(shapes) == 1 and whole and all(count > 1 for _, count in next(iter(shapes)))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _spread(rows: Sequence[RunRow]) -> list[RunRow]:
    """Round after round, one run of each (router, size), those with most experts first."""
    groups: dict[tuple[str, str, str], list[RunRow]] = {}
    for row in sorted(rows, key=lambda r: -(r.experts or 0)):
        groups.setdefault((row.router, row.variant, row.size), []).append(row)
    rounds = max((len(group) for group in groups.values()), default=0)
    return [group[nth] for nth in range(rounds) for group in groups.values() if nth < len(group)]
