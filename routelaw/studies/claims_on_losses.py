"""Claims about the main sweep: routing helps, less so in larger models, and in which order; and what the paper's law
says of it.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.figures.matched import PAPER_CUTOFF
from routelaw.figures.seeds import spread_along
from routelaw.figures.style import router_name
from routelaw.fitting.claims import NOT_TRAINED, OPEN, Claim, Effect, Outcome, weakest
from routelaw.fitting.fit import fit_law
from routelaw.fitting.intervals import Draws, small_sample_stretch
from routelaw.fitting.matched_runs import (
    PERCENT,
    VALIDATION,
    resample_sizes_and_runs,
    shared_effect,
    slope_effect,
    slopes_by_experts,
)
from routelaw.fitting.points import select_points
from routelaw.laws.law import Array
from routelaw.studies.study_runs import PAPER_LAW, PAPER_ROUTERS, StudyRuns

THREE_SEEDS = 1.693
"""Expected range of three normal values, in standard deviations."""
PAPER_SPREAD = PAPER_CUTOFF
DRAWS = 400
PLACE = "section 5.1; table of coefficients"


def routing_helps(runs: StudyRuns) -> Outcome:
    """The mean gain over all E (dense loss over routed loss, in percent) is taken for each router and size, with the
    interval that seed noise gives it; the dense run's noise is shared by all E. Holds if the lowest of them is above
    zero; does not hold if one lies below with an interval that allows for their number."""
    groups = {
        (router, str(size)): gain.to_numpy()
        for router in runs.routers
        for size, gain in runs.gains(router).groupby("size")
    }
    if not groups:
        return NOT_TRAINED
    noises = {size: noise for _, size in groups if (noise := runs.noise(size)) is not None}
    if not noises:
        return "no model was trained with several seeds, and one size at a time has no other measure of noise"
    effects = {
        f"{router_name(router)} at {size}": partial(shared_effect, gain, noises[size])
        for (router, size), gain in groups.items()
    }
    name, effect = weakest(effects)
    effect = effect.scaled(PERCENT)
    least = min(g.min() for g in groups.values()) * PERCENT
    why = f"Lowest of {len(groups)}: {name}. The smallest gain of a single model is {least:.2f} %."
    return effect, effect.verdict(), why


def expert_slopes(runs: StudyRuns, router: str, target: str = VALIDATION) -> tuple[pd.Series, float] | None:
    """b by size: slope of log10 L in log10 E over the E that all sizes have, dense as E = 1; and how many times the
    noise of one run a slope carries."""
    routed = pd.concat([runs.losses(router, target), runs.losses("dense", target)])
    by_size = routed.unstack("experts")
    while len(by_size) > 2 and by_size.dropna(axis="columns").shape[1] < 3:  # a size with few E leaves too little
        by_size = by_size.drop(index=by_size.notna().sum(axis=1).idxmin())
    by_size = by_size.dropna(axis="columns")
    if len(by_size) < 2 or by_size.shape[1] < 3 or 1 not in by_size:
        return None
    slopes, noises = slopes_by_experts(by_size)
    return slopes[sorted(slopes.index, key=runs.active_params.__getitem__)], noises


def gain_falls(runs: StudyRuns) -> Outcome:
    """For each router the slope b of log L in log E is taken size by size (over the E that all sizes have), and the
    slope of b in log N over sizes: the paper's c, without a law. Its interval is that of the seed noise or, with four
    sizes or more, the regression's where that is wider. Holds if all routers' intervals lie above zero; does not hold
    if one lies below with an interval that allows for their number."""
    found = {r: s for r in runs.routers if (s := expert_slopes(runs, r)) is not None}
    if not found:
        return NOT_TRAINED
    effects = {}
    for router, (b, noises) in found.items():
        x = np.log10([runs.active_params[size] for size in b.index])
        effects[router_name(router)] = partial(slope_effect, x, b.to_numpy(), list(b.index), noises, runs.noise)
    name, effect = weakest(effects)
    ends = "; ".join(
        f"{router_name(r)}: b from {s.iloc[0]:.4f} ({s.index[0]}) to {s.iloc[-1]:.4f} ({s.index[-1]})"
        for r, (s, _) in found.items()
    )
    return effect, effect.verdict(), f"Lowest: {name}. {ends}."


def better(one: str, other: str, runs: StudyRuns) -> Outcome:
    """The difference of log10 L at equal size and E is averaged within sizes and over them; the interval is Student's
    over sizes, which takes a difference that changes with N for noise, and never less than the seeds'. Holds if it lies
    above zero, does not hold if below; between, the two are not told apart."""
    gap = (runs.losses(other) - runs.losses(one)).dropna()
    if gap.empty:
        return NOT_TRAINED
    effect = runs.mean_gap(gap).scaled(PERCENT)
    won = int((gap > 0).sum())
    why = f"{router_name(one)} has the lower loss in {won} of {len(gap)} pairs.{_drops(runs, gap, one, other)}"
    return effect, effect.verdict(), why


def _drops(runs: StudyRuns, gap: pd.Series, *routers: str) -> str:
    """What the routers drop where they are compared with the most experts, in words: a part of the difference."""
    rows = runs.usual_shape[runs.usual_shape["variant"] == ""]
    rows = rows.assign(dropped=rows["run_id"].map(runs.spreads["dropped"]).astype(float))
    by_cell = rows.groupby(["router", "size", "experts"])["dropped"].mean()
    most = gap.index.get_level_values("experts").max()
    cells = [cell for cell in gap.index if cell[1] == most]
    means = [by_cell.reindex([(router, *cell) for cell in cells]).mean() for router in routers]
    if np.isnan(means).any():
        return ""
    shares = " and ".join(f"{router_name(r)} drops {share:.1%}" for r, share in zip(routers, means, strict=True))
    return f" With E = {most} {shares} of its assignments."


def seeds_agree(runs: StudyRuns) -> Outcome:
    """The spread of seeds, pooled over models and averaged over sizes, gives the range that three seeds are expected to
    have, with the chi-square interval of the spread; what it is at each size is said beside. Holds if the upper end is
    below 0.02 nats, does not hold if the lower end is above."""
    noise = runs.noise(*runs.seeded_sizes)
    if noise is None:
        return NOT_TRAINED
    nats = THREE_SEEDS * noise.loss * np.log(10)
    effect = Effect(noise.sd * nats, noise.low * nats, noise.high * nats, f"{noise.freedom:.0f} degrees of freedom.")
    apart = pd.DataFrame(spread_along(runs)[1]).max(axis=1)
    why = f"{noise.models} models with several seeds; the widest apart {noise.widest:.4f} nats at the end"
    why += "." if apart.empty else f", {apart.max():.4f} along training (after {apart.idxmax():.3g} tokens)."
    by_size = {size: own for size in runs.seeded_sizes if (own := runs.noise(size))}
    if len(by_size) > 1:
        why += f" By size: {', '.join(f'{s} {THREE_SEEDS * n.nats:.3f}' for s, n in by_size.items())}."
    return effect, effect.verdict_below(PAPER_SPREAD), why


def as_good_as_exact(runs: StudyRuns) -> Outcome:
    """S-BASE less BASE, which finds the assignment exactly, at equal size, E and length, in nats. Holds if the interval
    of the mean difference ends below 0.02, the paper's cut-off; does not hold if it lies above."""
    rows = runs.finals[(runs.finals["variant"] == "") & (runs.finals["k"] == 1)]
    keys = ["size", "experts", "tokens_planned", "routing_frequency"]
    by_router = rows.groupby([*keys, "router"])["log_loss_validation"].mean().unstack("router")
    if "base" not in by_router or "s-base" not in by_router:
        return NOT_TRAINED
    pairs = by_router[["s-base", "base"]].dropna()
    if pairs.empty:
        return NOT_TRAINED
    gap = pairs["s-base"] - pairs["base"]
    effect = runs.mean_gap(gap).scaled(float(10 ** pairs["base"].mean() * np.log(10)))
    return (
        effect,
        effect.verdict_below(PAPER_SPREAD),
        f"{len(gap)} pairs; S-BASE has the lower loss in {int((gap < 0).sum())} of them.",
    )


def _order(one: str, other: str, paper: str) -> Claim:
    statement = f"{router_name(one)} has the lower loss than {router_name(other)}"
    return Claim(f"{one} >= {other}", statement, partial(better, one, other), paper,
                 "section 5.1 (comparative analysis)", "difference of the loss at equal N and E, %")  # fmt: skip


CLAIMS = (
    Claim("routing helps", "Routing helps at every size", routing_helps,
          "Routing improves on the dense model at all sizes", "introduction; section 4",
          "lowest mean gain over the dense model, %"),
    Claim("gain falls", "The gain from experts falls with N", gain_falls,
          "“All routing techniques suffer from reducing efficacy as N increases”: c = .009, .012, .012 > 0",
          "section 5.1; table of coefficients", "lowest slope of b(N) in log10 N"),
    _order("s-base", "rl-r", "“S-BASE consistently outperforms RL-R and HASH, though RL-R is very competitive at "
           "smaller N”"),
    _order("rl-r", "hash", "RL-R lies between S-BASE and HASH"),
    _order("s-base", "hash", "“S-BASE consistently outperforms RL-R and HASH”"),
    Claim("base", "S-BASE does no worse than the exact assignment of BASE", as_good_as_exact,
          "Sinkhorn in place of the auction, for its cost; no losses of BASE are printed", "appendix B.2",
          "S-BASE less BASE, nats"),
    Claim("seeds", "Seeds differ by no more than 0.01 to 0.02 nats", seeds_agree,
          "“diverging by no more than 0.01 before 100,000 steps”; 0.02 as the cut-off", "appendix A",
          "expected range of three seeds, nats"),
)  # fmt: skip


@lru_cache(maxsize=2)
def resampled(runs: StudyRuns) -> tuple[dict[str, tuple[Draws, Draws]], dict[str, str]]:
    """Refits to resampled sizes and to resampled runs, by router; of the other routers, why there are none."""
    found, missing = {}, {}
    routed = [r for r in runs.table.routers if r not in ("dense", *PAPER_ROUTERS)]
    for seed, router in enumerate([*PAPER_ROUTERS, *routed]):
        if router not in runs.table.routers:
            missing[router] = NOT_TRAINED
            continue
        try:
            fit = fit_law(PAPER_LAW, select_points(runs.swept, router))
            found[router] = resample_sizes_and_runs(fit, DRAWS, 1 + seed)
        except InputError as error:
            missing[router] = f"the law cannot be resampled: {error}"
    return found, missing


def compared(parameter: str, low: tuple[str, ...], high: tuple[str, ...], runs: StudyRuns) -> Outcome:
    """The paper's law is refitted to resampled sizes and to resampled runs. An effect is the difference between a
    router that should have more of the coefficient and one that should have less (of its logarithm, for expert counts),
    with the hull of both 90 % intervals, the first widened for few sizes. Holds if the lowest of them lies above zero;
    does not hold if one lies below with an interval that allows for their number. Cannot be told where the law of one
    of these routers is at a bound: then its coefficients are not determined, whatever their draws."""
    found, missing = resampled(runs)
    routers = (*low, *high)
    if lacking := [missing[r] for r in routers if r in missing]:
        return lacking[0]
    draws = {r: found[r] for r in routers}
    effects = {
        f"{router_name(more)} against {router_name(less)}": partial(_difference, parameter, draws[more], draws[less])
        for more in high
        for less in low
    }
    name, effect = weakest(effects)
    fitted = "; ".join(f"{router_name(r)} {d[0].fit.params[parameter]:.4g}" for r, d in draws.items())
    loose = [router_name(r) for r, d in draws.items() if d[0].fit.status != "converged"]
    doubt = f" Not determined: the fit of {' and '.join(loose)} is at a bound." if loose else ""
    return effect, OPEN if loose else effect.verdict(), f"Nearest: {name}. {parameter}: {fitted}.{doubt}"


def _difference(parameter: str, more: tuple[Draws, Draws], less: tuple[Draws, Draws], level: float) -> Effect:
    law = more[0].fit.law
    column = law.names.index(parameter)

    def between(one: Array, other: Array) -> Array:
        return law.to_search(one)[:, column] - law.to_search(other)[:, column]

    value = float(between(more[0].fit.params_BP, less[0].fit.params_BP)[0])
    stretch = small_sample_stretch(min(more[0].clusters, less[0].clusters), level), 1.0
    ends = [
        value
        + wider * (np.quantile(between(one.params_RP, other.params_RP), [(1 - level) / 2, (1 + level) / 2]) - value)
        for one, other, wider in zip(more, less, stretch, strict=True)
    ]
    basis = "Interval from refits to resampled sizes and runs."
    return Effect(value, float(min(e[0] for e in ends)), float(max(e[1] for e in ends)), basis)


COEFFICIENT_CLAIMS = (
    Claim("lowest c", "S-BASE has the lowest c", partial(compared, "c", ("s-base",), ("rl-r", "hash")),
          "“S-BASE scales best: the fitted parameter c is lowest”: S-BASE .009, RL-R .012, HASH .012", PLACE,
          "c of the nearer of RL-R and HASH, less that of S-BASE"),
    Claim("e_start", "HASH has a larger E_start", partial(compared, "e_start", ("s-base", "rl-r"), ("hash",)),
          "“HASH has large initial overhead (bigger E_start)”: HASH 4.2, S-BASE 1.8, RL-R 1.9", PLACE,
          "log10 E_start of HASH less that of the nearer other"),
    Claim("e_max", "HASH and RL-R have a larger E_max", partial(compared, "e_max", ("s-base",), ("hash", "rl-r")),
          "“HASH and RL-R maintain power-law behavior for longer than S-BASE (larger E_max)”: 478, 470 against 314",
          PLACE, "log10 E_max of the nearer of HASH and RL-R, less that of S-BASE"),
)  # fmt: skip
