"""What a report found, for machines: what `routelaw report --json` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from routelaw.fitting.pairwise import TechniqueRanking
from routelaw.report.sections import Source


def summary_of(path: str, sources: Sequence[Source]) -> dict[str, Any]:
    return {"source": path, "sources": {source.report_data.name: _of(source) for source in sources}}


def _of(source: Source) -> dict[str, Any]:
    analysis = source.analysis
    told: dict[str, Any] = {
        "target": source.target,
        "runs": len(source.rows),
        "statuses": dict(Counter(row.status for row in source.rows)),
        "failures": {row.run_id: row.reason for row in source.rows if row.reason},
        "excluded": list(source.report_data.excluded),
        "tables": [source.address("tables", name) for name in source.tables],
        "figures": [source.address("figures", name) for name in source.figures],
    }
    if analysis is None:
        return told
    return told | {
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
        "duels": _pairs(analysis.pairwise),
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
