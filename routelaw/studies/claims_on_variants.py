"""Claims of single studies: K, R, one routed block, shared decisions, stacked FFWs, variants of RL-R, lengths, limits.

All compare matched runs: of equal size, E and length, and alike in all but what the claim is about.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from routelaw.figures.lengths import expert_slope_along
from routelaw.figures.limit import one_variant
from routelaw.figures.style import router_name
from routelaw.fitting.claims import FAILS, HOLDS, NOT_TRAINED, OPEN, Effect, Outcome, weakest
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.matched_runs import PERCENT, VALIDATION, mean_effect, shared_effect
from routelaw.fitting.noise import NoiseFloor
from routelaw.runs.variants import COMMON_FREQUENCY, DEFAULT, parts_of, usual_in, variant_of
from routelaw.specs.names import DENSE
from routelaw.studies.claims_on_architecture import ROUTER, k_router, lowest_frequency, stacked_gaps
from routelaw.studies.claims_on_balance import by_balance
from routelaw.studies.claims_on_losses import PAPER_SPREAD
from routelaw.studies.claims_on_training import SlopeGap, lengths
from routelaw.studies.study_runs import BALANCE_DEFAULTS, StudyRuns

LOSS = f"log_{VALIDATION}"
PAIR = ("k", "routing_frequency")
"""What pairs have in common beside size and E."""
RL = "rl-r"
PART_R, ALL_R = COMMON_FREQUENCY, 1.0
BOTH = (ROUTER, "hash")
LENGTHS_MISSING = "HASH was not trained for several lengths with three E or more, dense among them"


def in_nats(runs: StudyRuns, effect: Effect) -> Effect:
    """A small difference of log10 L at the mean loss of the runs."""
    return effect.scaled(float(10 ** runs.one_length[LOSS].mean() * np.log(10)))


def _pairs(gaps: Sized) -> str:
    return f"{len(gaps)} pair{'' if len(gaps) == 1 else 's'}"


def alike(runs: StudyRuns, gap: pd.Series, what: str) -> Outcome:
    """Two kinds of runs are alike within 0.02 nats, the paper's cut-off: the verdict on a gap of log10 L."""
    effect = in_nats(runs, runs.mean_gap(gap))
    inside = max(-effect.low, effect.high) < PAPER_SPREAD
    outside = effect.low > PAPER_SPREAD or effect.high < -PAPER_SPREAD
    return effect, HOLDS if inside else FAILS if outside else OPEN, what


def by_k(runs: StudyRuns, router: str) -> pd.DataFrame:
    """log10 L by (size, E, R), a column for each K."""
    rows = runs.one_length
    rows = rows[(rows["router"] == router) & (rows["variant"] == "")]
    return rows.groupby(["size", "experts", "routing_frequency", "k"])[LOSS].mean().unstack("k")


def more_per_token(runs: StudyRuns) -> Outcome:
    """The loss with K over that with 2K, at equal size, E and R, for every K that was doubled. Holds if the lowest of
    their mean differences has an interval above zero; does not hold if one lies below with an interval that allows for
    their number."""
    router = k_router(runs)
    losses = by_k(runs, router)
    tried = [int(k) for k in losses.columns]
    gaps = {f"{k} to {2 * k}": (losses[k] - losses[2 * k]).dropna() for k in tried if 2 * k in tried}
    gaps = {name: gap for name, gap in gaps.items() if len(gap)}
    if not gaps:
        return f"no model of {router_name(router)} was trained with K and 2K"
    name, effect = weakest({name: partial(runs.mean_gap, gap) for name, gap in gaps.items()})
    effect = effect.scaled(PERCENT)
    lower = sum(int((gap > 0).sum()) for gap in gaps.values())
    why = f"Least for K = {name}. {lower} of {sum(map(len, gaps.values()))} doublings lower the loss."
    return effect, effect.verdict(), why


def by_frequency(runs: StudyRuns, router: str, frequency: float) -> pd.Series:
    """log10 L by (size, E) at one R, K = 1."""
    return runs.losses(router, routing_frequency=frequency)


def frequency_gain(runs: StudyRuns, router: str) -> pd.Series:
    """log10 of the loss with half of the blocks routed over that with all of them, by (size, E)."""
    return (by_frequency(runs, router, PART_R) - by_frequency(runs, router, ALL_R)).dropna()


def all_blocks(router: str, sign: int, runs: StudyRuns) -> Outcome:
    """The loss with R = 1/2 over that with R = 1, at equal size and E (where the claim is that nothing is gained: the
    other way round). Holds if the interval of the mean difference lies above zero, does not hold if below."""
    gap = sign * frequency_gain(runs, router)
    if gap.empty:
        return f"no model of {router_name(router)} was trained with R = 1/2 and R = 1"
    effect = runs.mean_gap(gap).scaled(PERCENT)
    gained = int((sign * gap > 0).sum())
    return effect, effect.verdict(), f"R = 1 has the lower loss in {gained} of {_pairs(gap)}."


def fewer_blocks(runs: StudyRuns) -> Outcome:
    """The loss with the fewest routed blocks of a size over that with R = 1/2, at equal size and E, for each technique.
    Holds if the lowest mean difference has an interval above zero; does not hold if one lies below with an interval
    that allows for their number."""
    gaps = {}
    for router in runs.routers:
        low = lowest_frequency(runs, router).droplevel("routing_frequency")
        gap = (low - by_frequency(runs, router, PART_R)).dropna()
        if len(gap):
            gaps[router_name(router)] = gap
    if not gaps:
        return "no technique was trained with R = 1/2 and with less"
    name, effect = weakest({name: partial(runs.mean_gap, gap) for name, gap in gaps.items()})
    effect = effect.scaled(PERCENT)
    means = "; ".join(f"{n} {PERCENT * gap.mean():+.2f} % in {_pairs(gap)}" for n, gap in gaps.items())
    return effect, effect.verdict(), f"Least for {name}. {means}."


def one_block_alike(runs: StudyRuns) -> Outcome:
    """S-BASE over HASH with the fewest routed blocks of a size, at equal E. Holds if the interval of the mean
    difference lies within 0.02 nats, the paper's cut-off for one that means something; does not hold if outside."""
    gap = (lowest_frequency(runs, ROUTER) - lowest_frequency(runs, "hash")).dropna()
    if gap.empty:
        return "S-BASE and HASH were not both trained with few routed blocks"
    return alike(runs, gap, f"{_pairs(gap)}.")


def place_matters_not(runs: StudyRuns) -> Outcome:
    """A model whose routed block is in the middle over one where it is the last but one, at equal size, E and R, S-BASE
    and HASH. Holds if the interval of the mean difference lies within 0.02 nats; does not hold if outside."""
    gaps = [runs.beside_usual(router, "placement=interior", PAIR) for router in BOTH]
    gap = pd.concat([own for own in gaps if len(own)] or [pd.Series(dtype=float)])
    if gap.empty:
        return "no model was trained with its routed block in both places"
    each = ", ".join(f"{router_name(r)} {PERCENT * own.mean():+.2f} %" for r, own in zip(BOTH, gaps, strict=True)
                     if len(own))  # fmt: skip
    return alike(runs, gap, f"{_pairs(gap)}; {each}.")


def shared_like_hash(runs: StudyRuns) -> Outcome:
    """S-BASE whose first routed block decides for all over HASH, at equal size, E and R; not where one block is routed,
    which has nothing to share. Holds if the interval of the mean difference lies within 0.02 nats, the paper's cut-off;
    does not hold if outside."""
    rows = runs.one_length
    keys = ["size", "experts", *PAIR]
    chosen = {ROUTER: "shared_decisions", "hash": ""}
    shared, other = (
        rows[(rows["router"] == r) & (rows["variant"] == v)].groupby(keys)[LOSS].mean() for r, v in chosen.items()
    )
    anew = runs.beside_usual(ROUTER, "shared_decisions", PAIR)
    gap = (shared - other).dropna().drop(anew.index[anew == 0], errors="ignore")
    if gap.empty:
        return "no HASH model beside one of S-BASE with shared decisions"
    by_r = "; ".join(f"R = {r:.3g}: {PERCENT * own.mean():+.2f} %" for r, own in gap.groupby("routing_frequency"))
    return alike(runs, gap, f"{_pairs(gap)}. {by_r}.")


def interleaving_helps_more(runs: StudyRuns) -> Outcome:
    """What interleaving gains over stacking (as above), S-BASE less HASH, at equal E. Holds if the interval of the mean
    difference lies above zero, does not hold if below."""
    found = {router: list(stacked_gaps(runs, router)) for router in BOTH}
    pairs = [(s, gap - other) for s, e, gap in found[ROUTER] for t, f, other in found["hash"] if (s, e) == (t, f)]
    if not pairs:
        return "S-BASE and HASH were not both trained stacked and interleaved"
    sizes, gaps = zip(*pairs, strict=True)
    effect = mean_effect(np.array(gaps), sizes, partial(noise_of_two, runs)).scaled(PERCENT)
    return effect, effect.verdict(), f"{_pairs(gaps)} of differences."


def stacked_alike(runs: StudyRuns) -> Outcome:
    """S-BASE over HASH, both with several FFWs per expert in one block, at equal size and E. Holds if the interval of
    the mean difference lies within 0.02 nats; does not hold if outside."""
    rows = runs.one_length
    rows = rows[rows["variant"].str.contains("ffws_per_expert=")]
    loss = rows.groupby(["router", "size", "experts", "routing_frequency"])[LOSS].mean()
    if not set(BOTH) <= set(rows["router"]):
        return "S-BASE and HASH were not both trained with several FFWs per expert"
    gap = (loss[ROUTER] - loss["hash"]).dropna()
    return alike(runs, gap, f"{_pairs(gap)}.") if len(gap) else NOT_TRAINED


def noise_of_two(runs: StudyRuns, size: str) -> NoiseFloor | None:
    """The noise of a difference of two runs."""
    noise = runs.noise(size)
    return None if noise is None else replace(noise, sd=noise.sd * float(np.sqrt(2)))


def variant_gap(runs: StudyRuns, router: str, one: str, other: str) -> pd.Series:
    """log10 L of a variant less that of another, by size, E, K and R."""
    rows = runs.one_length[runs.one_length["router"] == router]
    rows = rows.assign(variant=rows["variant"].map(_without_defaults))
    keys = ["size", "experts", *PAIR]
    first, second = (rows[rows["variant"] == v].groupby(keys)[LOSS].mean() for v in (one, other))
    return (first - second).dropna()


def _without_defaults(variant: str) -> str:
    """G and S have no entropy term: where one is usual, theirs is the default, and no difference between them."""
    parts = parts_of(variant)
    if "variant" in parts and parts.get("entropy_weight") == DEFAULT:
        del parts["entropy_weight"]
    return variant_of(parts)


def worse_variant(worse: str, better: str, runs: StudyRuns) -> Outcome:
    """A variant of RL-R over the one that is said to be better, at equal size and E. Holds if the interval of the mean
    difference lies above zero, does not hold if below."""
    gap = variant_gap(runs, RL, worse, better)
    if gap.empty:
        return f"RL-R was not trained with {worse} and {better}"
    effect = runs.mean_gap(gap).scaled(PERCENT)
    return effect, effect.verdict(), f"{better} has the lower loss in {int((gap > 0).sum())} of {_pairs(gap)}."


def entropy_adds_nothing(runs: StudyRuns) -> Outcome:
    """RL-R with a nucleus and an entropy term over RL-R with a nucleus, at equal size and E. Holds if the entropy term
    gains less than 0.02 nats (the interval of the mean difference lies above −0.02), does not hold if it lies below."""
    gap = pd.concat([variant_gap(runs, RL, v, "variant=S") for v in _with_entropy(runs)] or [pd.Series(dtype=float)])
    if gap.empty:
        return "RL-R was not trained with a nucleus with and without an entropy term"
    effect = in_nats(runs, runs.mean_gap(gap))
    return effect, effect.verdict(-PAPER_SPREAD), f"{_pairs(gap)}."


def _with_entropy(runs: StudyRuns) -> list[str]:
    rows = runs.one_length[runs.one_length["router"] == RL]
    return sorted({v for v in rows["variant"] if v.startswith("entropy_weight=") and v.endswith(",variant=S")})


def longer_is_better(runs: StudyRuns) -> Outcome:
    """The loss after a schedule over that after the next longer one, for each E and size that has both. Holds if the
    lowest of the mean differences of a size and a pair of lengths has an interval above zero; does not hold if one lies
    below with an interval that allows for their number."""
    gaps: dict[str, pd.Series] = {}
    for size, rows in lengths(runs).items():
        last = rows.groupby("run_id").tail(1)
        loss = last.pivot_table(index=["size", "experts"], columns="length", values=VALIDATION)
        for short, long in pairwise(loss.columns):
            gap = (loss[short] / loss[long]).dropna().astype(float)
            gaps[f"{size}, {short:.3g} to {long:.3g} tokens"] = gap.map(np.log10)
    if not gaps:
        return LENGTHS_MISSING
    name, effect = weakest({name: partial(runs.mean_gap, gap) for name, gap in gaps.items()})
    effect = effect.scaled(PERCENT)
    means = "; ".join(f"{n} {PERCENT * gap.mean():+.2f} %" for n, gap in gaps.items())
    return effect, effect.verdict(), f"Least for {name}. {means}."


def longer_helps_experts(runs: StudyRuns) -> Outcome:
    """b, the slope of log L in log E, at the end of the shortest schedule less that at the end of the longest, with the
    interval of the seed noise. Holds if the lowest of the sizes lies above zero (experts gain more from longer
    training); does not hold if one lies below with an interval that allows for their number."""
    found = lengths(runs)
    if not found:
        return LENGTHS_MISSING
    gaps = {}
    for size, rows in found.items():
        noise = runs.noise(size)
        if noise is None:
            return "no model was trained with several seeds"
        slopes, noises = expert_slope_along(rows)
        ends = [float(slopes[plan].dropna().iloc[-1]) for plan in slopes.columns]
        error = noise.sd * noises * float(np.sqrt(2))
        gaps[size] = SlopeGap(ends[0] - ends[-1], error, noise.freedom, ends[0])
    effects = {
        size: lambda level, gap=gap: Effect.around(gap.gap, gap.half(level), "Interval from the seed noise.")
        for size, gap in gaps.items()
    }
    name, effect = weakest(effects)
    gap = gaps[name]
    return effect, effect.verdict(), f"{name}: b = {gap.reference:.4f} and {gap.reference - gap.gap:.4f}."


def balance_not_needed(runs: StudyRuns) -> Outcome:
    """S-BASE without a balance loss over S-BASE with its usual weight, at equal size and E. Holds if the interval of
    the mean difference ends below 0.02 nats; does not hold if it lies above."""
    rows = runs.one_length[runs.one_length["router"] == ROUTER]
    usual = rows["balance"][rows["variant"] == ""]
    weight = float(usual.iloc[0]) if len(usual) else BALANCE_DEFAULTS[ROUTER]
    losses = by_balance(runs)
    losses = losses[losses.index.get_level_values("router") == ROUTER].reindex(columns=[0.0, weight])
    gap = (losses[0.0] - losses[weight]).dropna() if weight else pd.Series(dtype=float)
    if gap.empty:
        return "S-BASE was not trained with and without a balance loss"
    effect = in_nats(runs, runs.mean_gap(gap))
    return effect, effect.verdict_below(PAPER_SPREAD), f"{_pairs(gap)}, against a weight of {weight:g}."


def helps_at_largest(runs: StudyRuns) -> Outcome:
    """At the largest size that was trained dense and routed for the same number of tokens: log10 of the dense loss over
    the routed one, the mean over routed models of the usual variant, K and R (or, where a size has none, of one whose
    weights of the losses alone are others), with the interval of the seed noise (of the nearest smaller size that has
    seeds). Holds if it lies above zero, does not hold if below."""
    rows, usual = runs.finals, usual_in(runs.table)
    plain = (rows["k"] == usual.k) & np.isclose(rows["routing_frequency"], usual.routing_frequency)
    rows = one_variant(rows[plain | (rows["router"] == DENSE)])
    dense = rows[rows["router"] == DENSE].groupby(["size", "tokens_planned"], dropna=False)[LOSS].mean()
    routed = rows[rows["router"] != DENSE]
    if dense.empty or routed.empty:
        return "no dense model was trained" if dense.empty else "no routed model was trained"
    keys = pd.MultiIndex.from_frame(routed[["size", "tokens_planned"]])
    routed = routed.assign(gain=dense.reindex(keys).to_numpy() - routed[LOSS].to_numpy()).dropna(subset=["gain"])
    if routed.empty:
        return "no dense model has the size and length of a routed one"
    size = max(routed["size"].unique(), key=runs.active_params.__getitem__)
    own = routed[routed["size"] == size]
    noise = runs.noise(str(size))
    gains = own["gain"].to_numpy()
    gained = sorted(zip(gains, own["router"], own["experts"], strict=True))
    said = dict.fromkeys(f"{router_name(r)} with E = {e} {PERCENT * g:+.2f} %" for g, r, e in (gained[0], gained[-1]))
    models = f"{len(own)} routed model{'s' if len(own) > 1 else ''}"
    why = f"{size}, {runs.active_params[str(size)]:.3g} active parameters, {models}: {' to '.join(said)}"
    if noise is None:
        return (
            Effect(float(gains.mean()) * PERCENT),
            OPEN,
            f"{why}. No seeds: no interval.",
        )
    effect = shared_effect(gains, noise, DEFAULT_LEVEL).scaled(PERCENT)
    return effect, effect.verdict(), f"{why}."
