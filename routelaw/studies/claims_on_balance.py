"""Claims about the weights of the routers' losses: who depends on them, and who spreads tokens evenly.

Over-subscription is the share of assignments beyond an even load of their routing group, drops are those beyond the
capacity; both are means over the routed blocks at the end of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from routelaw.figures.style import router_name
from routelaw.fitting.claims import FAILS, HOLDS, NOT_TRAINED, OPEN, Claim, Effect, Outcome, student
from routelaw.fitting.intervals import DEFAULT_LEVEL
from routelaw.fitting.matched_runs import PERCENT, VALIDATION
from routelaw.fitting.noise import NoiseFloor
from routelaw.laws.law import Array
from routelaw.runs.variants import parts_of
from routelaw.studies.study_runs import WEIGHT_DEFAULTS, WEIGHTS, StudyRuns

LOSS, EXCESS, DROPS = f"log_{VALIDATION}", "oversubscribed", "dropped"
CROSSED = "rl-r"
"""The technique that has an entropy weight."""
PLACE = ["router", "size", "experts"]
DRAWS = 4000
SAME_SHARE = 0.05
"""Share of the assignments: less over-subscription than this is no difference."""
LEAST, MOST = 1e-3, 1.0
"""Balance weights over which the paper calls S-BASE robust."""
STEADY = "s-base"
"""The technique that the others are compared with."""
NO_SEEDS = "no model was trained with several seeds"


def weighted(runs: StudyRuns) -> pd.DataFrame:
    """Runs of which nothing but balance and entropy weights was varied, with the loss and how tokens were spread."""
    rows = runs.usual_shape
    rows = rows[rows["balance"].notna() & rows["variant"].map(lambda v: set(parts_of(v)) <= WEIGHTS)]
    rows = rows[_is_usual(rows, "policy")]
    return rows.assign(**{name: rows["run_id"].map(runs.spreads[name]).astype(float) for name in (EXCESS, DROPS)})


def _is_usual(rows: pd.DataFrame, weight: str) -> pd.Series:
    """Where a weight is the technique's usual one: that of the runs without a variant, or its default."""
    plain = rows[rows["variant"] == ""].groupby("router")[weight].first()
    usual = rows["router"].map(plain).fillna(rows["router"].map(WEIGHT_DEFAULTS[weight])).astype(float)
    return rows[weight].isna() | np.isclose(rows[weight].astype(float), usual)


def by_balance(runs: StudyRuns, column: str = LOSS) -> pd.DataFrame:
    """A column by (router, size, E) and balance weight, at the usual entropy weight; seeds averaged."""
    rows = weighted(runs)
    usual = _is_usual(rows, "entropy")
    return rows[usual].groupby([*PLACE, "balance"])[column].mean().unstack("balance")


def varied(table: pd.DataFrame) -> pd.DataFrame:
    """The places of `by_balance` with three weights or more."""
    return table[table.notna().sum(axis=1) > 2]


def crosses(runs: StudyRuns, column: str = LOSS) -> dict[tuple[str, int], pd.DataFrame]:
    """By (size, E) where both weights were varied: a column of RL-R, a row for each entropy weight, a column for each
    balance weight that has several of them."""
    rows = weighted(runs)
    found = {}
    for place, own in rows[rows["router"] == CROSSED].groupby(["size", "experts"]):
        size, experts = place  # pyrefly: ignore
        grid = own.groupby(["entropy", "balance"])[column].mean().unstack("balance")
        grid = grid.loc[:, grid.notna().sum() > 1]
        if grid.shape[0] > 1 and grid.shape[1] > 1:
            found[str(size), int(experts)] = grid  # pyrefly: ignore
    return found


def spread_noise(runs: StudyRuns, routers: Sequence[str], size: str, experts: int) -> tuple[float, int] | None:
    """Standard deviation of over-subscription over seeds, pooled over models of these routers and E, of the size whose
    seeds stand for this one, and its degrees of freedom; None where no such model has two seeds."""
    rows = weighted(runs)
    rows = rows[rows["size"] == runs.seeds_for(size)]
    rows = rows[rows["router"].isin(routers) & (rows["experts"] == experts)].dropna(subset=[EXCESS])
    groups: list[Array] = [g.to_numpy(float) for _, g in rows.groupby([*PLACE, "variant"])[EXCESS] if len(g) > 1]
    freedom = sum(len(g) - 1 for g in groups)
    return (float(np.sqrt(sum(((g - g.mean()) ** 2).sum() for g in groups) / freedom)), freedom) if freedom else None


def more_sensitive(router: str, runs: StudyRuns) -> Outcome:
    """At each size and E with several balance weights for both, the variance of log10 L over the weights that both
    have and the paper speaks of, 1e-3 to 1: the router's less S-BASE's, so that the seed noise in each cancels. Its
    interval comes from redrawing the losses with the seed noise (itself redrawn from its distribution). Holds if it
    lies above zero, does not hold if below. What no balance loss at all does is said beside."""
    every = by_balance(runs)
    losses = every.loc[:, [LEAST <= float(weight) <= MOST for weight in every.columns]]
    pairs, noises = [], []
    for size, experts in sorted({(s, e) for r, s, e in losses.index if r == router}):
        if (STEADY, size, experts) in losses.index:
            both = losses.loc[[(router, size, experts), (STEADY, size, experts)]].dropna(axis="columns")
            if both.shape[1] > 2:
                pairs.append(both.to_numpy())
                noises.append(runs.noise(size))
    if not pairs:
        return NOT_TRAINED
    rng = np.random.default_rng(0)
    drawn = [_variance_gap(p, noise, rng) for p, noise in zip(pairs, noises, strict=True) if noise is not None]
    if not drawn:
        return NO_SEEDS
    gap = float(np.mean([p[0].var(ddof=1) - p[1].var(ddof=1) for p in pairs]))
    low, high = np.quantile(np.mean(drawn, axis=0), [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2])
    unit = 1e8
    effect = Effect(gap * unit, (2 * gap - high) * unit, (2 * gap - low) * unit, "Interval from the seed noise.")
    spread = [PERCENT * float(np.sqrt(np.mean([p[i].var(ddof=1) for p in pairs]))) for i in (0, 1)]
    name = router_name(router)
    why = (
        f"Over {pairs[0].shape[1]} weights the loss varies by {spread[0]:.2f} % ({name}) and {spread[1]:.2f} % "
        f"({router_name(STEADY)}), one sd.{_without(every, router)}"
    )
    diverged = (runs.table.frame["status"] == "diverged") & (runs.table.frame["router"] == router)
    lost = runs.table.frame[diverged]["run_id"].nunique()
    return effect, effect.verdict(), why + (f" {lost} runs of {name} diverged and are not counted." if lost else "")


def _without(losses: pd.DataFrame, router: str) -> str:
    """What the loss is without a balance loss, over that of the best weight; empty where nobody tried."""
    if 0.0 not in losses.columns:
        return ""
    over = (losses[0.0] - losses.min(axis="columns")).dropna()
    own = {r: PERCENT * float(over[over.index.get_level_values(0) == r].mean()) for r in (router, STEADY)}
    return f" Without one: {own[router]:+.2f} % ({router_name(router)}), {own[STEADY]:+.2f} % ({router_name(STEADY)})."


def _variance_gap(losses: Array, noise: NoiseFloor, rng: np.random.Generator) -> Array:
    """Variance over weights of the first row less that of the second, redrawn with noise of the seeds; (DRAWS,).

    Both variances grow by that of the noise, so their difference is not biased.
    """
    sd = noise.sd * np.sqrt(noise.freedom / rng.chisquare(noise.freedom, DRAWS))
    shaken = losses[None] + sd[:, None, None] * rng.standard_normal((DRAWS, *losses.shape))
    return shaken[:, 0].var(axis=1, ddof=1) - shaken[:, 1].var(axis=1, ddof=1)


def _at(table: pd.DataFrame, place: tuple[str, str, int]) -> pd.Series:
    return table.loc[place]  # pyrefly: ignore


def switch_less_even(runs: StudyRuns) -> Outcome:
    """Over-subscription (assignments beyond an even load of their group, as a share of all) of Switch less that of
    S-BASE, each at the balance weight that gives it the lowest loss, at the largest E with three weights or more for
    both. The interval is that of the spread over seeds of the two at this size and E, with their usual weights. Holds
    if it lies above zero, does not hold if below."""
    losses, shares = varied(by_balance(runs)), by_balance(runs, EXCESS)
    both = {(s, e) for r, s, e in losses.index if r == "switch"} & {(s, e) for r, s, e in losses.index if r == STEADY}
    known = [place for place in both if all(_at(shares, (r, *place)).notna().sum() > 2 for r in ("switch", STEADY))]
    if not known:
        return NOT_TRAINED if not both else "how tokens were spread was not recorded"
    size, experts = max(known, key=lambda place: (place[1], runs.active_params[place[0]]))
    noise = spread_noise(runs, ("switch", STEADY), size, experts)
    if noise is None:
        return NO_SEEDS
    own = {r: _at(shares, (r, size, experts)).dropna() for r in ("switch", STEADY)}
    best = {r: losses.loc[(r, size, experts), share.index].idxmin() for r, share in own.items()}
    gap = float(own["switch"].at[best["switch"]] - own[STEADY].at[best[STEADY]])  # pyrefly: ignore
    effect = _of_seeds(gap, noise).scaled(100)
    said = "; ".join(
        f"{router_name(r)} {share[best[r]]:.1%} at {best[r]:g}, {share.min():.1%} to {share.max():.1%} over all"
        for r, share in own.items()
    )
    return effect, effect.verdict(), f"{size} with E = {experts}: {said}."


def entropy_unbalances(runs: StudyRuns) -> Outcome:
    """Over-subscription of RL-R with the highest entropy weight less that with the lowest, for every balance weight
    that was tried with several. Holds if one difference lies above zero with an interval (of the spread over seeds of
    RL-R at this size and E, with its usual weights) that allows for their number; does not hold if all 90 % intervals
    end below five percent of the assignments; else it cannot be told. The number shown is the largest difference."""
    grids = crosses(runs, EXCESS)
    if not grids:
        return "how tokens were spread was not recorded" if crosses(runs) else NOT_TRAINED
    noises = {place: spread_noise(runs, (CROSSED,), *place) for place in grids}
    raised = {
        (place, float(str(weight))): (float(own.iloc[-1] - own.iloc[0]), noise)
        for place, grid in grids.items()
        if (noise := noises[place]) is not None
        for weight, own in ((weight, own.dropna()) for weight, own in grid.items())
        if len(own) > 1
    }
    if not raised:
        return NO_SEEDS
    wide = 1 - (1 - DEFAULT_LEVEL) / len(raised)
    all_at = {
        level: [_of_seeds(gap, noise, level) for gap, noise in raised.values()] for level in (DEFAULT_LEVEL, wide)
    }
    (place, weight), (gap, noise) = max(raised.items(), key=lambda item: item[1][0])
    own = grids[place][weight].dropna()
    sure, none = any(e.low > 0 for e in all_at[wide]), all(e.high < SAME_SHARE for e in all_at[DEFAULT_LEVEL])
    why = (
        f"Largest with balance weight {weight:g}, E = {place[1]}: {own.iloc[0]:.1%} with entropy weight "
        f"{own.index[0]:g}, {own.iloc[-1]:.1%} with {own.index[-1]:g}; {len(raised)} balance weights."
    )
    effect = _of_seeds(gap, noise, wide).scaled(100)
    return effect, HOLDS if sure else FAILS if none else OPEN, why


def _of_seeds(value: float, noise: tuple[float, int], level: float = DEFAULT_LEVEL) -> Effect:
    """A difference of two runs, with the interval that the spread of seeds gives it."""
    sd, freedom = noise
    return Effect.around(
        value, student(freedom, level) * sd * np.sqrt(2), f"Interval from seeds, {freedom} degrees of freedom."
    )


def _sensitive(router: str, name: str, paper: str) -> Claim:
    label = router_name(router)
    return Claim(name, f"{label} is more sensitive to the balance weight than S-BASE",
                 partial(more_sensitive, router), paper, "appendix D.1",
                 f"variance over weights, {label} less S-BASE, 1e-8 of log10 L squared")  # fmt: skip


CLAIMS = (
    _sensitive("switch", "balance", "“Unlike Switch … S-BASE is robust to changes in balancing weight for values of "
               "1e-3 to 1”"),
    _sensitive(CROSSED, "balance rl-r", "RL-R is “highly sensitive to the hyperparameters …, especially the choice of "
               "balancing weight”"),
    Claim("over-subscription", "Switch over-subscribes experts more than S-BASE, even when tuned", switch_less_even,
          "“Switch has higher expert oversubscription rates even when tuning the balancing weight”", "appendix D.1",
          "over-subscription, Switch less S-BASE, % of assignments"),
    Claim("entropy", "The entropy weight can unbalance RL-R", entropy_unbalances,
          "“changes to the policy entropy weight can lead to unbalanced routers when the balancing weight is not "
          "tuned jointly”", "appendix D.1",
          "over-subscription, highest less lowest entropy weight, % of assignments"),
)  # fmt: skip
