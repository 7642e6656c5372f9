"""The numbers behind a page: its table of all runs, the CSV files beside it, what `routelaw report --json` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from routelaw.files import write_atomically
from routelaw.fitting.intervals import effective_params
from routelaw.fitting.pairwise import TechniqueRanking
from routelaw.fitting.slopes import slopes_by_size
from routelaw.laws import equivalence
from routelaw.report.runs.analysis import Analysis
from routelaw.report.runs.data import RunRow
from routelaw.report.runs.sections import Source
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


def write_tables(rows: Sequence[RunRow], analysis: Analysis | None, folder: Path) -> list[str]:
    """Every table that has rows; returns the names of the files."""
    tables = {"runs": runs_frame(rows)}
    if analysis is not None:
        tables |= {
            "losses": pd.DataFrame({**asdict(model), "gain": model.gain} for model in analysis.pairwise.models),
            "pairwise": pairs_frame(analysis.pairwise),
            "laws": laws_frame(analysis),
            "parameters": parameters_frame(analysis),
            "effective": effective_frame(analysis),
            "slopes": slopes_frame(analysis),
        }
    written = []
    for name, table in tables.items():
        if len(table):
            write_atomically(table.to_csv(index=False, lineterminator="\n").encode(), folder / f"{name}.csv")
            written.append(f"{name}.csv")
    return written


def pairs_frame(ranking: TechniqueRanking) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "first": pair.first,
            "second": pair.second,
            "models": pair.models,
            "first_lower": pair.wins,
            "sizes": pair.sizes,
            "lead_log10": pair.lead,
            **_low_high(pair.interval),
            "probability_first_better": pair.probability,
            "rests_on": pair.by,
            "verdict": pair.verdict,
        }
        for pair in ranking.pairs.values()
    )


def _low_high(ends: Sequence[float | None] | None) -> dict[str, float | None]:
    return dict(zip(("low", "high"), ends or (None, None), strict=True))


def laws_frame(analysis: Analysis) -> pd.DataFrame:
    records = []
    for key, rows in analysis.ranked.items():
        for row in rows:
            errors = row.validation.errors
            largest = {"largest_size_out": errors.pop("largest_size_out")}
            law = {"technique": key, "law": row.fit.law.name, "parameters": len(row.fit.law.parameters)}
            law |= {"points": len(row.fit.points), "status": row.fit.status, **errors, **_low_high(row.interval)}
            records.append({**law, **largest, "clearly_worse_than_best": row.clearly_worse})
    return pd.DataFrame(records)


def parameters_frame(analysis: Analysis) -> pd.DataFrame:
    """Parameters of every law and technique; intervals are those of the selected law."""
    records = []
    for key, rows in analysis.ranked.items():
        for row in rows:
            judged = analysis.judged.get(key)
            intervals = judged.intervals if judged and judged.fit is row.fit else {}
            for parameter in row.fit.law.parameters:
                name, interval = parameter.name, intervals.get(parameter.name)
                values = {
                    "parameter": name,
                    "value": row.fit.params[name],
                    **_low_high(interval.ends if interval else None),
                }
                records.append({"technique": key, "law": row.fit.law.name, **values, "meaning": parameter.meaning})
    return pd.DataFrame(records)


def effective_frame(analysis: Analysis) -> pd.DataFrame:
    """Effective size of every model under the selected law, with its interval where there is one."""
    records = []
    for key, judged in analysis.judged.items():
        points = judged.fit.points.where(judged.fit.points.x["experts"] > 1)
        for size, active, experts in zip(points.size, points.x["active_params"], points.x["experts"], strict=True):
            effective = float(equivalence.effective_params(judged.fit.law, judged.fit.params_BP, active, experts)[0])
            quantity = effective_params(judged.fit.law, active, experts)
            ends = judged.draws.interval(quantity, judged.level).ends if judged.draws else None
            model = {"technique": key, "size": size, "active_params": active, "experts": experts}
            records.append({**model, "effective_params": effective, **_low_high(ends)})
    return pd.DataFrame(records).replace([np.inf, -np.inf], np.nan)


def slopes_frame(analysis: Analysis) -> pd.DataFrame:
    return pd.DataFrame(
        {"technique": key, "size": size, "active_params": active, "b": slope}
        for key, points in analysis.points.items()
        for size, active, slope in slopes_by_size(points)
    )


def summary_of(path: str, sources: Sequence[Source]) -> dict[str, Any]:
    return {"source": path, "sources": {source.report_data.name: _of(source) for source in sources}}


def _of(source: Source) -> dict[str, Any]:
    analysis = source.analysis
    content: dict[str, Any] = {
        "target": source.target,
        "runs": len(source.rows),
        "statuses": dict(Counter(row.status for row in source.rows)),
        "failures": {row.run_id: row.reason for row in source.rows if row.reason},
        "excluded": list(source.report_data.excluded),
        "tables": [source.address("tables", name) for name in source.tables],
        "figures": [source.address("figures", name) for name in source.figures],
    }
    if source.studies:
        content["studies"] = [study.as_dict() for study in source.studies]
    if analysis is None:
        return content
    return content | {
        "techniques": {key: t.label for key, t in analysis.techniques.items()},
        "law": analysis.law.name if analysis.law else None,
        "law_because": analysis.why,
        "fits": {key: judged.as_dict() for key, judged in analysis.judged.items()},
        "no_law": dict(analysis.refusals),
        "leave_size_out": {
            key: {row.fit.law.name: row.validation.leave_size_out for row in rows}
            for key, rows in analysis.ranked.items()
        },
        "order": analysis.pairwise.order,
        "pairwise": _pairs(analysis.pairwise),
        "best_gain": _gains(analysis.pairwise),
    }


def _pairs(ranking: TechniqueRanking) -> list[dict[str, Any]]:
    return [
        {
            "first": pair.first,
            "second": pair.second,
            "models": pair.models,
            "first_lower": pair.wins,
            "lead_log10": pair.lead,
            "interval": pair.interval,
            "probability": pair.probability,
            "verdict": pair.verdict,
        }
        for pair in ranking.pairs.values()
        if pair.models
    ]


def _gains(ranking: TechniqueRanking) -> dict[str, dict[str, float]]:
    """technique -> size -> the largest share of the dense loss that it takes off."""
    gains: dict[str, dict[str, float]] = {}
    for model in ranking.models:
        if model.gain is not None:
            sizes = gains.setdefault(model.technique, {})
            sizes[model.size] = max(model.gain, sizes.get(model.size, model.gain))
    return gains
