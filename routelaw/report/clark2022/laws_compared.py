"""Ours: which law predicts a size it has not seen, and what each law says about the limit of routing.

The numbers are those of the two figures that show the same, computed by the same functions.
"""

from __future__ import annotations

from collections.abc import Callable

from routelaw.figures.cutoff_by_law import cutoff_of
from routelaw.figures.law_ranking import competing_fits, ranking_errors
from routelaw.fitting.points import in_size_and_experts
from routelaw.fitting.validation import error_e4
from routelaw.laws import get_law
from routelaw.report.clark2022 import printed
from routelaw.report.clark2022.verdict import OURS, B, PrintedCell, ResultTable
from routelaw.runs.table import RunTable

COLUMNS = {"in sample": "in_sample", "leave-size-out": "leave_size_out", "1.3B held out": "largest_size_out"}
PAPERS_LAW = "saturated"


def ranking_of(router: str) -> Callable[[RunTable], ResultTable]:
    def build(table: RunTable) -> ResultTable:
        label = printed.ROUTERS[router]
        errors = {law: e for (law, of), e in ranking_errors(table).items() if of == router}
        ranked = sorted(errors, key=lambda law: errors[law]["leave_size_out"])
        best, papers = (errors[law]["leave_size_out"] for law in (ranked[0], PAPERS_LAW))
        cells = [
            PrintedCell(row_of(law), column, errors[law][name], OURS, scale=1e-4)
            for law in ranked
            for column, name in COLUMNS.items()
        ]
        return ResultTable(
            name=f"ranking_{router.replace('-', '_')}",
            title=f"Laws ranked by leave-size-out error: {label}",
            paper="",
            convention="Every size left out in turn and predicted from the others; all E from 1 (dense, seeds "
            "averaged) to 512; root mean squared error of log10 L. In parentheses: the number of parameters.",
            unit="1e-4",
            cells=tuple(cells),
            reading=f"{ranked[0]} does best on {label}: {error_e4(best)}e-4 against "
            f"{error_e4(papers)}e-4 for the paper's law ({PAPERS_LAW}).",
        )

    return build


def row_of(law: str) -> str:
    return f"{law} ({len(get_law(law).parameters)})"


def cutoff_by_law(table: RunTable) -> ResultTable:
    cells = []
    for (law, router), fit in competing_fits(table).items():
        # No interaction, no saturation, no floor: under the separable law routing helps all sizes alike.
        if not in_size_and_experts(fit.law) or law == "separable":
            continue
        cutoff = cutoff_of(fit)
        low, high = cutoff.interval.low, cutoff.interval.high
        cells.append(PrintedCell(law, printed.ROUTERS[router], cutoff.estimate, OURS, scale=B, low=low, high=high))
    return ResultTable(
        name="n_cut_by_law",
        title="N_cut under each law",
        paper="",
        convention="The size beyond which 64 experts no longer beat one. Interval: 90 %, whole model sizes resampled, "
        "widened for their small number. ∞: under this law routing never stops helping. The separable law is left "
        "out: it has no limit by construction.",
        cells=tuple(cells),
        reading="Laws that predict unseen sizes better than the paper's put N_cut further out, or nowhere. It is a "
        "property of the form that was assumed as much as of the models.",
    )
