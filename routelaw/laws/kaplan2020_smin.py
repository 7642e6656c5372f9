"""Kaplan et al. 2020, Eq. 1.6 in S_min: L = (N_c/N)^α_N + (S_c/S_min)^α_S, where S_min = S/(1 + B_crit(L)/B).

The S of Kaplan's law is S_min, the fewest steps that reach the loss, at a batch far above the critical one
(routelaw/laws/critical_batch.py); law kaplan2020 takes the plain step. B is tokens over steps of the run table. B_*
and α_B are Kaplan's, since runs of one batch size cannot determine them; `InMinSteps(CriticalBatch(…))` is the law
with others. B_crit depends on L, so the formula is an equation for L, with one solution where α_S ≥ 0. Kaplan et al.
put the measured loss there, which lets the error of a measurement into its own prediction; here it is the predicted
loss.

With y = ln L the equation is y = ln(A + D·(1 + r)^α_S), where A and D are the two powers at the plain step and
r = B_crit/B. The right side falls and is convex in y, so Newton's steps from any start find the solution.

Shapes: B parameter vectors, R weightings, N points, P parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from routelaw.laws.critical_batch import CriticalBatch
from routelaw.laws.kaplan2020 import LAW as IN_STEPS
from routelaw.laws.law import LN10, Array, Inputs, Law

NEWTON_STEPS = 60


class _Solved(NamedTuple):
    """ln L, and at the solution the share of D in L, ln(1 + r), and the slope of the right side in y; each (B, N)."""

    y: Array
    share: Array
    slowed: Array
    slope: Array


class InMinSteps(Law):
    name = "kaplan2020-smin"
    formula = "L = (N_c/N)^α_N + (S_c/S_min)^α_S, S_min = S/(1 + B_crit(L)/B)"
    source = "Kaplan et al. 2020, Eq. 1.6 with 5.3 and 5.4"
    inputs = ("active_params", "step", "tokens")
    parameters = (*IN_STEPS.parameters[:3], replace(IN_STEPS.parameters[3], high=0.0))
    constants = IN_STEPS.constants
    along_training = True

    def __init__(self, critical: CriticalBatch | None = None) -> None:
        """B_crit(L) is Kaplan's unless given."""
        self.critical = critical or CriticalBatch()

    def log_loss(self, params_BP: Array, x: Inputs) -> Array:
        return self._solve(params_BP, x).y / LN10

    def jacobian(self, params_BP: Array, x: Inputs) -> Array:
        """By differentiating the equation: dy/dθ = (∂ right side/∂θ)/(1 − slope)."""
        solved = self._solve(params_BP, x)
        u, s = (np.log10(np.atleast_2d(x[name])) for name in ("active_params", "step"))
        rest = 1 - solved.share
        columns = (rest, rest * u, solved.share, solved.share * (s - solved.slowed / LN10))
        return np.stack(columns, axis=-1) / (1 - solved.slope)[..., None]

    def starts(self, x: Inputs, loss_N: Array, weights_RN: Array, count: int) -> Array:
        """Those of the plain law at the S_min of the measured losses."""
        least_N = self.critical.min_steps(x["step"], x["tokens"] / x["step"], loss_N)
        starts_RSP = IN_STEPS.starts({**x, "step": least_N}, loss_N, weights_RN, count).copy()
        starts_RSP[..., 3] = np.minimum(starts_RSP[..., 3], 0.0)
        return starts_RSP

    def _solve(self, params_BP: Array, x: Inputs) -> _Solved:
        level_n, slope_n, level_s, slope_s = (params_BP[:, i, None] for i in range(4))
        step, tokens = (np.atleast_2d(x[name]) for name in ("step", "tokens"))
        power = 1 / self.critical.exponent
        with np.errstate(all="ignore"):
            a = LN10 * (level_n + slope_n * np.log10(np.atleast_2d(x["active_params"])))
            d = LN10 * (level_s + slope_s * np.log10(step))
            at_one_nat = np.log(self.critical.scale * step / tokens)
            y = np.logaddexp(a, d)
            for _ in range(NEWTON_STEPS):
                slowed = np.logaddexp(0.0, at_one_nat - power * y)
                right = np.logaddexp(a, d - slope_s * slowed)
                share = np.exp(d - slope_s * slowed - right)
                slope = share * slope_s * power * -np.expm1(-slowed)
                move = (right - y) / (1 - slope)
                y = y + move
                if not (np.abs(move) > 1e-14 * np.maximum(np.abs(y), 1.0)).any():
                    break
        return _Solved(y, share, slowed, slope)


LAW = InMinSteps()
