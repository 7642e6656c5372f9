"""From a budget to a model: the best (size, E, K, R) within limits on parameters, compute or memory, or for a loss.

Every candidate of a ladder of architectures is counted exactly and its loss predicted, by published fits or by fits to
a table of losses; nothing is optimised in closed form, so any law and any mixture of limits will do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from routelaw.errors import InputError
from routelaw.fitting.intervals import DEFAULT_DRAWS, DEFAULT_LEVEL, effective_params, loss_at
from routelaw.fitting.points import DEFAULT_FREQUENCY, DEFAULT_K, in_size_and_experts
from routelaw.formatting import html_lines, html_table, number, text_table
from routelaw.laws.law import Law
from routelaw.plans.literature import published_predictors
from routelaw.plans.predictor import Predictor, fitted_predictors
from routelaw.runs.table import RunTable
from routelaw.specs.counting import VOCABULARY, Architecture, Counts, count, routed_blocks
from routelaw.specs.names import DENSE, TECHNIQUES
from routelaw.specs.sizes import PAPER_SIZES

EXPERT_CHOICES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
K_CHOICES, FREQUENCY_CHOICES = (1, 2, 4), (0.25, 0.5, 1.0)
COUNTED_LIKE = "switch"
"""How a router that counting does not know is counted: one linear layer per routed block."""


@dataclass(frozen=True)
class Budget:
    """What a model may cost. None is no limit.

    >>> rl.Budget(memory_bytes=24e9, flops_per_token=1e9).bytes_per_param
    2.0
    """

    total_params: float | None = None
    flops_per_token: float | None = None
    """Inference: forward FLOPs per token."""
    memory_bytes: float | None = None
    """Memory of the weights, embeddings included, at `bytes_per_param`."""
    bytes_per_param: float = 2.0
    target_loss: float | None = None
    """With a target, the cheapest model that reaches it is best; without, the lowest loss within the limits."""

    def __post_init__(self) -> None:
        limits = (self.total_params, self.flops_per_token, self.memory_bytes, self.target_loss)
        if all(limit is None for limit in limits):
            raise InputError("a plan needs a limit: total parameters, FLOPs per token, memory, or a target loss.")
        if any(limit is not None and not 0 < limit < np.inf for limit in (*limits, self.bytes_per_param)):
            raise InputError("the limits and the target of a plan must be positive, finite numbers.")

    def allows(self, counts: Counts, memory_bytes: float) -> bool:
        checks = (
            (self.total_params, counts.total_params),
            (self.flops_per_token, counts.flops_per_token),
            (self.memory_bytes, memory_bytes),
        )
        return all(limit is None or cost <= limit for limit, cost in checks)


@dataclass(frozen=True)
class Candidate:
    router: str
    size: str
    experts: int
    k: int
    routing_frequency: float
    counts: Counts
    memory_bytes: float
    loss: float = np.nan
    interval: tuple[float, float] | None = None
    effective_params: float | None = None
    extrapolation: str = ""


def best_models(
    predictors: Sequence[Predictor],
    budget: Budget,
    sizes: Mapping[str, Architecture],
    *,
    experts: Iterable[int] = EXPERT_CHOICES,
    ks: Iterable[int] = K_CHOICES,
    frequencies: Iterable[float] = FREQUENCY_CHOICES,
    level: float = 0.9,
    top: int = 10,
) -> list[Candidate]:
    """The best candidates, best first, with intervals and extrapolation spelled out for those returned.

    `ks` and `frequencies` are for laws that read compute; a law in (N, E) speaks of the K and R it was fitted at.

    >>> best = rl.best_models([rl.published("clark2022/s-base")], rl.Budget(total_params=2e9), rl.PAPER_SIZES, top=3)
    >>> len(best), best[0].counts.total_params < 2e9
    (3, True)
    """
    scored: list[tuple[Predictor, Candidate]] = []
    experts, ks, frequencies = tuple(experts), tuple(ks), tuple(frequencies)
    for predictor in predictors:
        check_countable(predictor.law)
        choices = [(k, r) for k in ks for r in frequencies]
        if not ranks_architectures(predictor.law):
            choices = [(predictor.k, predictor.routing_frequency)]
        affordable = list(_affordable(predictor.router, budget, sizes, experts, choices))
        if not affordable:
            continue
        losses = 10.0 ** predictor.log_loss(**_inputs(affordable))
        scored += [
            (predictor, replace(c, loss=float(loss)))
            for c, loss in zip(affordable, losses, strict=True)
            if np.isfinite(loss)
        ]
    if not scored:
        raise InputError("no model of this ladder fits the budget: raise a limit, or allow smaller sizes.")
    if budget.target_loss is not None:
        reached = [pair for pair in scored if pair[1].loss <= budget.target_loss]
        if not reached:
            lowest = min(c.loss for _, c in scored)
            raise InputError(
                f"no model within the limits is predicted to reach a loss of {budget.target_loss:g}; "
                f"the lowest predicted is {lowest:.4f}."
            )
        reached.sort(key=lambda pair: (pair[1].counts.flops_per_token, pair[1].counts.total_params, pair[1].loss))
        scored = reached
    else:
        scored.sort(key=lambda pair: (pair[1].loss, pair[1].counts.flops_per_token))
    return [_detailed(predictor, candidate, level) for predictor, candidate in _distinct(scored)[:top]]


def check_countable(law: Law) -> None:
    """A plan counts sizes, experts and compute: a law of anything else (a step of training) cannot rank its models."""
    sizes = {"active_params", "total_params", "flops_per_token"}
    if not sizes & set(law.inputs) or not set(law.inputs) <= {*sizes, "experts"}:
        raise InputError(f"law {law.name} cannot rank models by size and compute: plan with another, e.g. saturated.")


def ranks_architectures(law: Law) -> bool:
    """Whether a law tells models of different K and R apart: through the compute they take."""
    return "flops_per_token" in law.inputs


def _distinct(scored: list[tuple[Predictor, Candidate]]) -> list[tuple[Predictor, Candidate]]:
    """A dense model is the same under every router's fit: keep its best-placed appearance."""
    seen: set[tuple[str, ...]] = set()
    kept = []
    for predictor, candidate in scored:
        key = (candidate.size,) if candidate.experts == 1 else (candidate.size, candidate.router, str(candidate))
        if key not in seen:
            kept.append((predictor, candidate))
            seen.add(key)
    return kept


def _affordable(
    router: str,
    budget: Budget,
    sizes: Mapping[str, Architecture],
    experts: Sequence[int],
    choices: Sequence[tuple[int, float]],
) -> Iterator[Candidate]:
    """Every model of the ladder that is within the limits; dense (E = 1) once per size, since it has no K and R."""
    for name, architecture in sizes.items():
        for e in experts if router != DENSE else (1,):
            for k, r in choices if e > 1 else ((DEFAULT_K, DEFAULT_FREQUENCY),):
                if k > e or routed_blocks(architecture.blocks, r) < 1:
                    continue
                technique = router if e > 1 else DENSE
                counted = technique if technique in TECHNIQUES else COUNTED_LIKE
                counts = count(architecture, counted, e, k=k, routing_frequency=r)
                memory = (counts.total_params + VOCABULARY * architecture.d_model) * budget.bytes_per_param
                if budget.allows(counts, memory):
                    yield Candidate(technique, name, e, k, r, counts, memory)


def _inputs(candidates: list[Candidate]) -> dict[str, np.ndarray]:
    counts = [c.counts for c in candidates]
    return {
        "active_params": np.array([c.active_params for c in counts], float),
        "experts": np.array([c.experts for c in candidates], float),
        "total_params": np.array([c.total_params for c in counts], float),
        "flops_per_token": np.array([c.flops_per_token for c in counts], float),
    }


def _detailed(predictor: Predictor, candidate: Candidate, level: float) -> Candidate:
    counts = candidate.counts
    everything = {
        "active_params": float(counts.active_params),
        "experts": float(candidate.experts),
        "total_params": float(counts.total_params),
        "flops_per_token": float(counts.flops_per_token),
    }
    law = predictor.law
    quantity = loss_at(law, **{name: everything[name] for name in law.inputs})
    effective = None
    if in_size_and_experts(law):
        effective = predictor.value(effective_params(law, counts.active_params, candidate.experts))
    return replace(
        candidate,
        interval=predictor.interval(quantity, level),
        effective_params=effective,
        extrapolation=predictor.extrapolation(
            counts.active_params, candidate.experts, (candidate.k, candidate.routing_frequency), everything
        ),
    )


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
