"""Claims about how models are trained and what they are tested on: lengths, variants, other text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from routelaw.figures.lengths import evaluations, expert_slope_along, several_lengths
from routelaw.figures.style import router_name
from routelaw.fitting.claims import FAILS, HOLDS, NOT_TRAINED, OPEN, Claim, Effect, Outcome, student, weakest
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.matched_runs import PERCENT, VALIDATION, finished_runs
from routelaw.fitting.points import SAME_MODEL
from routelaw.laws.law import Array
from routelaw.runs.variants import parts_of
from routelaw.studies.claims_on_losses import PAPER_SPREAD
from routelaw.studies.study_runs import StudyRuns

SAME_SLOPE = 0.1
"""Slopes that differ by less than this share of themselves count as equal."""
FEWEST_TO_REGRESS = 4
"""Sizes, below which a slope in log N has no error to speak of."""
LENGTH_ROUTER = "hash"


@dataclass(frozen=True)
class SlopeGap:
    """By how much a slope differs from another."""

    gap: float
    error: float
    """Its standard error."""
    freedom: float
    reference: float
    """The slope that a small gap is a small part of."""

    def half(self, level: float) -> float:
        return student(self.freedom, level) * self.error

    @property
    def small(self) -> bool:
        return abs(self.gap) + self.half(DEFAULT_LEVEL) < SAME_SLOPE * abs(self.reference)


def _one_differs(gaps: Collection[SlopeGap], shown: SlopeGap, basis: str) -> tuple[Effect, str, int]:
    """One of several gaps with an interval that allows for their number, the verdict that one excludes zero, or that
    all are small, and how many do."""
    wide = 1 - (1 - DEFAULT_LEVEL) / len(gaps)
    sure = sum(abs(gap.gap) > gap.half(wide) for gap in gaps)
    verdict = HOLDS if sure else FAILS if all(gap.small for gap in gaps) else OPEN
    return Effect.around(shown.gap, shown.half(wide), basis), verdict, sure


def own_slope(runs: StudyRuns, router: str, target: str) -> SlopeGap | None:
    """How much steeper a zero-shot loss is in log N than the validation loss, from one plane in log N and log E for
    log10 of their ratio; its error is the larger of the jackknife's over sizes and the seed noise's."""
    losses = {}
    for name in (VALIDATION, target):
        routed, dense = runs.losses(router, name), runs.losses("dense", name)
        losses[name] = pd.concat(
            [routed, dense[dense.index.get_level_values("size").isin(routed.index.get_level_values("size"))]]
        )
    frame = pd.DataFrame(losses).dropna()
    sizes = frame.index.get_level_values("size")
    if sizes.nunique() < FEWEST_TO_REGRESS:
        return None
    n = np.log10([runs.active_params[s] for s in sizes])
    x = np.column_stack([n, np.log10(frame.index.get_level_values("experts").to_numpy(float)), np.ones(len(n))])
    y = (frame[target] - frame[VALIDATION]).to_numpy()
    without = np.array([_solve(x[sizes != s], y[sizes != s])[0] for s in sizes.unique()])
    count = len(without)
    error = float(np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum()))
    noise = runs.transfer_noise(target, *sizes)
    if noise is not None:
        error = max(error, noise.sd * float(np.sqrt(np.linalg.inv(x.T @ x)[0, 0])))
    return SlopeGap(float(_solve(x, y)[0]), error, count - 2, float(_solve(x, frame[VALIDATION].to_numpy())[0]))


def _solve(x: Array, y: Array) -> Array:
    return np.linalg.lstsq(x, y, rcond=None)[0]


def zero_shot_losses(runs: StudyRuns) -> list[str]:
    return [t for t in runs.table.losses if t != VALIDATION and runs.finals[t].notna().any()]


def transfer_has_own_slopes(runs: StudyRuns) -> Outcome:
    """For every zero-shot loss and router: how much its slope in log N differs from validation's (one plane in log N
    and log E; the wider of a jackknife over sizes and the seed noise). Holds if one difference excludes zero with an
    interval that allows for their number; does not hold if all 90 % intervals lie within a tenth of validation's slope;
    else it cannot be told. The number shown is the clearest difference."""
    routers = [r for r in runs.routers if r in runs.table.routers]
    tried = {(r, t): s for r in routers for t in zero_shot_losses(runs) if (s := own_slope(runs, r, t))}
    if not tried:
        return NOT_TRAINED if not zero_shot_losses(runs) else "fewer than four sizes with a zero-shot loss"
    (router, target), clearest = max(tried.items(), key=lambda item: abs(item[1].gap) / (item[1].error + 1e-12))
    effect, verdict, sure = _one_differs(tried.values(), clearest, f"Interval from {clearest.freedom + 2} sizes.")
    why = (f"{sure} of {len(tried)} differ from validation. Clearest: {target.removeprefix('loss_')} with "
           f"{router_name(router)}, slope {clearest.reference + clearest.gap:.4f} against "
           f"{clearest.reference:.4f}.")  # fmt: skip
    return effect, verdict, why


def lengths(runs: StudyRuns) -> dict[str, pd.DataFrame]:
    """For each size at which HASH was trained for several lengths with the same E (dense among them): rows of these
    runs, with the tokens seen as `progress` and those of the whole schedule as `length`."""
    rows, unit = evaluations(runs)
    found = several_lengths(rows[rows["variant"] == ""]) if unit == "tokens" else []
    return {own.size: own.rows for own in found if own.router == LENGTH_ROUTER and len(own.lengths) > 1}


def noise_on_the_way(runs: StudyRuns, size: str, share: float) -> float:
    """How much further seeds of a size are apart at the evaluation nearest to this share of their training than at its
    end: 1 at least, and 1 where they were not evaluated together before."""
    rows = finished_runs(runs.table).dropna(subset=[VALIDATION, "tokens_planned"])
    rows = rows[rows["size"] == runs.seeds_for(size)]
    rows = rows.assign(share=(rows["tokens"] / rows["tokens_planned"]).round(6), log_loss=np.log10(rows[VALIDATION]))
    variances = []
    for _, own in rows.groupby([*SAME_MODEL, "tokens_planned"], dropna=False):
        if own["run_id"].nunique() > 1:
            seeds = own.pivot_table(index="share", columns="run_id", values="log_loss").dropna()
            variances.append(seeds.var(axis=1))
    pooled = pd.concat(variances, axis=1).mean(axis=1) if variances else pd.Series(dtype=float)
    if pooled.empty or not pooled.iloc[-1]:
        return 1.0
    nearest = int(np.abs(pooled.index.to_numpy(float) - share).argmin())
    return max(1.0, float(np.sqrt(pooled.iloc[nearest] / pooled.iloc[-1])))


def schedule_matters(runs: StudyRuns) -> Outcome:
    """HASH trained for several lengths at one size: b, the slope of log L in log E, at the end of a shorter run
    against b of a longer one at the same number of tokens (in between its evaluations, straight lines). Holds if one of
    these differences excludes zero with an interval of the seed noise, which on the way is that of seeds then, that
    allows for their number; does not hold if all lie within a tenth of b; else it cannot be told. The number shown is
    the largest difference."""
    found = lengths(runs)
    if not found:
        return NOT_TRAINED
    gaps = {}
    for size, rows in found.items():
        noise = runs.noise(size)
        if noise is None:
            return "no model was trained with several seeds"
        slopes, noises = expert_slope_along(rows)
        for short, long in pairwise(slopes.columns):
            end, other = slopes[short].dropna(), slopes[long].dropna()
            here = float(np.interp(float(end.index[-1]), other.index.astype(float), other))
            error = noise.sd * noises * np.hypot(1, noise_on_the_way(runs, size, float(end.index[-1]) / float(long)))
            b = float(end.iloc[-1])
            gaps[size, short, long] = SlopeGap(b - here, error, noise.freedom, b)
    (size, short, long), largest = max(gaps.items(), key=lambda item: abs(item[1].gap))
    effect, verdict, sure = _one_differs(gaps.values(), largest, "Interval from the seed noise.")
    why = (f"{sure} of {len(gaps)} differ. {size} after {short:.3g} tokens: b = {largest.reference:.4f} at the "
           f"end of a schedule, {largest.reference - largest.gap:.4f} on the way to {long:.3g}.")  # fmt: skip
    return effect, verdict, why


def baseline_best(runs: StudyRuns) -> Outcome:
    """RL-R with a learned baseline and an entropy term (B) against the greedy (G) and the sampled one (S), at equal
    size and E; these have neither, and may have been tried with another reward. Holds if all mean differences have
    intervals above zero; does not hold if one lies below with an interval that allows for their number."""
    known = sorted(set(runs.one_length["variant"][runs.one_length["router"] == "rl-r"]))
    others = [v for v in known if {"variant"} <= set(parts_of(v)) <= {"variant", "reward", "entropy_weight"}]
    gaps = {v: gap for v in others if len(gap := runs.beside_usual("rl-r", v, ("k", "routing_frequency")))}
    if not gaps:
        return NOT_TRAINED
    name, effect = weakest({v: partial(runs.mean_gap, g) for v, g in gaps.items()})
    effect = effect.scaled(PERCENT)
    means = "; ".join(f"{_named(v)} {PERCENT * g.mean():+.2f} %" for v, g in gaps.items())
    return effect, effect.verdict(), f"Nearest: {_named(name)}. Over B, {means}."


def _named(variant: str) -> str:
    """A variant of RL-R in words: `variant=G,reward=p` as "G (reward p)"."""
    parts = parts_of(variant)
    return parts["variant"] + (f" (reward {parts['reward']})" if "reward" in parts else "")


def permuting_changes_nothing(runs: StudyRuns) -> Outcome:
    """HASH whose layers permute token ids against HASH, at equal size, E and R. Holds if the interval of the mean
    difference lies within 0.02 nats, the paper's cut-off; does not hold if it lies outside."""
    gap = runs.beside_usual("hash", "permuted", ("k", "routing_frequency"))
    if gap.empty:
        return NOT_TRAINED
    loss = float(10 ** runs.one_length["log_loss_validation"].mean())
    effect = runs.mean_gap(gap).scaled(loss * float(np.log(10)))
    inside, outside = (
        max(-effect.low, effect.high) < PAPER_SPREAD,
        effect.low > PAPER_SPREAD or effect.high < -PAPER_SPREAD,
    )
    return effect, HOLDS if inside else FAILS if outside else OPEN, f"{len(gap)} pairs."


CLAIMS = (
    Claim("zero-shot", "Zero-shot losses follow slopes of their own", transfer_has_own_slopes,
          "coefficients are “estimate[d] individually for each task”: a from −.07 (C4) to −.21 (LAMBADA)",
          "appendix E", "slope in log N less that of the validation loss"),
    Claim("schedule", "Scaling depends on the schedule, not on tokens alone", schedule_matters,
          "“For a given number of tokens, the scaling behavior of three different sets of models is completely "
          "different”", "appendix F.2", "b at the end of a schedule less b within a longer one"),
    Claim("rl variants", "RL-R is best with a baseline", baseline_best, "“RLR-B consistently performed the best”",
          "appendix B.3", "G or S over B, %"),
    Claim("permuted hash", "Permuting the hash changes nothing", permuting_changes_nothing,
          "“performance was unchanged for this variant”", "appendix D.3", "permuted less plain, nats"),
)  # fmt: skip
