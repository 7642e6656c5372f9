"""What a report found, for machines: what `routelaw report --json` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from routelaw.report.contest import Contest
from routelaw.report.sections import Source


def summary_of(path: str, sources: Sequence[Source]) -> dict[str, Any]:
    return {"source": path, "sources": {source.report_data.name: _of(source) for source in sources}}


def _of(source: Source) -> dict[str, Any]:
    analysis, contest = source.analysis, source.contest
    told: dict[str, Any] = {
        "target": source.target,
        "runs": len(source.rows),
        "statuses": dict(Counter(row.status for row in source.rows)),
        "failures": {row.run_id: row.reason for row in source.rows if row.reason},
        "excluded": list(source.report_data.excluded),
        "tables": [source.address("tables", name) for name in source.tables],
        "figures": [source.address("figures", name) for name in source.figures],
    }
    if analysis is None or contest is None:
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
        "order": contest.order,
        "duels": _duels(contest),
        "best_gain": _gains(contest),
    }


def _duels(contest: Contest) -> list[dict[str, Any]]:
    return [
        {
            "first": duel.first,
            "second": duel.second,
            "models": duel.cells,
            "first_lower": duel.wins,
            "lead_log10": duel.lead,
            "interval": duel.interval,
            "probability": duel.probability,
            "verdict": duel.verdict,
        }
        for duel in contest.duels.values()
        if duel.cells
    ]


def _gains(contest: Contest) -> dict[str, dict[str, float]]:
    """technique -> size -> the largest share of the dense loss that it takes off."""
    gains: dict[str, dict[str, float]] = {}
    for cell in contest.cells:
        if cell.gain is not None:
            sizes = gains.setdefault(cell.technique, {})
            sizes[cell.size] = max(cell.gain, sizes.get(cell.size, cell.gain))
    return gains
