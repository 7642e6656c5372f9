"""Many weighted fits of one law at once: Levenberg–Marquardt with variable projection, vectorised over the fits.

Leaving points out and resampling them are the same points under other weights, so cross-validation, bootstrap and
multi-start are all one call here: B problems that share the points and differ in weights and starting values.

Where log L is linear in the law's coefficients they are solved for at every step and only the rest is searched
(Golub & Pereyra 1973, with Kaufman's simplification: undamped linear columns in the normal equations are exactly that).
Damping follows the ratio of what a step gained to what it promised (Nielsen 1999).
Residuals are of order 1e-3, their squares 1e-6 and less; everything below is relative, so no absolute tolerance can end
a search early. (Best-of-many L-BFGS-B with default tolerances does end early on this problem; see `published.py`.)

Shapes: B problems, N points, P parameters, C of them linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from routelaw.laws.law import Array, Evaluation, Inputs, Law
from routelaw.laws.power_sum import PowerSum
from routelaw.laws.power_sum_at_points import PowerSumAtPoints

MAX_STEPS = 300
RELATIVE_GAIN = 1e-11
"""A search ends when a nearly undamped step promises to take less than this share off the error."""

ELEMENTS_AT_ONCE = 1 << 18
"""Numbers of the Jacobians that are worked on at a time: what a processor keeps near."""
EXACT = 1e-26
"""An error below this share of Σ w·(log L)² is rounding: the law passes through every point."""


class Pull(Protocol):
    """One extra residual per problem: how a profile holds a quantity near a value. `index_B` names the problems."""

    def residual(self, search_BP: Array, index_B: Array) -> Array:
        """(B,)"""
        ...

    def slope(self, search_BP: Array, index_B: Array) -> Array:
        """(B, P)"""
        ...


@dataclass(frozen=True)
class Solutions:
    search_BP: Array
    """Optimum of each problem, in search coordinates."""
    error_B: Array
    """The weighted error that was asked for (without the pull)."""
    converged_B: Array


def minimise(
    law: Law,
    x: Inputs,
    log_loss_N: Array,
    weights_BN: Array,
    start_BP: Array,
    pull: Pull | None = None,
    delta: float | None = None,
) -> Solutions:
    """Local optimum of Σ w·(law − log L)² from each starting vector (search coordinates).

    With `delta` it is Huber's error: residuals beyond it count linearly, 2δ|r| − δ² instead of r².
    """
    search = _Search(law, x, log_loss_N, weights_BN, pull, delta)
    return search.run(start_BP)


class _Search:
    """The problems in flight. Normal equations are kept where they were computed: a step that is refused changes the
    damping alone, so only accepted steps pay for slopes."""

    def __init__(
        self, law: Law, x: Inputs, log_loss_N: Array, weights_BN: Array, pull: Pull | None, delta: float | None
    ) -> None:
        self.law, self.x, self.y_N, self.w_BN, self.pull = law, x, log_loss_N, weights_BN, pull
        self.delta = delta
        self.at = law.at_points(x)
        self.low_P, self.high_P = law.search_bounds()
        self.exact_B = EXACT * (weights_BN @ log_loss_N**2)
        # Coefficients are solved for under squared error alone.
        projects = isinstance(law, PowerSum) and law.is_log_linear and pull is None and delta is None
        self.linear = law.linear_count if isinstance(law, PowerSum) and projects else 0
        self.damped_P = np.arange(len(law.parameters)) >= self.linear
        self.at_once = max(1, ELEMENTS_AT_ONCE // (log_loss_N.size * (len(law.parameters) + 1)))
        B, P = len(weights_BN), len(law.parameters)
        self.z_BP, self.cost_B, self.error_B = np.full((B, P), np.nan), np.full(B, np.inf), np.full(B, np.inf)
        self.normal_BPP, self.gradient_BP = np.empty((B, P, P)), np.empty((B, P))

    def run(self, start_BP: Array) -> Solutions:
        total = len(start_BP)
        with np.errstate(all="ignore"):
            for index_L in self._pieces(np.arange(total)):
                self.z_BP[index_L] = self._project(np.clip(start_BP[index_L], self.low_P, self.high_P), index_L)
                self._accept(self.z_BP[index_L], index_L, np.full(index_L.size, np.inf), np.zeros(index_L.size, bool))
            converged_B = np.zeros(total, dtype=bool)
            self.damping_B, self.growth_B = np.full(total, 1e-3), np.full(total, 2.0)
            live = np.flatnonzero(np.isfinite(self.cost_B))
            for _ in range(MAX_STEPS):
                if live.size == 0:
                    break
                done_L = np.concatenate([self._advance(index_L) for index_L in self._pieces(live)])
                converged_B[live[done_L]] = True
                live = live[~done_L]
        return Solutions(self.z_BP, self.error_B, converged_B)

    def _pieces(self, index_B: Array) -> list[Array]:
        """As many problems at a time as the processor's cache holds."""
        return [index_B[i : i + self.at_once] for i in range(0, index_B.size, self.at_once)]

    def _advance(self, index_L: Array) -> Array:
        """One step of these problems; which of them are done."""
        damping_L, cost_L = self.damping_B[index_L], self.cost_B[index_L]
        step_LP, promised_L = self._step(index_L, damping_L)
        done_L = (promised_L <= RELATIVE_GAIN * cost_L) & (damping_L <= 1e-2)
        done_L |= cost_L <= self.exact_B[index_L]
        done_L |= damping_L > 1e12  # not even the smallest step gains: rounding is all that is left
        trial_LP = self._project(np.clip(self.z_BP[index_L] + step_LP, self.low_P, self.high_P), index_L)
        better_L = self._accept(trial_LP, index_L, cost_L, done_L)
        # Nielsen's rule: a step that gains what it promised frees the next one, and refused ones damp ever faster.
        # Along the bent valleys of laws with many terms it takes half the steps of a fixed factor.
        gain_L = (cost_L - self.cost_B[index_L]) / np.maximum(promised_L, 1e-300)
        freer_L = np.maximum(1 / 3, 1.0 - (2.0 * np.minimum(gain_L, 2.0) - 1.0) ** 3)
        growth_L = self.growth_B[index_L]
        self.damping_B[index_L] = np.maximum(damping_L * np.where(better_L, freer_L, growth_L), 1e-12)
        self.growth_B[index_L] = np.where(better_L, 2.0, 2.0 * growth_L)
        return done_L

    def _accept(self, trial_LP: Array, index_L: Array, limit_L: Array, done_L: Array) -> Array:
        """Move the problems whose cost at a trial is at most their limit, and compute normal equations where a further
        step will need them; which have moved."""
        evaluation = self.at.evaluate(trial_LP)
        residual_LN = evaluation.log_loss_BN - self.y_N
        weights_LN = self.w_BN[index_L]
        usable_L = np.isfinite(residual_LN).all(1)
        if self.delta is None:
            error_L = np.einsum("ln,ln,ln->l", weights_LN, residual_LN, residual_LN)
        else:
            # Within δ a residual counts in full; beyond, the slope of its error is that of a square of less weight.
            size_LN = np.abs(residual_LN)
            inner_LN = np.minimum(size_LN, self.delta)
            error_L = np.einsum("ln,ln,ln->l", weights_LN, inner_LN, 2.0 * size_LN - inner_LN)
            weights_LN = weights_LN * (self.delta / np.maximum(size_LN, self.delta))
        error_L = np.where(usable_L, error_L, np.inf)
        cost_L = error_L
        if self.pull is not None:
            pulled_L = self.pull.residual(trial_LP, index_L)
            cost_L = error_L + np.where(np.isfinite(pulled_L), pulled_L**2, np.inf)
        better_L = cost_L <= limit_L
        moved = index_L[better_L]
        self.z_BP[moved], self.cost_B[moved], self.error_B[moved] = (
            trial_LP[better_L], cost_L[better_L], error_L[better_L]
        )  # fmt: skip
        rows_M = np.flatnonzero(better_L & ~done_L & np.isfinite(cost_L))
        if rows_M.size:
            self._keep_normal(evaluation, trial_LP, residual_LN, weights_LN, index_L, rows_M)
        return better_L

    def _keep_normal(
        self,
        evaluation: Evaluation,
        trial_LP: Array,
        residual_LN: Array,
        weights_LN: Array,
        index_L: Array,
        rows_M: Array,
    ) -> None:
        index_M = index_L[rows_M]
        jac_MPN = evaluation.jacobian(rows_M)
        weighted_MPN = jac_MPN * weights_LN[rows_M, None]
        normal_MPP = weighted_MPN @ jac_MPN.transpose(0, 2, 1)
        gradient_MP = (weighted_MPN @ residual_LN[rows_M, :, None])[..., 0]
        if self.pull is not None:
            slope_MP = self.pull.slope(trial_LP[rows_M], index_M)
            normal_MPP = normal_MPP + slope_MP[:, :, None] * slope_MP[:, None, :]
            gradient_MP = gradient_MP + slope_MP * self.pull.residual(trial_LP[rows_M], index_M)[:, None]
        self.normal_BPP[index_M], self.gradient_BP[index_M] = normal_MPP, gradient_MP

    def _step(self, index_B: Array, damping_B: Array) -> tuple[Array, Array]:
        """A damped Gauss–Newton step, and how much it promises to take off the cost."""
        z_BP, normal_BPP, gradient_BP = self.z_BP[index_B], self.normal_BPP[index_B], self.gradient_BP[index_B]
        # A parameter at its bound that the gradient pushes outward stays there for this step.
        held_BP = ((z_BP <= self.low_P) & (gradient_BP > 0)) | ((z_BP >= self.high_P) & (gradient_BP < 0))
        places = np.arange(z_BP.shape[1])
        by_scale_BP = 1.0 / (np.sqrt(normal_BPP[:, places, places]) + 1e-150)
        normal_BPP *= by_scale_BP[:, :, None]
        normal_BPP *= by_scale_BP[:, None, :]
        diagonal_BP = normal_BPP[:, places, places] + np.where(self.damped_P, damping_B[:, None], 0.0) + 1e-14
        normal_BPP[:, places, places] = diagonal_BP
        held = np.flatnonzero(held_BP.any(1))
        if held.size:
            free_HP = ~held_BP[held]
            gradient_BP[held] = np.where(free_HP, gradient_BP[held], 0.0)
            bound_HPP = np.where(free_HP[:, :, None] & free_HP[:, None, :], normal_BPP[held], 0.0)
            bound_HPP[:, places, places] = np.where(free_HP, diagonal_BP[held], 1.0)
            normal_BPP[held] = bound_HPP
        step_BP = -np.linalg.solve(normal_BPP, (gradient_BP * by_scale_BP)[..., None])[..., 0] * by_scale_BP
        step_BP = np.where(np.isfinite(step_BP), step_BP, 0.0)
        return step_BP, -(gradient_BP * step_BP).sum(1)

    def _project(self, z_BP: Array, index_B: Array) -> Array:
        """Replace the linear coefficients by their optimum for the present nonlinear ones."""
        if not self.linear:
            return z_BP
        assert isinstance(self.law, PowerSum)
        basis_BCN = self._basis(z_BP)
        usable_B = np.asarray(np.isfinite(basis_BCN).all((1, 2)))
        if not usable_B.all():
            basis_BCN = np.where(usable_B[:, None, None], basis_BCN, 1.0)
        w_BN = self.w_BN[index_B]
        w_B1N = w_BN[:, None]
        # Centring the columns on their weighted means keeps the normal equations well conditioned; a constant takes
        # the shift back, so a law without one stays as it is.
        powers = [c.powers for c in self.law.terms[0]]
        flat = [not any(own) and c.factor == 1 for own, c in zip(powers, self.law.terms[0], strict=True)]
        constant = flat.index(True) if True in flat else None
        centre_BC = np.zeros((len(z_BP), self.linear))
        if constant is not None:
            centre_BC = (basis_BCN @ w_BN[..., None])[..., 0] / w_BN.sum(1)[:, None]
            centre_BC[:, constant] = 0.0
        centred_BCN = basis_BCN - centre_BC[..., None]
        scale_BC = np.sqrt((centred_BCN**2 @ w_BN[..., None])[..., 0]) + 1e-150
        unit_BCN = centred_BCN / scale_BC[..., None]
        left_BCN = w_B1N * unit_BCN
        normal_BCC = left_BCN @ unit_BCN.transpose(0, 2, 1) + 1e-14 * np.eye(self.linear)
        beta_BC = np.linalg.solve(normal_BCC, (left_BCN @ self.y_N)[..., None])[..., 0] / scale_BC
        if constant is not None:
            beta_BC[:, constant] -= (beta_BC * centre_BC).sum(1)
        projected_BP = z_BP.copy()
        projected_BP[:, : self.linear] = np.where(usable_B[:, None], beta_BC, np.nan)
        return projected_BP

    def _basis(self, z_BP: Array) -> Array:
        if isinstance(self.at, PowerSumAtPoints):
            return self.at.basis(z_BP)
        assert isinstance(self.law, PowerSum)
        return self.law.basis(self.law.from_search(z_BP), self.x).transpose(0, 2, 1)
