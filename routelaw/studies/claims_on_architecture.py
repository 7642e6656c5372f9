"""Claims about K, R and where the routing is decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd

from routelaw.errors import InputError
from routelaw.figures.experts_per_token import excess_at_equal_flops
from routelaw.figures.matched import OWN_VARIANT
from routelaw.figures.stacked_ffws import stacked_pairs
from routelaw.figures.style import router_name
from routelaw.fitting.claims import NOT_TRAINED, Claim, Effect, Outcome, student, weakest
from routelaw.fitting.fit import fit_law
from routelaw.fitting.matched_runs import FEWEST_SIZES, PERCENT, NoiseOf, mean_effect
from routelaw.fitting.noise import NoiseFloor
from routelaw.fitting.points import Points, select_points
from routelaw.fitting.validation import held_out_residuals
from routelaw.laws.law import Array
from routelaw.studies.study_runs import PAPER_LAW, StudyRuns

ROUTER = "s-base"
NEARLY_TWICE = 1.5
"""Half way between no gain and twice the speed."""


def k_router(runs: StudyRuns) -> str:
    """The technique that was trained with several K: S-BASE, as in the paper, unless only others were."""
    several = set(runs.finals["router"][runs.finals["k"] > 1])
    return ROUTER if ROUTER in several or not several else sorted(several)[0]


def k_excess(runs: StudyRuns) -> pd.DataFrame:
    """K, size, E and log10 of the loss over the K = 1 line at equal FLOPs, for FLOPs that the line covers."""
    try:
        points = select_points(runs.swept, k_router(runs), include_dense=False, mixed=True)
    except InputError:
        return pd.DataFrame()
    points = points.where(points.x["routing_frequency"] == 0.5)
    rows = []
    for experts in np.unique(points.x["experts"]):
        own = points.where(points.x["experts"] == experts)
        line, more = own.where(own.x["k"] == 1), own.where(own.x["k"] > 1)
        if len(line) < 2:
            continue
        ends = line.x["flops_per_token"].min(), line.x["flops_per_token"].max()
        more = more.where((ends[0] <= more.x["flops_per_token"]) & (more.x["flops_per_token"] <= ends[1]))
        excess = excess_at_equal_flops(more.x["flops_per_token"], more.loss, line)
        rows += [
            {"k": int(k), "size": s, "experts": int(experts), "excess": e}
            for k, s, e in zip(more.x["k"], more.size, excess, strict=True)
        ]
    return pd.DataFrame(rows)


def line_scatter(runs: StudyRuns, size: str) -> NoiseFloor | None:
    """Noise of a run of a size about the K = 1 line: that of the seeds, or the scatter of all sizes about a parabola in
    log F."""
    noise = runs.noise(size)
    squares, freedom = 0.0, 0
    points = select_points(runs.swept, k_router(runs), include_dense=False)
    for experts in np.unique(points.x["experts"]):
        own = points.where(points.x["experts"] == experts)
        if len(own) > 3:
            x = np.log10(own.x["flops_per_token"])
            residual = own.log_loss - np.polyval(np.polyfit(x, own.log_loss, 2), x)
            squares, freedom = squares + float((residual**2).sum()), freedom + len(own) - 3
    scatter = float(np.sqrt(squares / freedom)) if freedom else 0.0
    if noise is None or scatter <= noise.sd:
        return noise
    return replace(noise, sd=scatter, freedom=freedom)


def one_expert_on_front(runs: StudyRuns) -> Outcome:
    """S-BASE with K > 1 is compared with the line through its K = 1 runs of the same E at the same FLOPs per token
    (log-log between sizes, only where it covers them; a straight line between sizes lies above a convex curve, which
    favours K > 1 a little). The mean excess over that line is taken for each K and E, with an interval of the seed
    noise or, where that is larger, of the scatter of four sizes or more about a smooth curve. Holds if the lowest of
    them is above zero; does not hold if one lies below with an interval that allows for their number."""
    excess = k_excess(runs)
    if excess.empty:
        return NOT_TRAINED
    noise = cache(partial(line_scatter, runs))
    groups = {f"K = {k} with E = {e}": g for (k, e), g in excess.groupby(["k", "experts"])}
    name, effect = weakest({name: partial(_mean_excess, g, noise) for name, g in groups.items()})
    effect = effect.scaled(PERCENT)
    if any(noise(size) != runs.noise(size) for size in set(excess["size"])):
        effect = replace(effect, basis=effect.basis.replace("seed noise", "the scatter about smooth curves"))
    means = "; ".join(f"{n}: {PERCENT * g['excess'].mean():+.2f} %" for n, g in groups.items())
    return effect, effect.verdict(), f"Lowest: {name}. {means}."


def _mean_excess(group: pd.DataFrame, noise: NoiseOf, level: float) -> Effect:
    return mean_effect(group["excess"].to_numpy(), list(group["size"]), noise, level=level)


def varied_points(runs: StudyRuns) -> Points:
    """S-BASE of the sizes that have more than one (K, R), at every K and R; no dense runs."""
    points = select_points(runs.table, ROUTER, include_dense=False, mixed=True)
    pairs = np.array([f"{k:g} {r:.4f}" for k, r in zip(points.x["k"], points.x["routing_frequency"], strict=True)])
    varied = [s for s in points.sizes if len(set(pairs[points.size == s])) > 1]
    return points.where(np.isin(points.size.astype(str), varied))


def compute_unifies(runs: StudyRuns) -> Outcome:
    """The paper's law in (N, E) and in (F, B) are fitted to S-BASE of all K and R, at the sizes that have several, and
    each run is predicted from the others. The effect is how much larger the absolute error in (N, E) is, its median
    within a size (one run at the edge that a law flies off at would decide a mean) and the mean over sizes (over runs
    where there are fewer than three sizes). Holds if its interval lies above zero, does not hold if below."""
    try:
        points = varied_points(runs)
        if not len(points):
            return NOT_TRAINED
        errors = [np.abs(_one_out(law, points)) for law in (PAPER_LAW, "compute")]
    except InputError as error:
        return f"the laws cannot be fitted: {error}" if ROUTER in runs.table.routers else NOT_TRAINED
    gap = errors[0] - errors[1]
    few = len(points.sizes) < FEWEST_SIZES
    clusters = pd.Series(gap, np.arange(len(points)) if few else points.size).dropna()
    if clusters.empty:
        return "without a run the laws are not determined"
    middle = clusters.groupby(level=0).median()
    unit = "runs" if few else "sizes"
    noise = (lambda _: runs.noise(*points.sizes)) if few else runs.noise
    effect = mean_effect(middle.to_numpy(), list(middle.index), noise, unit=unit).scaled(1e4)
    typical = [1e4 * float(np.nanmedian(e)) for e in errors]
    why = (f"{len(points)} runs: median error {typical[0]:.1f}e-4 in (N, E), {typical[1]:.1f}e-4 in (F, B), each run "
           "left out.")  # fmt: skip
    return effect, effect.verdict(), why


def _one_out(law: str, points: Points) -> Array:
    return held_out_residuals(fit_law(law, points), np.arange(len(points)))


def lowest_frequency(runs: StudyRuns, router: str) -> pd.Series:
    """log10 L by (size, E, R) with the fewest routed blocks that a size was trained with, below every other one."""
    rows = runs.one_length
    few = (rows["router"] == router) & (rows["variant"] == "") & (rows["k"] == 1) & (rows["routing_frequency"] < 0.45)
    rows = rows[few]
    rows = rows[rows["routing_frequency"] == rows.groupby("size")["routing_frequency"].transform("min")]
    return rows.groupby(["size", "experts", "routing_frequency"])["log_loss_validation"].mean()


def hash_best_with_one_layer(runs: StudyRuns) -> Outcome:
    """At the lowest R of each size (one routed block) the loss of S-BASE is compared with that of HASH at equal E.
    Holds if the interval of the mean difference lies above zero, does not hold if below."""
    gap = (lowest_frequency(runs, ROUTER) - lowest_frequency(runs, "hash")).dropna()
    if gap.empty:
        return NOT_TRAINED
    sizes = list(dict.fromkeys(gap.index.get_level_values("size")))
    effect = runs.mean_gap(gap).scaled(PERCENT)
    return (
        effect,
        effect.verdict(),
        f"HASH has a lower loss than S-BASE in {int((gap > 0).sum())} of {len(gap)} pairs, at {' and '.join(sizes)}.",
    )


def halving_k_doubles_speed(runs: StudyRuns) -> Outcome:
    """Training speed in tokens per second of S-BASE with K over that with 2K, each with the device for itself, at equal
    size and E. Holds if Student's interval of the mean ratio lies above 1.5 (half way between no gain and twice the
    speed), does not hold if below."""
    if runs.own_speeds is None:
        return "no speed of a model by itself was recorded"
    speed = runs.finals.assign(tokens_per_second=runs.finals["run_id"].map(runs.own_speeds))
    same = (speed["router"] == ROUTER) & (speed["variant"] == "") & np.isclose(speed["routing_frequency"], 0.5)
    by_k = speed[same].pivot_table(index=["size", "experts"], columns="k", values="tokens_per_second")
    tried = [int(k) for k in by_k.columns]
    ratios = [by_k[k] / by_k[2 * k] for k in tried if 2 * k in tried]
    ratio = pd.concat(ratios).dropna() if ratios else pd.Series(dtype=float)
    if len(ratio) < 2:
        return NOT_TRAINED
    half = student(len(ratio) - 1) * float(ratio.std()) / np.sqrt(len(ratio))
    effect = Effect.around(float(ratio.mean()), half, f"Interval from {len(ratio)} pairs.")
    why = f"From {ratio.min():.2f} to {ratio.max():.2f} times; a whole model, of which the routed FFWs are a part."
    return effect, effect.verdict(NEARLY_TWICE), why


def deciding_anew(runs: StudyRuns) -> Outcome:
    """S-BASE whose first routed block decides for all, against S-BASE, at equal size, E and R; not where losses are
    equal to the last digit, since one routed block has nothing to share. Holds if the interval of the mean difference
    lies above zero, does not hold if below."""
    gap = runs.beside_usual(ROUTER, "shared_decisions", ("k", "routing_frequency"))
    gap = gap[gap != 0]
    if gap.empty:
        return NOT_TRAINED
    effect = runs.mean_gap(gap).scaled(PERCENT)
    return effect, effect.verdict(), f"{len(gap)} pairs: {_listed(gap)}."


def interleaved_better(runs: StudyRuns) -> Outcome:
    """One routed block of several FFWs per expert against as many routed blocks of one, S-BASE and HASH, at equal E and
    the same size but for the FFWs added (the nearest by active parameters). Holds if the interval of the mean
    difference lies above zero, does not hold if below."""
    gaps = [gap for router in (ROUTER, "hash") for gap in stacked_gaps(runs, router)]
    if not gaps:
        return NOT_TRAINED
    sizes, _, values = zip(*gaps, strict=True)
    effect = mean_effect(np.array(values), sizes, runs.noise).scaled(PERCENT)
    return effect, effect.verdict(), f"{len(gaps)} pairs of {router_name(ROUTER)} and HASH: {_listed(values)}."


def _listed(gaps: Iterable[float]) -> str:
    """Differences of log10 L one by one: with few pairs the interval is of chance alone, and they may disagree."""
    return ", ".join(f"{PERCENT * gap:+.1f} %" for gap in gaps)


def stacked_gaps(runs: StudyRuns, router: str) -> Iterator[tuple[str, int, float]]:
    """(size, E, log10 of the loss of a stacked model over that of its interleaved partner)."""
    rows = runs.one_length[runs.one_length["router"] == router]
    for pair in stacked_pairs(rows.assign(**{OWN_VARIANT: rows["variant"]})):
        yield str(pair.interleaved["size"]), int(pair.interleaved["experts"]), pair.gap


CLAIMS = (
    Claim("k front", "K = 1 is on the Pareto front", one_expert_on_front, "“K = 1 is always in the pareto front”",
          "appendix D.5", "lowest mean excess of K > 1 over K = 1 at equal FLOPs, %"),
    Claim("compute law", "One law in (F, B) unifies K and R", compute_unifies,
          "(F, B) captures “an even wider set of routing architectures under a shared fit”", "section 4.4",
          "error in (N, E) less that in (F, B), median within a size, 1e-4 of log10 L"),
    Claim("hash one layer", "HASH is best with one routed layer", hash_best_with_one_layer,
          "“At a single routed layer, HASH has the lowest validation loss across model sizes”", "appendix D.2",
          "S-BASE over HASH, %"),
    Claim("k speed", "Halving K nearly doubles the speed", halving_k_doubles_speed,
          "“close to 2x speedup in inference and training”", "appendix D.5",
          "tokens per second with K over those with 2K"),
    Claim("shared decisions", "S-BASE gains from deciding anew in every layer", deciding_anew,
          "shared decisions cost S-BASE its lead over HASH", "appendix D.3",
          "loss with shared decisions over that without, %"),
    Claim("interleaved", "Three routed layers beat one of three FFWs", interleaved_better,
          "“slightly better performance than three stacked FFWs”", "appendix D.4", "stacked over interleaved, %"),
)  # fmt: skip
