"""The paper's comparative statements, as far as the released losses decide them.

A statement about measured losses is counted over the models it speaks of. A statement about coefficients must hold in
at least 95 % of refits to resampled data, both when whole model sizes are resampled (the same ones for every router, so
that what routers share cancels) and when single runs are (which a coefficient read off a few expert counts needs). The
first alone would take the six sizes' common pattern in E for certain, the second alone what runs of one size share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from routelaw.fitting import fit_law, select_points
from routelaw.fitting.intervals import Draws, bootstrap, parameter_quantities
from routelaw.fitting.profile import profile_intervals
from routelaw.laws.law import Array
from routelaw.report.clark2022 import printed
from routelaw.report.clark2022.claims_on_laws import claims_on_laws
from routelaw.report.clark2022.verdict import HOLDS, NOT_SUPPORTED, PARTLY, Cell, ResultTable
from routelaw.runs.table import RunTable

SURE = 0.95
DRAWS = 400
PARAMS = {name: i for i, name in enumerate(printed.COEFFICIENTS)}


def claims(table: RunTable) -> ResultTable:
    cells = [*_claims_on_losses(table), *_claims_on_coefficients(table), *claims_on_laws(table)]
    return ResultTable(
        name="claims",
        title="Comparative statements",
        paper="introduction; comparative analysis; appendices on variations and transfer",
        convention="Last validation losses, K = 1, R = ½ unless K or R is what is compared. Statements about "
        "coefficients of the six-parameter law hold if they do in at least 95 % of refits, under both kinds of "
        "resampling.",
        tolerance="Close: within 10 %. “Not supported” means that the released losses do not establish it; not that "
        "it is false.",
        cells=tuple(cells),
        layout="list",
    )


def counted(statement: str, true: int, of: int, note: str, enough: float = 0.75) -> Cell:
    verdict = HOLDS if true == of else PARTLY if true >= enough * of else NOT_SUPPORTED
    return Cell(statement, "statement", true / of, verdict, note=f"{true} of {of} {note}")


def main_sweep(table: RunTable) -> pd.DataFrame:
    """Last validation loss by size and E (rows) and router (columns)."""
    frame = last_losses(table)
    frame = frame[(frame["variant"] == "") & (frame["k"] == 1)]
    frame = frame[(frame["router"] == "dense") | (frame["routing_frequency"] == 0.5)]
    return frame.pivot_table(index=["size", "experts"], columns="router", values="loss_validation")


def last_losses(table: RunTable) -> pd.DataFrame:
    frame = table.frame[table.frame["loss_validation"].notna()]
    return frame.sort_values("step", kind="stable").groupby("run_id", sort=False).tail(1)


def _claims_on_losses(table: RunTable) -> list[Cell]:
    losses = main_sweep(table)
    dense = losses["dense"].dropna().droplevel("experts")
    routed = losses[list(printed.ROUTERS)].stack().dropna()
    better = routed < dense.loc[routed.index.get_level_values("size")].to_numpy()
    cells = [
        counted(
            "Routing improves on the dense model at every size",
            int(better.to_numpy().sum()),
            better.size,
            "routed models do.",
        )
    ]
    for one, other in (("s-base", "hash"), ("rl-r", "hash"), ("s-base", "rl-r")):
        gap = (losses[other] - losses[one]).dropna()
        lost = gap[gap <= 0].index.get_level_values("size")
        where = ", ".join(f"{(lost == size).sum()} at {size}" for size in printed.SIZES if (lost == size).any())
        statement = f"{printed.ROUTERS[one]} has the lower loss than {printed.ROUTERS[other]} at equal N and E"
        cells.append(
            counted(statement, int((gap > 0).sum()), gap.size, f"pairs.{f' Not so: {where}.' if where else ''}")
        )
    return [*cells, *_claims_on_variants(table)]


def _claims_on_variants(table: RunTable) -> list[Cell]:
    frame = last_losses(table)
    frame = frame[frame["variant"] == ""]
    half = frame["routing_frequency"] == 0.5
    by_k = frame[(frame["router"] == "s-base") & half].pivot_table(
        index=["size", "experts"], columns="k", values="loss_validation"
    )
    steps = [(by_k[high] < by_k[low])[by_k[high].notna()] for low, high in ((1, 2), (2, 4))]
    falls = pd.concat(steps)
    cells = [counted("More experts per token always lower the loss", int(falls.sum()), falls.size, "doublings of K.")]
    for router, statement, low, high in (
        ("s-base", "S-BASE loses when fewer layers are routed: R = ¼ against ½", 0.25, 0.5),
        ("s-base", "S-BASE gains from routing every layer: R = 1 against ½", 0.5, 1.0),
        ("hash", "HASH does not gain from routing every layer: R = 1 against ½", 1.0, 0.5),
    ):
        by_r = frame[(frame["router"] == router) & (frame["k"] == 1)].pivot_table(
            index=["size", "experts"], columns="routing_frequency", values="loss_validation"
        )
        pairs = by_r[[low, high]].dropna()
        cells.append(counted(statement, int((pairs[high] < pairs[low]).sum()), len(pairs), "pairs at 25M and 370M."))
    return cells


def _claims_on_coefficients(table: RunTable) -> list[Cell]:
    resampled = {
        router: _resamples(table, router, seed) for seed, router in enumerate(printed.ROUTERS)
    }  # router → (sizes resampled, runs resampled)
    compare = partial(_shares, resampled)
    slope_small = _slope_at(16_527_360)
    return [
        _decided("Routing helps less as models grow: c > 0 for all three", compare(
            lambda p: np.logical_and.reduce([_of(p[r], "c") > 0 for r in printed.ROUTERS]))),
        _decided("The interaction c is lowest for S-BASE", compare(_lowest("c", "s-base"))),
        _decided("HASH and RL-R have a larger E_max than S-BASE", compare(_lowest("e_max", "s-base")),
            _overlap(resampled)),
        _decided("HASH has the largest E_start", compare(lambda p: np.logical_and(
            _of(p["hash"], "e_start") > _of(p["s-base"], "e_start"),
            _of(p["hash"], "e_start") > _of(p["rl-r"], "e_start")))),
        _decided("N_cut is largest for S-BASE", compare(lambda p: np.logical_and(
            _log_cut(p["s-base"]) > _log_cut(p["rl-r"]), _log_cut(p["s-base"]) > _log_cut(p["hash"])))),
        _decided("At 15M, b + c·log N is steeper for S-BASE and RL-R than for HASH", compare(lambda p: np.logical_and(
            slope_small(p["s-base"]) < slope_small(p["hash"]), slope_small(p["rl-r"]) < slope_small(p["hash"]))),
            "The slopes fitted to 15M alone do order so (table of b(N)); the law's b is a slope in log Ê, and HASH's "
            "larger "
            "E_start stretches it."),
    ]  # fmt: skip


def _resamples(table: RunTable, router: str, seed: int) -> tuple[Draws, Draws]:
    fit = fit_law("saturated", select_points(table, router))
    # One seed for all routers pairs the sizes drawn; runs of different routers are independent, and so are their seeds.
    return bootstrap(fit, draws=DRAWS, seed=0), bootstrap(fit, "case-bootstrap", draws=DRAWS, seed=1 + seed)


def _shares(
    resampled: dict[str, tuple[Draws, Draws]], statement: Callable[[dict[str, Array]], Array]
) -> tuple[float, float]:
    sizes, runs = (float(np.mean(statement({r: d[i].params_RP for r, d in resampled.items()}))) for i in (0, 1))
    return sizes, runs


def _decided(statement: str, shares: tuple[float, float], remark: str = "") -> Cell:
    by_size, by_run = shares
    verdict = HOLDS if min(shares) >= SURE else NOT_SUPPORTED
    note = (
        f"True in {by_size:.1%} of refits to resampled sizes and in {by_run:.1%} of refits to resampled runs. {remark}"
    )
    return Cell(statement, "statement", min(shares), verdict, note=note.strip())


def _overlap(resampled: dict[str, tuple[Draws, Draws]]) -> str:
    spans = []
    for router, (draws, _) in resampled.items():
        e_max = parameter_quantities(draws.fit.law)[PARAMS["e_max"]]
        (interval,) = profile_intervals(draws.fit, [e_max], level=SURE)
        spans.append(f"{printed.ROUTERS[router]} {interval.low:.0f} to {interval.high:.0f}")
    return f"Profile intervals of E_max (95 %): {', '.join(spans)}."


def _of(params_RP: Array, name: str) -> Array:
    return params_RP[:, PARAMS[name]]


def _lowest(name: str, router: str) -> Callable[[dict[str, Array]], Array]:
    others = [r for r in printed.ROUTERS if r != router]
    return lambda p: np.logical_and.reduce([_of(p[router], name) < _of(p[r], name) for r in others])


def _log_cut(params_RP: Array) -> Array:
    """Where c ≤ 0 routing never stops helping."""
    b_R, c_R = _of(params_RP, "b"), _of(params_RP, "c")
    return np.where(c_R > 0, -b_R / np.where(c_R > 0, c_R, 1.0), np.inf)


def _slope_at(active_params: float) -> Callable[[Array], Array]:
    return lambda params_RP: _of(params_RP, "b") + _of(params_RP, "c") * np.log10(active_params)
