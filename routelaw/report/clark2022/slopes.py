"""b(N), the slope in experts of each size, with its hold-out errors; a(E), the slope in size of each expert count."""

from __future__ import annotations

import numpy as np

from routelaw.fitting import Fit, fit_law, select_points
from routelaw.fitting.validation import held_out_residuals
from routelaw.report.clark2022 import printed
from routelaw.report.clark2022.scaling import EXPERTS_OF_TABLES
from routelaw.report.clark2022.verdict import ResultTable, judge
from routelaw.runs.table import RunTable

SLOPE_TOLERANCE, ERROR_TOLERANCE = 0.001, 0.002


def expert_slopes(table: RunTable) -> ResultTable:
    cells = []
    for router, label in printed.ROUTERS.items():
        values = zip(printed.EXPERT_SLOPE[router], printed.EXPERT_SLOPE_ERROR[router], strict=True)
        for (heading, size), (slope, error) in zip(printed.EXPERT_SLOPE_COLUMNS.items(), values, strict=True):
            fit = fit_law("experts", select_points(table, router, sizes=[size], experts=EXPERTS_OF_TABLES))
            column = heading if heading == size else f"“{heading}” = {size}"
            note = (
                "No choice of E tried gives both the printed slope and the printed error at 15M."
                if size == "15M"
                else ""
            )
            cells.append(judge(f"{label} b", column, slope, fit.params["b"], tolerance=SLOPE_TOLERANCE, note=note))
            held_out = loss_error_left_out(fit)
            cells.append(judge(f"{label} error", column, error, held_out, tolerance=ERROR_TOLERANCE, note=note))
    literal = [
        fit_law("experts", select_points(table, router, sizes=["25M"], experts=EXPERTS_OF_TABLES)).params["b"]
        for router in printed.ROUTERS
    ]
    return ResultTable(
        name="expert_slopes",
        title="b(N): slope in log E at each size, with hold-out errors",
        paper="tab:alphas",
        convention="log L = b·log E + d fitted to one size at a time, E in {1, 4, 8, 32, 64, 128, 256, 512}, dense as "
        "E = 1. Hold-out error: every E left out in turn, root mean square of the difference in loss (nats). The "
        "column headed 25M is read as the 55M model.",
        tolerance="Close: slopes within 0.001, errors within 0.002.",
        cells=tuple(cells),
        reading="The models named 25M have slopes "
        + ", ".join(f"{b:.4f}".replace("-", "−") for b in literal)
        + f" ({', '.join(printed.ROUTERS.values())}), which is not what stands under that heading; the 55M models fit "
        f"slopes and "
        "errors alike. The slopes shrink with N for all three techniques.",
    )


def size_slopes(table: RunTable) -> ResultTable:
    cells = []
    for router, label in printed.ROUTERS.items():
        for experts, value in zip(printed.SIZE_SLOPE_EXPERTS, printed.SIZE_SLOPE[router], strict=True):
            fit = fit_law("dense", select_points(table, router, include_dense=False, experts=[experts]))
            odd = router == "s-base" and experts in (8, 256)
            note = "Out of line with its neighbours in print; ours is not." if odd else ""
            cells.append(judge(f"E = {experts}", label, value, -fit.params["a"], tolerance=SLOPE_TOLERANCE, note=note))
    return ResultTable(
        name="size_slopes",
        title="a(E): slope in log N at each expert count",
        paper="tab:all_alpha_ns",
        convention="log L = a·log N + d fitted to the released sizes of one E at a time; −a is shown, as in print.",
        tolerance="Close: within 0.001.",
        cells=tuple(cells),
    )


def loss_error_left_out(fit: Fit) -> float:
    """Root mean squared error in nats over points each left out in turn."""
    points = fit.points
    residual_N = held_out_residuals(fit, np.arange(len(points)))
    return float(np.sqrt(np.mean((10.0 ** (points.log_loss + residual_N) - points.loss) ** 2)))
