"""Many weighted fits of one law at once: Levenberg–Marquardt with variable projection, vectorised over the fits.

Leaving points out and resampling them are the same points under other weights, so cross-validation, bootstrap and
multi-start are all one call here: B problems that share the points and differ in weights and starting values.

Where log L is linear in the law's coefficients they are solved for at every step and only the rest is searched
(Golub & Pereyra 1973, with Kaufman's simplification: undamped linear columns in the normal equations are exactly that).
Residuals are of order 1e-3, their squares 1e-6 and less; everything below is relative, so no absolute tolerance can end
a search early. (Best-of-many L-BFGS-B with default tolerances does end early on this problem; see `published.py`.)

Shapes: B problems, N points, P parameters, C of them linear.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from routelaw.laws.law import Array, Inputs, Law
from routelaw.laws.power_sum import PowerSum
from routelaw.laws.saturation import LN10

MAX_STEPS = 300
RELATIVE_GAIN = 1e-11
"""A search ends when a nearly undamped step promises to take less than this share off the error."""

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
    """Weighted sum of squared residuals (without the pull)."""
    converged_B: Array


def minimise(
    law: Law, x: Inputs, log_loss_N: Array, weights_BN: Array, start_BP: Array, pull: Pull | None = None
) -> Solutions:
    """Local optimum of Σ w·(law − log L)² from each starting vector (search coordinates)."""
    search = _Search(law, x, log_loss_N, weights_BN, pull)
    return search.run(start_BP)


class _Search:
    def __init__(self, law: Law, x: Inputs, log_loss_N: Array, weights_BN: Array, pull: Pull | None) -> None:
        self.law, self.x, self.y_N, self.w_BN, self.pull = law, x, log_loss_N, weights_BN, pull
        self.low_P, self.high_P = law.search_bounds()
        self.exact_B = EXACT * (weights_BN * log_loss_N**2).sum(1)
        self.linear = law.linear_count if isinstance(law, PowerSum) and law.is_log_linear and pull is None else 0
        self.damped_P = np.arange(len(law.parameters)) >= self.linear

    def run(self, start_BP: Array) -> Solutions:
        total = len(start_BP)
        z_BP = self._project(np.clip(start_BP, self.low_P, self.high_P), np.arange(total))
        cost_B = self._cost(z_BP, np.arange(total))
        converged_B = np.zeros(total, dtype=bool)
        damping_B = np.full(total, 1e-3)
        live = np.flatnonzero(np.isfinite(cost_B))
        for _ in range(MAX_STEPS):
            if live.size == 0:
                break
            step_LP, promised_L = self._step(z_BP[live], live, damping_B[live])
            trial_LP = self._project(np.clip(z_BP[live] + step_LP, self.low_P, self.high_P), live)
            trial_cost_L = self._cost(trial_LP, live)
            better_L = trial_cost_L <= cost_B[live]
            z_BP[live[better_L]] = trial_LP[better_L]
            done_L = (promised_L <= RELATIVE_GAIN * cost_B[live]) & (damping_B[live] <= 1e-2)
            done_L |= cost_B[live] <= self.exact_B[live]
            done_L |= damping_B[live] > 1e12  # not even the smallest step gains: rounding is all that is left
            cost_B[live[better_L]] = trial_cost_L[better_L]
            damping_B[live] = np.where(better_L, np.maximum(damping_B[live] * 0.1, 1e-12), damping_B[live] * 10.0)
            converged_B[live[done_L]] = True
            live = live[~done_L]
        error_B = self._error(z_BP, np.arange(total))
        return Solutions(z_BP, error_B, converged_B)

    def _residuals(self, z_BP: Array) -> Array:
        with np.errstate(all="ignore"):
            return self.law.log_loss(self.law.from_search(z_BP), self.x) - self.y_N

    def _error(self, z_BP: Array, index_B: Array) -> Array:
        residual_BN = self._residuals(z_BP)
        usable_BN = np.isfinite(residual_BN)
        error_B = (self.w_BN[index_B] * np.where(usable_BN, residual_BN, 0.0) ** 2).sum(1)
        return np.where(usable_BN.all(1), error_B, np.inf)

    def _cost(self, z_BP: Array, index_B: Array) -> Array:
        cost_B = self._error(z_BP, index_B)
        if self.pull is not None:
            pulled_B = self.pull.residual(z_BP, index_B)
            cost_B = cost_B + np.where(np.isfinite(pulled_B), pulled_B**2, np.inf)
        return cost_B

    def _step(self, z_BP: Array, index_B: Array, damping_B: Array) -> tuple[Array, Array]:
        """A damped Gauss–Newton step, and how much it promises to take off the cost."""
        params_BP = self.law.from_search(z_BP)
        with np.errstate(all="ignore"):
            jac_BNP = self.law.jacobian(params_BP, self.x)
        jac_BNP = jac_BNP * np.where(self.law.log_mask_P, params_BP * LN10, 1.0)[:, None]
        residual_BN = self._residuals(z_BP)
        weighted_BPN = (jac_BNP * self.w_BN[index_B][..., None]).transpose(0, 2, 1)
        normal_BPP = weighted_BPN @ jac_BNP
        gradient_BP = (weighted_BPN @ residual_BN[..., None])[..., 0]
        if self.pull is not None:
            slope_BP = self.pull.slope(z_BP, index_B)
            normal_BPP = normal_BPP + slope_BP[:, :, None] * slope_BP[:, None, :]
            gradient_BP = gradient_BP + slope_BP * self.pull.residual(z_BP, index_B)[:, None]
        # A parameter at its bound that the gradient pushes outward stays there for this step.
        held_BP = ((z_BP <= self.low_P) & (gradient_BP > 0)) | ((z_BP >= self.high_P) & (gradient_BP < 0))
        free_BP = ~held_BP
        gradient_BP = np.where(free_BP, gradient_BP, 0.0)
        scale_BP = np.sqrt(np.diagonal(normal_BPP, axis1=1, axis2=2)) + 1e-150
        normal_BPP = normal_BPP / scale_BP[:, :, None] / scale_BP[:, None, :]
        normal_BPP = np.where(free_BP[:, :, None] & free_BP[:, None, :], normal_BPP, 0.0)
        damping_BP = np.where(self.damped_P, damping_B[:, None], 0.0) + 1e-14
        diagonal_BP = np.where(free_BP, damping_BP, 1.0)
        normal_BPP = normal_BPP + diagonal_BP[:, :, None] * np.eye(z_BP.shape[1])
        scaled_BP = gradient_BP / scale_BP
        step_BP = -np.linalg.solve(normal_BPP, scaled_BP[..., None])[..., 0] / scale_BP
        step_BP = np.where(np.isfinite(step_BP), step_BP, 0.0)
        return step_BP, -(gradient_BP * step_BP).sum(1)

    def _project(self, z_BP: Array, index_B: Array) -> Array:
        """Replace the linear coefficients by their optimum for the present nonlinear ones."""
        if not self.linear:
            return z_BP
        assert isinstance(self.law, PowerSum)
        with np.errstate(all="ignore"):
            basis_BNC = self.law.basis(self.law.from_search(z_BP), self.x)
        usable_B = np.asarray(np.isfinite(basis_BNC).all((1, 2)))
        basis_BNC = np.where(usable_B[:, None, None], basis_BNC, 1.0)
        w_BN1 = self.w_BN[index_B][..., None]
        # Centring the columns on their weighted means keeps the normal equations well conditioned; a constant takes
        # the shift back, so a law without one stays as it is.
        powers = [c.powers for c in self.law.terms[0]]
        constant = powers.index((0, 0)) if (0, 0) in powers else None
        centre_B1C = np.zeros_like(basis_BNC[:, :1])
        if constant is not None:
            centre_B1C = (w_BN1 * basis_BNC).sum(1, keepdims=True) / w_BN1.sum(1, keepdims=True)
            centre_B1C[..., constant] = 0.0
        centred_BNC = basis_BNC - centre_B1C
        scale_BC = np.sqrt((w_BN1 * centred_BNC**2).sum(1)) + 1e-150
        unit_BNC = centred_BNC / scale_BC[:, None]
        left_BCN = (w_BN1 * unit_BNC).transpose(0, 2, 1)
        normal_BCC = left_BCN @ unit_BNC + 1e-14 * np.eye(self.linear)
        beta_BC = np.linalg.solve(normal_BCC, (left_BCN @ self.y_N)[..., None])[..., 0] / scale_BC
        if constant is not None:
            beta_BC[:, constant] -= (beta_BC * centre_B1C[:, 0]).sum(1)
        projected_BP = z_BP.copy()
        projected_BP[:, : self.linear] = np.where(usable_B[:, None], beta_BC, np.nan)
        return projected_BP
