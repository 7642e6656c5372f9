"""Which dense model a routed one equals, and what else follows from a law in (N, E) at one point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from routelaw.fitting.fit_report import unbounded
from routelaw.fitting.intervals import (
    DEFAULT_LEVEL,
    effective_params,
    expert_slope,
    loss_at,
    max_effective_params,
    n_cut,
    size_slope,
)
from routelaw.laws import equivalence
from routelaw.plans.budget import EXPERT_CHOICES
from routelaw.plans.predictor import Predictor


def equivalents(
    predictor: Predictor,
    active_params: float,
    experts: float = 64,
    *,
    dense_size: float | None = None,
    loss: float | None = None,
    level: float = DEFAULT_LEVEL,
) -> dict[str, Any]:
    """Effective parameters of a model of N and E, cut-offs, slopes and loss, with intervals where there are any.

    With a `dense_size`, also the experts it takes to equal a dense model of that size; with a `loss`, the size that
    reaches it at each E. What extrapolates says so.

    >>> found = rl.equivalents(rl.published("clark2022/s-base"), 370e6, 64, dense_size=1.3e9)
    >>> round(found["effective_params"] / 1e9, 2), found["extrapolation"]
    (1.38, '')
    >>> round(found["experts_for_effective"])
    54
    """
    law, params_BP = predictor.law, predictor.params_BP
    equivalence.check_law(law)
    asked = {
        "effective_params": effective_params(law, active_params, experts),
        "max_effective_params": max_effective_params(law, active_params),
        "n_cut": n_cut(law),
        "a_of_e": size_slope(law, active_params, experts),
        "b_of_n": expert_slope(law, active_params, experts),
        "loss": loss_at(law, active_params=active_params, experts=experts),
    }
    row: dict[str, Any] = {"fit": predictor.name, "router": predictor.router, "law": law.name}
    row["source"] = predictor.source
    row.update({name: predictor.value(quantity) for name, quantity in asked.items()})
    row["intervals"] = {name: predictor.interval(quantity, level) for name, quantity in asked.items()}
    row["extrapolation"] = predictor.extrapolation(active_params, experts)
    endless = unbounded(law) if math.isinf(row["max_effective_params"]) else ""
    warnings = [*predictor.warnings, *([endless] if endless and endless not in predictor.warnings else [])]
    row |= {"published": predictor.is_published, "left_out": predictor.left_out, "warnings": warnings}
    if dense_size is not None:
        # A smaller dense model than the one at hand is equalled with one expert.
        needed = equivalence.experts_for_effective(law, params_BP, active_params, dense_size)[0]
        row["experts_for_effective"] = max(float(needed), 1.0)
    if loss is not None:
        sizes = {e: equivalence.size_for_loss(law, params_BP, np.log10(loss), float(e))[0] for e in EXPERT_CHOICES}
        row["level_curve"] = {str(e): float(n) for e, n in sizes.items()}
    return row
