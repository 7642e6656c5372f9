"""From a budget to a model, in one call: published fits or a table of losses, every candidate, the best of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from routelaw.errors import InputError
from routelaw.fitting.intervals import DEFAULT_DRAWS, DEFAULT_LEVEL
from routelaw.formatting import html_lines, html_table, number, text_table
from routelaw.laws.law import Law
from routelaw.plans.budget import (
    EXPERT_CHOICES,
    FREQUENCY_CHOICES,
    K_CHOICES,
    Budget,
    Candidate,
    best_models,
    check_countable,
)
from routelaw.plans.literature import published_predictors
from routelaw.plans.predictor import Predictor, fitted_predictors
from routelaw.runs.table import RunTable
from routelaw.specs.counting import Architecture
from routelaw.specs.sizes import PAPER_SIZES


@dataclass(frozen=True, eq=False)
class Plan:
    """The best models within a budget, best first, and what predicted their losses.

    >>> plan = rl.plan(rl.Budget(total_params=10e9, flops_per_token=1e9), top=2)
    >>> print(plan)
    model        E    K  R    loss  interval  total params  FLOPs/token  extrapolation
    ...
    >>> len(plan.models), plan.best.loss < plan.models[1].loss
    (2, True)
    """

    budget: Budget
    models: list[Candidate]
    predictors: list[Predictor]

    @property
    def best(self) -> Candidate:
        return self.models[0]

    def __repr__(self) -> str:
        return "\n".join([text_table(*self._table()), *self._warnings()])

    def _repr_html_(self) -> str:
        return html_table(*self._table()) + html_lines(self._warnings())

    def _table(self) -> tuple[list[str], list[list[str]]]:
        header = ["model", "E", "K", "R", "loss", "interval", "total params", "FLOPs/token", "extrapolation"]
        return header, [_row(candidate) for candidate in self.models]

    def _warnings(self) -> list[str]:
        return [f"warning: {p.name}: {warning}" for p in self.predictors for warning in p.warnings]


def _row(c: Candidate) -> list[str]:
    routed = c.experts > 1
    return [
        f"{c.router} {c.size}",
        str(c.experts),
        str(c.k) if routed else "–",
        f"{c.routing_frequency:g}" if routed else "–",
        f"{c.loss:.4f}",
        "–" if c.interval is None else f"[{c.interval[0]:.4f}, {c.interval[1]:.4f}]",
        number(c.counts.total_params),
        number(c.counts.flops_per_token),
        c.extrapolation,
    ]


def plan(
    budget: Budget,
    table: RunTable | None = None,
    *,
    fits: Sequence[str] = (),
    law: str | Law = "saturated",
    routers: Sequence[str] = (),
    target: str = "loss_validation",
    sizes: Mapping[str, Architecture] = PAPER_SIZES,
    experts: Iterable[int] = EXPERT_CHOICES,
    ks: Iterable[int] = K_CHOICES,
    frequencies: Iterable[float] = FREQUENCY_CHOICES,
    level: float = DEFAULT_LEVEL,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    top: int = 8,
    notice: Callable[[str], None] = logging.getLogger("routelaw").warning,
) -> Plan:
    """The best (router, size, E, K, R) within a budget, with intervals, and a word where the answer extrapolates.

    Losses are predicted by `law` fitted to each router of a `table`; without one, by published fits: `fits` by name,
    or those of the paper. `sizes` are the architectures to consider, `experts`, `ks` and `frequencies` the E, K and R;
    K and R are ranked by laws that read compute.

    >>> rl.plan(rl.Budget(memory_bytes=24e9, flops_per_token=1e9), fits=["clark2022/s-base"]).best.router
    's-base'
    >>> rl.plan(rl.Budget(total_params=1e9), table, law="bilinear", routers=["hash"], draws=50).best.interval is None
    False
    """
    if table is None:
        if law != "saturated" or target != "loss_validation":
            asked = f"law {law}" if law != "saturated" else f"target {target}"
            raise InputError(f"{asked} needs a run table: the published fits are of law saturated, loss_validation.")
        predictors = published_predictors(fits, routers)
    else:
        if fits:
            raise InputError("give either a run table or fits by name, not both.")
        predictors = fitted_predictors(
            table, law, routers, target=target, draws=draws, seed=seed, check=check_countable, notice=notice
        )
    chosen = {"experts": experts, "ks": ks, "frequencies": frequencies}
    return Plan(budget, best_models(predictors, budget, sizes, level=level, top=top, **chosen), predictors)
