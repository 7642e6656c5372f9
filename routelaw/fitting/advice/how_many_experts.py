"""Recommendation 3: how many experts, and beyond which E does doubling them gain little?

Shapes: B parameter vectors, G expert counts of a grid.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from routelaw.fitting.advice.result import AdviceTable, Recommendation, listed, shown
from routelaw.fitting.advice.runs import AdviceRuns, share_taken_off
from routelaw.fitting.claims import Claim, Effect, Outcome, student
from routelaw.fitting.intervals import Quantity
from routelaw.fitting.matched_runs import mean_effect
from routelaw.laws.law import Array, Law

TITLE = "How many experts"
PAPER = "Target using E ∈ {64, 128} experts. Larger values will continue to improve, but with diminishing returns."
TARGET = (64, 128)
LOG2_EXPERTS = np.linspace(0.0, 14.0, 141)
"""Where a law's doublings are looked at: E from 1 to 16,384."""
MOST_EXPERTS = 2.0 ** LOG2_EXPERTS[-1]
MOST_ROUTERS = 4
"""Columns of the table; the numbers hold all routers."""


def how_many_experts(runs: AdviceRuns) -> Recommendation:
    gain, (low, high) = f"{runs.gain:g} %", TARGET
    mean = "mean gain of a doubling, % of the loss"
    claims = (
        Claim("gains up to", f"Up to E = {low} a doubling of E gains {gain} of the loss or more",
              partial(gains_enough, up_to=low), PAPER, quantity=f"{mean}, less {gain}"),
        Claim("still gains", f"Beyond E = {high} more experts still lower the loss",
              partial(still_gains, beyond=high), PAPER, quantity=mean),
        Claim("diminishing", "Returns diminish: the second half of the doublings gains less than the first",
              returns_diminish, PAPER, quantity="difference of the mean gains of a doubling, % of the loss"),
        Claim("little beyond", f"Beyond E = {high} a doubling gains less than {gain}",
              partial(gains_little, beyond=high), PAPER, quantity=f"{gain} less the {mean}"),
    )  # fmt: skip
    by_law, measured = _by_law(runs), _measured(runs)
    return Recommendation(
        3,
        TITLE,
        PAPER,
        tuple(claim(runs) for claim in claims),
        tuple(_tables(runs, by_law, measured)),
        tuple(_remarks(runs, by_law)),
        {"gain_percent": runs.gain, "beyond_by_law": by_law, "beyond_measured": measured, "doublings": _rows(runs)},
        decided_by=("gains up to", "still gains", "diminishing"),
    )


def steps(runs: AdviceRuns) -> pd.DataFrame:
    """Neighbouring expert counts of a router at a size: from, to, and the gain in log10 L of a doubling between."""
    rows: list[dict[str, Any]] = []
    for (router, size), own in runs.usual_routed.groupby(["router", "size"], sort=False):
        own = own.sort_values("experts")
        models = zip(own["experts"].tolist(), own["log_loss"].tolist(), own["seeds"].tolist(), strict=True)
        for (e, loss, seeds), (next_e, next_loss, next_seeds) in pairwise(models):
            doublings = math.log2(next_e / e)
            rows.append(
                {
                    "router": router,
                    "size": size,
                    "from": e,
                    "to": next_e,
                    "gain": (loss - next_loss) / doublings,
                    "variance": (1 / seeds + 1 / next_seeds) / doublings**2,
                    "doublings": doublings,
                }
            )
    return pd.DataFrame(rows, columns=["router", "size", "from", "to", "gain", "variance", "doublings"])


def _mean(runs: AdviceRuns, found: pd.DataFrame) -> Effect:
    """The mean gain of a doubling over routers and sizes, with the wider of the spread over sizes and the noise."""
    rows = found.assign(total=found["gain"] * found["doublings"]).groupby(["router", "size"], sort=False)
    totals = rows[["total", "doublings"]].sum().reset_index()
    # From the first E to the last is one difference of two runs, and its gain a doubling carries less of their noise.
    scale = float(totals["doublings"].min())
    gains = (totals["total"] / totals["doublings"] * scale).to_numpy()
    return mean_effect(gains, list(totals["size"]), runs.matched.noise, level=runs.level).scaled(1 / scale)


def gains_enough(runs: AdviceRuns, up_to: int) -> Outcome:
    """Measured gains of a doubling of E between neighbouring expert counts up to this one. Holds if the interval of
    their mean over sizes lies above the gain asked for, does not hold if below."""
    found = steps(runs)
    found = found[found["to"] <= up_to]
    if found.empty:
        return _none(runs, f"two expert counts up to E = {up_to}")
    effect = share_taken_off(_mean(runs, found))
    return _less(effect, runs.gain), effect.verdict(runs.gain), _mean_words(effect, found)


def gains_little(runs: AdviceRuns, beyond: int) -> Outcome:
    """Measured gains of a doubling beyond this E. Holds if the interval of their mean over sizes lies below the gain
    asked for, does not hold if above."""
    found = steps(runs)
    found = found[found["from"] >= beyond]
    if found.empty:
        return _none(runs, f"two expert counts from E = {beyond} on")
    effect = share_taken_off(_mean(runs, found))
    return _less(effect, runs.gain).scaled(-1), effect.verdict_below(runs.gain), _mean_words(effect, found)


def still_gains(runs: AdviceRuns, beyond: int) -> Outcome:
    """Measured gains of a doubling beyond this E. Holds if the interval of their mean over sizes lies above zero, does
    not hold if below."""
    found = steps(runs)
    found = found[found["from"] >= beyond]
    if found.empty:
        return _none(runs, f"two expert counts from E = {beyond} on")
    effect = share_taken_off(_mean(runs, found))
    lower = int((found["gain"] > 0).sum())
    why = f"It falls in {lower} of {len(found)} steps from one E to the next, by {shown(effect)} a doubling."
    return effect, effect.verdict(), why


def returns_diminish(runs: AdviceRuns) -> Outcome:
    """At each size and router the doublings of E are halved at the middle of those trained (in log E): the mean gain of
    the first half less that of the second. Holds if the interval of the mean lies above zero, does not hold if
    below."""
    found = steps(runs)
    differences, sizes, scales = [], [], []
    for (_, size), own in found.groupby(["router", "size"], sort=False):
        middle = math.sqrt(own["from"].min() * own["to"].max())
        first, second = own[own["to"] <= middle * 1.001], own[own["from"] >= middle * 0.999]
        if len(first) and len(second):
            gains = (np.average(half["gain"], weights=half["doublings"]) for half in (first, second))
            differences.append(float(np.subtract(*gains)))
            sizes.append(str(size))
            a, b = 1 / first["doublings"].sum(), 1 / second["doublings"].sum()
            scales.append(math.sqrt(2 / (a**2 + (a + b) ** 2 + b**2)))  # the run in the middle counts in both halves
    if not differences:
        return _none(runs, "three expert counts")
    scale = min(scales)
    effect = mean_effect(scale * np.array(differences), sizes, runs.matched.noise, level=runs.level)
    effect = share_taken_off(effect.scaled(1 / scale))
    return effect, effect.verdict(), f"By {shown(effect)} of the loss a doubling, over {len(sizes)} series of E."


def _none(runs: AdviceRuns, what: str) -> str:
    if not runs.experts:
        return "There is no finished routed run."
    return f"No router was trained with {what} at one size; the most is E = {max(runs.experts)}."


def _less(effect: Effect, amount: float) -> Effect:
    return Effect(effect.value - amount, effect.low - amount, effect.high - amount, effect.basis)


def _mean_words(effect: Effect, found: pd.DataFrame) -> str:
    sizes = found["size"].nunique()
    return f"On average it gains {shown(effect)} ({len(found)} steps at {sizes} size{'s' * (sizes > 1)})."


def last_worthwhile(law: Law, active_params: float, gain: float) -> Quantity:
    """log10 of the E beyond which no doubling gains this percentage of the loss, under a law; 1 where none does."""

    def of(params_BP: Array) -> Array:
        x = {"active_params": np.full(LOG2_EXPERTS.size, active_params), "experts": 2.0**LOG2_EXPERTS}
        further = {**x, "experts": 2 * x["experts"]}
        drop_BG = law.log_loss(params_BP, x) - law.log_loss(params_BP, further)
        over_BG = drop_BG + math.log10(1 - gain / 100)
        enough_BG = over_BG >= 0
        last_B = LOG2_EXPERTS.size - 1 - enough_BG[:, ::-1].argmax(1)
        next_B = np.minimum(last_B + 1, LOG2_EXPERTS.size - 1)
        rows = np.arange(len(over_BG))
        here_B, after_B = over_BG[rows, last_B], over_BG[rows, next_B]
        part_B = np.where(next_B > last_B, here_B / np.where(here_B > after_B, here_B - after_B, 1.0), 0.0)
        log2_B = LOG2_EXPERTS[last_B] + part_B * (LOG2_EXPERTS[1] - LOG2_EXPERTS[0])
        return np.where(enough_BG.any(1), log2_B, 0.0) * math.log10(2)

    return Quantity("last_worthwhile", of, log=True, high=float(LOG2_EXPERTS[-1] * math.log10(2)))


def _by_law(runs: AdviceRuns) -> list[dict[str, Any]]:
    """The E beyond which a doubling gains little, of every router and size, under the law that predicts it best."""
    found = []
    for router in runs.ordered:
        report = runs.best_fit(router)
        if report is None or "e_max" not in report.fit.params:
            continue
        law = report.fit.law
        own = set(runs.usual_routed["size"][runs.usual_routed["router"] == router])
        most = int(runs.usual_routed["experts"][runs.usual_routed["router"] == router].max())
        for size, active in runs.sizes.items():
            if size in own:
                quantity = last_worthwhile(law, active, runs.gain)
                ends = report.draws.interval(quantity, runs.level) if report.draws is not None else None
                value = quantity.at(report.fit.params_BP)
                found.append({"router": router, "size": size, "law": law.name, "experts": value,
                              "interval": ends and [max(ends.low, 1.0), None if ends.open_high else ends.high],
                              "extrapolates": value > most})  # fmt: skip
    return found


def _measured(runs: AdviceRuns) -> list[dict[str, Any]]:
    """Between which trained E the gain of a doubling falls below the one asked for, beyond the noise.

    `low`: where the last step ends that gains more for certain, 1 where none does; `high`: where steps begin that all
    gain less for certain, None where the last one does not.
    """
    found = steps(runs)
    limit, rows = -math.log10(1 - runs.gain / 100), []
    for (router, size), own in found.groupby(["router", "size"], sort=False):
        noise = runs.noise(str(size))
        if noise is None:
            continue
        half = student(noise.freedom, runs.level) * noise.sd * np.sqrt(own["variance"].to_numpy())
        above, below = own["gain"].to_numpy() - half > limit, own["gain"].to_numpy() + half < limit
        low = int(own["to"].to_numpy()[above].max()) if above.any() else 1
        trailing = int(np.cumprod(below[::-1]).sum())
        high = int(own["from"].to_numpy()[len(own) - trailing]) if trailing else None
        rows.append({"router": router, "size": size, "low": low, "high": high, "most": int(own["to"].max())})
    return rows


def _rows(runs: AdviceRuns) -> list[dict[str, Any]]:
    found = steps(runs)
    gains = 100 * (1 - 10.0 ** -found["gain"].to_numpy(float))
    names = ("router", "size", "from", "to", "gain_percent")
    columns = [*(found[name].tolist() for name in names[:-1]), gains.tolist()]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _tables(runs: AdviceRuns, by_law: list[dict[str, Any]], measured: list[dict[str, Any]]) -> list[AdviceTable]:
    shown = runs.ordered[:MOST_ROUTERS]
    tables = []
    if by_law:
        laws = {row["router"]: row["law"] for row in by_law}
        named = sorted(set(laws.values()))
        which = f"law {named[0]}" if len(named) == 1 else ", ".join(f"{r}: {laws[r]}" for r in shown if r in laws)
        title = f"E beyond which a doubling gains less than {runs.gain:g} %, by the law that predicts best ({which})"
        cells = {(row["router"], row["size"]): shown_law(row) for row in by_law}
        tables.append(AdviceTable(title, ["size", *shown], _grid(runs, shown, cells)))
    if measured:
        title = "The same as measured: from where the last step gains more to where all gain less, beyond the noise"
        cells = {(row["router"], row["size"]): shown_range(row) for row in measured}
        tables.append(AdviceTable(title, ["size", *shown], _grid(runs, shown, cells)))
    return tables


def shown_law(row: dict[str, Any]) -> str:
    if row["experts"] >= MOST_EXPERTS:
        return f"> {MOST_EXPERTS:.0f}*"
    value = "none" if row["experts"] <= 1 else _experts(row["experts"])
    if row["interval"] is None:
        return value
    low, high = row["interval"]
    return f"{value} [{_experts(low)}, {'…)' if high is None else f'{_experts(high)}]'}{'*' * row['extrapolates']}"


def _experts(count: float) -> str:
    return f"{count:.0f}" if count >= 10 else f"{count:.1f}"


def shown_range(row: dict[str, Any]) -> str:
    low, high = row["low"], row["high"]
    if high is not None and low <= 1:
        return f"≤ {high}"
    if high is None:
        return f"≥ {low}" if low > 1 else "not known"
    return f"{low}" if low == high else f"{low} to {high}"


def _grid(runs: AdviceRuns, shown: list[str], cells: dict[tuple[str, str], str]) -> list[list[str]]:
    return [[size, *(cells.get((router, size), "–") for router in shown)] for size in runs.sizes]


def _remarks(runs: AdviceRuns, by_law: list[dict[str, Any]]) -> list[str]:
    sentences = []
    if any(row["extrapolates"] for row in by_law):
        sentences.append("*: beyond the E trained, an extrapolation of the law.")
    if len(runs.ordered) > MOST_ROUTERS:
        sentences.append(f"Not in the tables (but in --json): {', '.join(runs.ordered[MOST_ROUTERS:])}.")
    without: dict[str, list[str]] = {}
    for router in runs.ordered:
        report = runs.best_fit(router)
        if report is None or "e_max" not in report.fit.params:
            without.setdefault(runs.why_no_law(router), []).append(router)
    said = (f"No law says where gains end for {listed(routers)}: {why}" for why, routers in without.items())
    return [*sentences, *said]
