"""The table of all runs, to sort and to filter in the page, and as a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from routelaw.report.run_rows import RunRow
from routelaw.specs.names import DENSE

COLUMNS = {
    "run_id": ("run", "text"),
    "source": ("source", "text"),
    "router": ("router", "text"),
    "variant": ("variant", "text"),
    "size": ("size", "size"),
    "experts": ("E", "number"),
    "k": ("K", "number"),
    "routing_frequency": ("R", "number"),
    "seed": ("seed", "number"),
    "tokens": ("tokens", "count"),
    "status": ("status", "text"),
    "losses": ("", "loss"),
    "active_params": ("N", "count"),
    "total_params": ("P", "count"),
    "flops_per_token": ("FLOPs/token", "count"),
    "dropped": ("dropped", "share"),
    "seconds": ("time", "seconds"),
}
"""name -> (heading, how it is written). Losses stand in their place, one column each."""
ALWAYS = ("run_id", "router", "size", "experts", "seed", "status", "active_params")


def run_table_data(rows: Sequence[RunRow], target: str) -> dict[str, Any]:
    """Columns that no run has a value for are left out; filters are by what there is."""
    losses = list(dict.fromkeys(name for row in rows for name in row.losses))
    losses.sort(key=lambda name: name != target)
    columns = []
    for name, (heading, kind) in COLUMNS.items():
        if name == "losses":
            columns += [{"name": loss, "heading": _loss_heading(loss), "kind": "loss"} for loss in losses]
        elif name in ALWAYS or _tells_apart(rows, name):
            columns.append({"name": name, "heading": heading, "kind": kind})
    names = [column["name"] for column in columns]
    sizes = {row.size: row.active_params or 0.0 for row in rows if row.size}
    return {
        "columns": columns,
        "rows": [[_cell(row, name) for name in names] for row in rows],
        "reasons": {str(i): row.reason for i, row in enumerate(rows) if row.reason},
        "order": {"size": sorted(sizes, key=sizes.__getitem__)},
        "filters": [name for name in ("source", "router", "size", "status") if name in names],
    }


def runs_frame(rows: Sequence[RunRow]) -> pd.DataFrame:
    """The same, whole, for a CSV file."""
    names = [name for name in COLUMNS if name != "losses"]
    records = [{name: getattr(row, name) for name in names} | row.losses | {"reason": row.reason} for row in rows]
    return pd.DataFrame(records, columns=None if records else pd.Index([*names, "reason"]))


def _tells_apart(rows: Sequence[RunRow], name: str) -> bool:
    """A column that is the same throughout (K = 1 everywhere is not, it is a fact of the runs) or empty says little."""
    values = {getattr(row, name) for row in rows}
    if name in ("variant", "source"):
        return len(values) > 1 or bool(values - {"", "own"})
    return bool(values - {None, ""})


def _loss_heading(loss: str) -> str:
    return f"loss {loss.removeprefix('loss_').replace('_', ' ')}"


def _cell(row: RunRow, name: str) -> Any:
    if row.router == DENSE and name in ("k", "routing_frequency"):
        return None  # a table has to say something there; it means nothing
    value = row.losses.get(name) if name.startswith("loss_") else getattr(row, name)
    if isinstance(value, float):
        return float(f"{value:.6g}") if name.startswith("loss_") else value
    return value
