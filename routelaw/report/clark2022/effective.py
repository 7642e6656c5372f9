"""Numbers in running text that follow from the law: cut-offs and effective parameter counts."""

from __future__ import annotations

import numpy as np

from routelaw.figures.cutoff_by_law import cutoff_of
from routelaw.figures.transfer import CORPORA
from routelaw.fitting import fit_law, select_points
from routelaw.laws import equivalence, get_law
from routelaw.report.clark2022 import printed
from routelaw.report.clark2022.coefficients import judge_share
from routelaw.report.clark2022.verdict import B, M, ResultTable
from routelaw.runs.table import RunTable

CUTOFF_TOLERANCE, EPC_TOLERANCE = 0.10, 0.02


def cutoffs(table: RunTable) -> ResultTable:
    cells, decades = [], []
    for router, label in printed.ROUTERS.items():
        fit = fit_law("saturated", select_points(table, router))
        value = printed.N_CUT[router]
        interval = cutoff_of(fit).interval
        decades.append(np.log10(interval.high / interval.low))
        by_print = equivalence.cutoff(fit.law, fit.law.row(_printed_params(router)))[0]
        ours = float(equivalence.cutoff(fit.law, fit.params_BP)[0])
        note = (
            "Follows from the coefficients, which differ in the third digit; the printed number lies well inside the "
            "interval."
        )
        more = {"scale": B, "share": CUTOFF_TOLERANCE}
        cells.append(
            judge_share("refitted", label, value, ours, low=interval.low, high=interval.high, note=note, **more)
        )
        note = "N_cut = 10^(−b/c) of coefficients printed with one to three digits: too coarse to give it."
        cells.append(judge_share("from the printed b and c", label, value, float(by_print), note=note, **more))
    rlr = fit_law("saturated", select_points(table, "rl-r"))
    smaller = 10.0 ** (-(rlr.params["b"] + 0.01) / rlr.params["c"])
    row, label = "refitted, |b| smaller by 0.01", printed.ROUTERS["rl-r"]
    note = "As far from print as N_cut itself; the point, that a hundredth of b is a decade of N_cut, stands."
    cells.append(judge_share(row, label, printed.N_CUT_SMALLER_B, smaller, share=CUTOFF_TOLERANCE, scale=B, note=note))
    return ResultTable(
        name="n_cut",
        title="N_cut: the size beyond which routing would stop helping",
        paper="section on routing for large N; appendix on coefficient sensitivity",
        convention="N_cut = 10^(−b/c) of the six-parameter optimum. Interval: 90 %, whole model sizes resampled, "
        "widened for their small number.",
        tolerance="Close: within 10 %.",
        cells=tuple(cells),
        reading=f"The intervals span {min(decades):.0f} to {max(decades):.0f} decades, and this is the uncertainty "
        "under one law. Under another law N_cut moves further or vanishes: see our table of N_cut under each law.",
    )


def effective_counts(table: RunTable) -> ResultTable:
    cells = []
    for target, value in printed.EPC_110M.items():
        fit = fit_law("bilinear", select_points(table, "s-base", target=target, include_dense=False))
        ours = float(equivalence.effective_params(fit.law, fit.params_BP, 110e6, 32)[0])
        row, convention = f"N = 110M, E = 32, {CORPORA[target]}", "S-BASE, bilinear law, dense runs left out"
        cells.append(judge_share(row, "EPC", value, ours, share=EPC_TOLERANCE, scale=M, convention=convention))
    alone, with_dense = (
        fit_law("saturated", select_points(table, "s-base", include_dense=dense)) for dense in (False, True)
    )
    ours, other = (float(equivalence.effective_params(f.law, f.params_BP, 5e6, 128)[0]) for f in (alone, with_dense))
    row, convention = "N = 5M, E = 128, Validation", "S-BASE, six-parameter law, dense runs left out"
    cells.append(judge_share(row, "EPC", printed.EPC_5M, ours, share=EPC_TOLERANCE, scale=M, convention=convention))
    return ResultTable(
        name="effective_parameters",
        title="Effective parameter counts",
        paper="appendix on transfer; section on bounded scaling",
        convention="N̄ solves L(N̄, 1) = L(N, E) under laws fitted to the S-BASE runs, the dense runs left out: "
        "bilinear for the corpora, six-parameter for the level curve.",
        tolerance="Close: within 2 %.",
        cells=tuple(cells),
        reading="The same routed model is worth very different dense models on different corpora. With the dense runs "
        f"in the fit, the last one is {other / M:.1f}M.",
    )


def _printed_params(router: str) -> dict[str, float]:
    return dict(zip(get_law("saturated").names, np.array(printed.SATURATED[router], dtype=float), strict=True))
