"""Runs while they trained: curves of the loss, and the load of experts and drops in each routed layer.

Logs are read at even distances, however long the run was. A cell of a heat map is the load of an expert over a stretch
of training as a percentage of its even share 1/E: 100 is balance. Many experts and many runs make many cells, so a page
holds as many runs as its budget allows, spread over routers and sizes, and says which files have the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from routelaw.errors import InputError
from routelaw.files import open_regular
from routelaw.laws.law import Array
from routelaw.report.runs.analysis import Analysis, PlotStyle
from routelaw.report.runs.data import RunRow
from routelaw.runs.folders import LONGEST_LINE, log_row
from routelaw.runs.table import RunTable

ROWS_READ = 240
"""Enough for the bins of curves and heat maps; with 512 experts a line may have 100 kB, and reading all takes long."""
MOST_POINTS = 100
"""Points of one curve: a screen shows no more."""
MOST_RUNS = 600
"""Beyond these a page would be slow to draw."""
Log = Sequence[Mapping[str, Any]]
Curve = tuple[list[float], list[float]]
"""Abscissae and losses."""
MOST_BINS = 60
BUDGET = 1_500_000
"""Cells of all heat maps of a page, about four characters each."""


def sampled_log(file: Path, most: int = ROWS_READ) -> list[dict[str, Any]]:
    """First and last row among them. A line that is damaged or being written is no row."""
    try:
        with open_regular(file) as opened:
            starts = _line_starts(opened)
            return [row for i in evenly(len(starts), most) if (row := log_row(_line_at(opened, starts[i])))]
    except (InputError, OSError):
        return []


def _line_starts(file: IO[bytes]) -> list[int]:
    """Where the whole lines of a file begin; found block by block, since a log may be larger than memory."""
    starts, at = [0], 0
    while block := file.read(1 << 20):
        found = block.find(b"\n")
        while found >= 0:
            starts.append(at + found + 1)
            found = block.find(b"\n", found + 1)
        at += len(block)
    return starts[:-1]  # what follows the last end of a line is being written


def _line_at(file: IO[bytes], start: int) -> bytes:
    file.seek(start)
    return file.readline(LONGEST_LINE).rstrip(b"\n")


def binned_means(values_SX: Array, most: int) -> Array:
    """Means over at most so many stretches of neighbouring rows, as even as can be: (bins, …)."""
    starts = bin_starts(len(values_SX), most)
    counts = np.diff(np.append(starts, len(values_SX)))
    return np.add.reduceat(values_SX, starts) / counts.reshape(-1, *[1] * (values_SX.ndim - 1))


def bin_starts(count: int, most: int) -> Array:
    """Where each stretch begins; the first ones are longer by one where they cannot all be equal."""
    bins = min(count, most)
    return np.arange(bins) * (count // bins) + np.minimum(np.arange(bins), count % bins)


def evenly(count: int, most: int) -> list[int]:
    """At most so many of the numbers below `count`, evenly spread, with both ends."""
    return list(range(count)) if count <= most else [round(i) for i in np.linspace(0, count - 1, most)]


def curve_data(
    rows: Sequence[RunRow],
    table: RunTable | None,
    target: str,
    logs: Mapping[str, Log],
    keys: Mapping[tuple[str, str], str],
    looks: Mapping[str, PlotStyle],
    hidden: Sequence[str] = (),
) -> dict[str, Any] | None:
    """What the page draws; None where no run has a curve. `keys` names techniques by (router, variant), of which those
    in `hidden` are drawn when they are asked for."""
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
        "hidden": list(hidden),
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
