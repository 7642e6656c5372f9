"""The tables of "Unified Scaling Laws for Routed Language Models" (Clark et al., 2022), recomputed from its release.

`BUILDERS` maps a table's name to the function that computes it, in the order of the page.
"""

from __future__ import annotations

from collections.abc import Callable

from routelaw.report.clark2022 import claims, coefficients, counts, effective, laws_compared, scaling
from routelaw.report.clark2022.verdict import ResultTable
from routelaw.runs.table import RunTable

Builder = Callable[[RunTable], ResultTable]

OF_THE_PAPER: dict[str, Builder] = {
    "dense_scaling": scaling.dense_scaling,
    "held_out_errors": scaling.held_out_errors,
    "saturated_optimum": coefficients.saturated_optimum,
    "saturation_held": coefficients.saturation_held,
    "bilinear": coefficients.bilinear,
    "expert_slopes": scaling.expert_slopes,
    "size_slopes": scaling.size_slopes,
    "transfer_hash": coefficients.transfer_of("hash"),
    "transfer_s_base": coefficients.transfer_of("s-base"),
    "transfer_rl_r": coefficients.transfer_of("rl-r"),
    "transfer_dense": coefficients.transfer_dense,
    "n_cut": effective.cutoffs,
    "effective_parameters": effective.effective_counts,
    "architectures": counts.architectures,
    "released_counts": counts.released_counts,
    "claims": claims.claims,
}
OURS: dict[str, Builder] = {
    "ranking_s_base": laws_compared.ranking_of("s-base"),
    "ranking_rl_r": laws_compared.ranking_of("rl-r"),
    "ranking_hash": laws_compared.ranking_of("hash"),
    "n_cut_by_law": laws_compared.cutoff_by_law,
}
BUILDERS: dict[str, Builder] = {**OF_THE_PAPER, **OURS}
TOGETHER: tuple[tuple[str, ...], ...] = (
    ("cutoff_by_law", "n_cut_by_law"),
    ("law_ranking", *(name for name in OURS if name.startswith("ranking_"))),
    ("claims",),
)
"""Figures and tables that share their computation, slowest first: one process does each group."""
