"""Recommendation 4: how many experts per token (K), and in what share of the blocks (R)?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd

from routelaw.fitting.advice.result import AdviceTable, Recommendation, listed, shown
from routelaw.fitting.advice.runs import AdviceRuns, share_added
from routelaw.fitting.claims import FAILS, HOLDS, OPEN, Claim, Effect, Outcome, weakest
from routelaw.fitting.matched_runs import NoiseOf, mean_effect
from routelaw.fitting.noise import NoiseFloor

TITLE = "K and R"
PAPER = "Use K=1 experts. Route layers at frequency 0.5 ≤ R ≤ 1; lower frequency reduces performance."
SHOWN = 0.005
"""The least percentage that is not written as zero."""
EffectOf = Callable[[pd.DataFrame, float], Effect]
"""The mean of gaps in log10 L, with an interval of a level."""
NEARLY_HALF = 0.45
"""With an odd number of blocks, one less than half of them is a frequency of nearly a half."""


def k_and_r(runs: AdviceRuns) -> Recommendation:
    claims = (
        Claim("k one", "On average, more than one expert per token raises the loss at equal FLOPs",
              one_expert_on_average, PAPER, quantity="mean excess of K > 1, % of the loss"),
        Claim("k front", "K = 1 is on the front at every E: no larger K is lower at equal FLOPs", one_expert, PAPER,
              quantity="least mean excess of more experts per token, % of the loss"),
        Claim("low r", "Routing fewer than half of the blocks raises the loss", fewer_blocks, PAPER,
              quantity="least mean excess over R = 1/2 or more, % of the loss"),
        Claim("r range", f"Between R = 1/2 and R = 1 the loss differs by less than {runs.gain:g} %", same_range, PAPER,
              quantity="R = 1 over R = 1/2 where they differ most, % of the loss"),
    )  # fmt: skip
    excess, gaps = k_excess(runs), r_gaps(runs)
    by_k = _grouped(runs, excess, ["router", "k", "experts"], partial(_line_effect, runs))
    by_r = _grouped(runs, gaps, ["router", "blocks", "routing_frequency"], partial(_frequency_effect, runs))
    tables = []
    if by_k:
        rows = [[r["router"], str(r["k"]), str(r["experts"]), str(r["pairs"]), shown(r["effect"], "+")] for r in by_k]
        title = "K against K = 1 at equal FLOPs per token: positive where more experts per token are worse"
        tables.append(AdviceTable(title, ["router", "K", "E", "models", "excess"], rows))
    if by_r:
        rows = [
            [r["router"], r["blocks"], f"{r['routing_frequency']:.3g}", str(r["pairs"]), shown(r["effect"], "+")]
            for r in by_r
        ]
        title = f"R against R = {_reference(runs):.3g}: positive where it is worse"
        tables.append(AdviceTable(title, ["router", "blocks routed", "R", "pairs", "excess"], rows))
    return Recommendation(
        4,
        TITLE,
        PAPER,
        tuple(claim(runs) for claim in claims),
        tuple(tables),
        tuple(_remarks(by_k, by_r)),
        {"k": [_plain(r) for r in by_k], "routing_frequency": [_plain(r) for r in by_r]},
        decided_by=("k one", "low r"),
    )


def k_excess(runs: AdviceRuns) -> pd.DataFrame:
    """Of every model with K > 1: log10 of its loss over that of K = 1 at equal FLOPs per token, E and R, on the line
    between sizes in log-log; only where that line has both ends."""
    rows: list[pd.DataFrame] = []
    routed = runs.routed[runs.routed["flops_per_token"].notna()]
    for _, own in routed.groupby(["router", "experts", "routing_frequency"], sort=False):
        line = own[own["k"] == 1].sort_values("flops_per_token")
        x, y = np.log10(line["flops_per_token"].to_numpy()), line["log_loss"].to_numpy()
        more = own[own["k"] > 1]
        at = np.log10(more["flops_per_token"].to_numpy())
        if len(line) < 2:
            continue
        excess = more["log_loss"].to_numpy() - np.interp(at, x, y)
        rows.append(more.assign(gap=excess)[(at >= x[0]) & (at <= x[-1])])
    columns = ["router", "k", "experts", "size", "routing_frequency", "gap"]
    return pd.concat(rows)[columns] if rows else pd.DataFrame(columns=columns)


def line_noise(runs: AdviceRuns, size: str) -> NoiseFloor | None:
    """The noise of a run about the line of K = 1: that of seeds or, if that is wider, the scatter of four sizes or more
    about a parabola in log F."""
    noise, (scatter, freedom) = runs.matched.noise(size), _line_scatter(runs)
    return noise if noise is None or scatter <= noise.sd else replace(noise, sd=scatter, freedom=freedom)


@lru_cache(maxsize=1)
def _line_scatter(runs: AdviceRuns) -> tuple[float, int]:
    """Standard deviation in log10 L, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    one = runs.routed[(runs.routed["k"] == 1) & runs.routed["flops_per_token"].notna()]
    for _, own in one.groupby(["router", "experts", "routing_frequency"]):
        if len(own) > 3:
            x, y = np.log10(own["flops_per_token"].to_numpy()), own["log_loss"].to_numpy()
            residual = y - np.polyval(np.polyfit(x, y, 2), x)
            squares, freedom = squares + float((residual**2).sum()), freedom + len(own) - 3
    return (float(np.sqrt(squares / freedom)) if freedom else 0.0), freedom


def r_gaps(runs: AdviceRuns) -> pd.DataFrame:
    """Of every model with another R than the reference, of the usual K: log10 of its loss over that of the reference at
    equal size and E."""
    rows = runs.routed[runs.routed["k"] == runs.usual.k]
    key, reference = ["router", "size", "experts"], _reference(runs)
    is_reference = np.isclose(rows["routing_frequency"], reference)
    base = rows[is_reference].set_index(key)["log_loss"]
    others = rows[~is_reference]
    gaps = others["log_loss"] - base.reindex(pd.MultiIndex.from_frame(others[key])).to_numpy()
    found = others.assign(gap=gaps)[gaps.notna()]
    blocks = np.where(found["routing_frequency"] >= 1, "all", np.where(_single_block(runs, found), "one", "some"))
    return found.assign(blocks=blocks)


def _reference(runs: AdviceRuns) -> float:
    """The usual R if it is at least a half, else the smallest that is."""
    usual = runs.usual.routing_frequency
    enough = [float(r) for r in runs.routed["routing_frequency"].unique() if r >= NEARLY_HALF]
    return usual if usual >= NEARLY_HALF or not enough else min(enough)


def _single_block(runs: AdviceRuns, found: pd.DataFrame) -> pd.Series:
    """Where R times the number of blocks is one: known where the table says how many blocks there are."""
    frame = runs.table.frame
    name = next((name for name in ("num_blocks", "blocks", "layers", "depth") if name in frame), None)
    if name is None:
        return pd.Series(False, index=found.index)
    blocks = pd.to_numeric(frame[name], errors="coerce").groupby(frame["size"]).first()
    return (found["routing_frequency"] * blocks.reindex(found["size"]).to_numpy()).round() == 1


def _effect(group: pd.DataFrame, noise: NoiseOf, level: float) -> Effect:
    return mean_effect(group["gap"].to_numpy(), list(group["size"]), noise, level=level)


def _frequency_effect(runs: AdviceRuns, group: pd.DataFrame, level: float) -> Effect:
    return _effect(group, runs.matched.noise, level)


def _line_effect(runs: AdviceRuns, group: pd.DataFrame, level: float) -> Effect:
    effect = _effect(group, partial(line_noise, runs), level)
    if all(line_noise(runs, size) is runs.matched.noise(size) for size in group["size"]):
        return effect
    return replace(effect, basis=effect.basis.replace("seed noise", "the scatter of K = 1 about a smooth curve"))


def one_expert_on_average(runs: AdviceRuns) -> Outcome:
    """The mean excess of all models with K > 1 over the line through K = 1 models of other sizes at the same FLOPs per
    token, E and R. Holds if its interval lies above zero, does not hold if below."""
    found = k_excess(runs)
    if found.empty:
        return _no_k(runs)
    effect = share_added(_line_effect(runs, found, runs.level))
    worse = int((found["gap"] > 0).sum())
    why = f"{shown(effect, '+')} over K = 1; {worse} of {len(found)} models with K > 1 lie above its line."
    return effect, effect.verdict(), why


def _no_k(runs: AdviceRuns) -> str:
    seen = sorted({int(k) for k in runs.routed["k"]})
    if len(seen) < 2:
        return f"All routed runs have K = {seen[0]}." if seen else "There is no finished routed run."
    if runs.routed["flops_per_token"].isna().all():
        return "The table has no flops_per_token, so K cannot be compared at equal FLOPs."
    return "No model with K > 1 lies between K = 1 models of its E in FLOPs per token: a larger size is missing."


def one_expert(runs: AdviceRuns) -> Outcome:
    """Models with K > 1 against the line through K = 1 models of other sizes at the same FLOPs per token, E and R.
    Holds if the lowest mean excess of a router, K and E lies above zero; does not hold if one lies below with an
    interval that allows for their number."""
    found = k_excess(runs)
    if found.empty:
        return _no_k(runs)
    groups = {f"{r}, K = {k}, E = {e}": g for (r, k, e), g in found.groupby(["router", "k", "experts"], sort=False)}
    name, effect = weakest({name: partial(_line_effect, runs, group) for name, group in groups.items()}, runs.level)
    excess = share_added(effect)
    return excess, effect.verdict(), f"Least for {name}: {shown(excess, '+')} over K = 1 at equal FLOPs."


def fewer_blocks(runs: AdviceRuns) -> Outcome:
    """Models with R below a half against the reference, R = 1/2 or more, at equal size and E. Holds if the lowest mean
    excess of a router and R lies above zero; does not hold if one lies below with an interval that allows for their
    number."""
    found = r_gaps(runs)
    found = found[found["routing_frequency"] < NEARLY_HALF]
    if found.empty:
        return _one_frequency(runs, "below a half")
    groups = {f"{r}, R = {f:.3g}": g for (r, f), g in found.groupby(["router", "routing_frequency"], sort=False)}
    name, effect = weakest(
        {name: partial(_frequency_effect, runs, group) for name, group in groups.items()}, runs.level
    )
    excess, worse = share_added(effect), int((found["gap"] > 0).sum())
    why = (
        f"Least for {name}: {shown(excess, '+')} over R = {_reference(runs):.3g}; {worse} of {len(found)} pairs agree."
    )
    return excess, effect.verdict(), why


def same_range(runs: AdviceRuns) -> Outcome:
    """Models with every block routed against half of them, at equal size and E. Holds if the interval of every router's
    mean difference lies within the gain that counts as small, does not hold if one lies outside, with an interval that
    allows for their number."""
    found = r_gaps(runs)
    found = found[found["routing_frequency"] >= 1]
    if found.empty or _reference(runs) >= 1:
        return _one_frequency(runs, "of 1 beside 1/2")
    groups = {str(router): group for router, group in found.groupby("router", sort=False)}
    wide = 1 - (1 - runs.level) / len(groups)
    usual = {router: share_added(_frequency_effect(runs, group, runs.level)) for router, group in groups.items()}
    widest = max(usual, key=lambda router: max(abs(usual[router].low), abs(usual[router].high)))
    means = listed(f"{router} {shown(effect, '+')}" for router, effect in usual.items())
    why = f"R = 1 over R = {_reference(runs):.3g}: {means}."
    allowing = [share_added(_frequency_effect(runs, group, wide)) for group in groups.values()]
    if any(abs(e.value) > runs.gain and (e.low > runs.gain or e.high < -runs.gain) for e in allowing):
        return usual[widest], FAILS, why
    within = all(-runs.gain < e.low and e.high < runs.gain for e in usual.values())
    return usual[widest], HOLDS if within else OPEN, why


def _one_frequency(runs: AdviceRuns, which: str) -> str:
    seen = sorted({round(float(r), 3) for r in runs.routed["routing_frequency"]})
    if len(seen) < 2:
        return f"All routed runs have R = {seen[0]:g}." if seen else "There is no finished routed run."
    return f"No routed model has an R {which} at a size and E that were trained with the usual one."


def _grouped(runs: AdviceRuns, found: pd.DataFrame, by: list[str], effect_of: EffectOf) -> list[dict[str, Any]]:
    rows = []
    for key, group in found.sort_values(by).groupby(by, sort=False):
        effect = share_added(effect_of(group, runs.level))
        rows.append({**dict(zip(by, key, strict=True)), "pairs": len(group), "effect": effect,
                     "gaps_percent": [100 * (10.0**gap - 1) for gap in group["gap"]]})  # fmt: skip
    return rows


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    effect = row["effect"]
    return {**row, "effect": {"value": effect.value, "low": effect.low, "high": effect.high, "basis": effect.basis}}


def _remarks(by_k: list[dict[str, Any]], by_r: list[dict[str, Any]]) -> list[str]:
    ahead = [r for r in by_k if r["effect"].value < -SHOWN]
    said = listed(f"K = {r['k']} at E = {r['experts']} ({r['router']}, {r['effect'].value:+.2f} %)" for r in ahead)
    sentences = [f"On average more experts per token are ahead at equal FLOPs for {said}."] if ahead else []
    low = [r for r in by_r if r["routing_frequency"] < NEARLY_HALF and r["effect"].value < -SHOWN]
    if low:
        said = listed(f"{r['router']} R = {r['routing_frequency']:.3g} ({r['effect'].value:+.2f} %)" for r in low)
        sentences.append(f"Fewer routed blocks are ahead on average for {said}.")
    return sentences
