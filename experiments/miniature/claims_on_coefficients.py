"""Claims about coefficients of the paper's law, from refits to resampled sizes and to resampled runs.

Both kinds of resampling are used because each is blind to something: whole sizes (the same for all routers, so that
what routers share cancels) to the common pattern in E, single runs to what runs of a size share.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from experiments.miniature.claim import NOT_TRAINED, OPEN, Effect, Statement, Test, weakest
from experiments.miniature.effects import both_levels
from experiments.miniature.laws import PAPER_LAW
from experiments.miniature.study import PAPER_ROUTERS, Study
from routelaw.errors import InputError
from routelaw.figures.style import router_label
from routelaw.fitting.fit import fit_law
from routelaw.fitting.intervals import Draws, bootstrap, small_sample_stretch
from routelaw.fitting.points import select_points
from routelaw.laws.law import Array

DRAWS = 400


@lru_cache(maxsize=2)
def resampled(study: Study) -> tuple[dict[str, tuple[Draws, Draws]], dict[str, str]]:
    """Refits to resampled sizes and to resampled runs, by router; of the other routers, why there are none."""
    found, missing = {}, {}
    routed = [r for r in study.table.routers if r not in ("dense", *PAPER_ROUTERS)]
    for seed, router in enumerate([*PAPER_ROUTERS, *routed]):
        if router not in study.table.routers:
            missing[router] = NOT_TRAINED
            continue
        try:
            fit = fit_law(PAPER_LAW, select_points(study.swept, router))
            # One seed for all routers pairs the sizes drawn, if all have the same; runs are independent, so are seeds.
            found[router] = bootstrap(fit, draws=DRAWS), bootstrap(fit, "case-bootstrap", DRAWS, seed=1 + seed)
        except InputError as error:
            missing[router] = f"the law cannot be resampled: {error}"
    return found, missing


def compared(
    parameter: str, low: tuple[str, ...], high: tuple[str, ...], study: Study
) -> tuple[Effect, str, str] | str:
    """The paper's law is refitted to resampled sizes and to resampled runs. An effect is the difference between a
    router that should have more of the coefficient and one that should have less (of its logarithm, for expert counts),
    with the hull of both 90 % intervals, the first widened for few sizes. Holds if the lowest of them lies above zero;
    does not hold if one lies below with an interval that allows for their number. Cannot be told where the law of one
    of these routers is at a bound: then its coefficients are not determined, whatever their draws."""
    found, missing = resampled(study)
    routers = (*low, *high)
    if lacking := [missing[r] for r in routers if r in missing]:
        return lacking[0]
    draws = {r: found[r] for r in routers}
    pairs = [(more, less) for more in high for less in low]
    effects = {
        f"{router_label(more)} against {router_label(less)}": both_levels(
            partial(_difference, parameter, draws[more], draws[less]), len(pairs)
        )
        for more, less in pairs
    }
    name, effect = weakest(effects)
    fitted = "; ".join(f"{router_label(r)} {d[0].fit.params[parameter]:.4g}" for r, d in draws.items())
    loose = [router_label(r) for r, d in draws.items() if d[0].fit.status != "converged"]
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


def _compared(said: Statement, parameter: str, low: tuple[str, ...], high: tuple[str, ...]) -> Test:
    judge = partial(compared, parameter, low, high)
    judge.__doc__ = compared.__doc__
    return Test(said, judge)


PLACE = "section 5.1; table of coefficients"
TESTS = (
    _compared(
        Statement("lowest c", "S-BASE has the lowest c", "“S-BASE scales best: the fitted parameter c is lowest”: "
                  "S-BASE .009, RL-R .012, HASH .012", PLACE, "c of the nearer of RL-R and HASH, less that of S-BASE"),
        "c", ("s-base",), ("rl-r", "hash"),
    ),
    _compared(
        Statement("e_start", "HASH has a larger E_start", "“HASH has large initial overhead (bigger E_start)”: HASH "
                  "4.2, S-BASE 1.8, RL-R 1.9", PLACE, "log10 E_start of HASH less that of the nearer other"),
        "e_start", ("s-base", "rl-r"), ("hash",),
    ),
    _compared(
        Statement("e_max", "HASH and RL-R have a larger E_max", "“HASH and RL-R maintain power-law behavior for longer "
                  "than S-BASE (larger E_max)”: 478, 470 against 314", PLACE,
                  "log10 E_max of the nearer of HASH and RL-R, less that of S-BASE"),
        "e_max", ("s-base",), ("hash", "rl-r"),
    ),
)  # fmt: skip
