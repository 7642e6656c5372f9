"""The numbers behind a page as CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from routelaw.files import write_atomically
from routelaw.fitting.fit import Fit
from routelaw.fitting.intervals import effective_params
from routelaw.fitting.pairwise import TechniqueRanking
from routelaw.fitting.slopes import slopes_by_size
from routelaw.laws import equivalence
from routelaw.report.analysis import Analysis
from routelaw.report.run_rows import RunRow
from routelaw.report.run_table import runs_frame


def write_tables(rows: Sequence[RunRow], analysis: Analysis | None, folder: Path) -> list[str]:
    """Every table that has rows; returns the names of the files."""
    tables = {"runs": runs_frame(rows)}
    if analysis is not None:
        tables |= {
            "losses": pd.DataFrame({**asdict(model), "gain": model.gain} for model in analysis.pairwise.models),
            "duels": pairs_frame(analysis.pairwise),
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
            "low": pair.interval[0] if pair.interval else None,
            "high": pair.interval[1] if pair.interval else None,
            "probability_first_better": pair.probability,
            "rests_on": pair.by,
            "verdict": pair.verdict,
        }
        for pair in ranking.pairs.values()
    )


def laws_frame(analysis: Analysis) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "technique": key,
            "law": row.fit.law.name,
            "parameters": len(row.fit.law.parameters),
            "points": len(row.fit.points),
            "status": row.fit.status,
            "in_sample": row.validation.in_sample,
            "leave_one_out": row.validation.leave_one_out,
            "leave_size_out": row.validation.leave_size_out,
            "low": row.interval[0] if row.interval else None,
            "high": row.interval[1] if row.interval else None,
            "largest_size_out": row.validation.largest_size_out,
            "clearly_worse_than_best": row.clearly_worse,
        }
        for key, rows in analysis.ranked.items()
        for row in rows
    )


def parameters_frame(analysis: Analysis) -> pd.DataFrame:
    """Parameters of every law and technique; intervals are those of the selected law."""
    records = []
    for key, rows in analysis.ranked.items():
        for row in rows:
            judged = analysis.judged.get(key)
            intervals = judged.intervals if judged and judged.fit is row.fit else {}
            for parameter in row.fit.law.parameters:
                ends = intervals.get(parameter.name)
                records.append(
                    {
                        "technique": key,
                        "law": row.fit.law.name,
                        "parameter": parameter.name,
                        "value": row.fit.params[parameter.name],
                        "low": ends.low if ends and not ends.open_low else None,
                        "high": ends.high if ends and not ends.open_high else None,
                        "meaning": parameter.meaning,
                    }
                )
    return pd.DataFrame(records)


def effective_frame(analysis: Analysis) -> pd.DataFrame:
    """Effective size of every model under the selected law, with its interval where there is one."""
    records = []
    for key, judged in analysis.judged.items():
        for size, active, experts in _models(judged.fit):
            effective = float(equivalence.effective_params(judged.fit.law, judged.fit.params_BP, active, experts)[0])
            quantity = effective_params(judged.fit.law, active, experts)
            ends = judged.draws.interval(quantity, judged.level) if judged.draws else None
            records.append(
                {
                    "technique": key,
                    "size": size,
                    "active_params": active,
                    "experts": experts,
                    "effective_params": effective,
                    "low": ends.low if ends and not ends.open_low else None,
                    "high": ends.high if ends and not ends.open_high else None,
                }
            )
    return pd.DataFrame(records).replace([np.inf, -np.inf], np.nan)


def _models(fit: Fit) -> list[tuple[str, float, float]]:
    points = fit.points.where(fit.points.x["experts"] > 1)
    return list(zip(points.size, points.x["active_params"], points.x["experts"], strict=True))


def slopes_frame(analysis: Analysis) -> pd.DataFrame:
    return pd.DataFrame(
        {"technique": key, "size": size, "active_params": active, "b": slope}
        for key, points in analysis.points.items()
        for size, active, slope in slopes_by_size(points)
    )
