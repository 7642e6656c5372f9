"""Profile intervals: the values of a quantity whose best fit is not significantly worse than the best of all (F test).

A quantity is drawn towards a value by one extra residual. Wherever the pulled optimum ends up, it is the best fit *for
the value reached there*, so the curve of error against value is exact however weak or strong the pull. The ends of an
interval are found by aiming further until the error crosses its threshold; all ends of all quantities move together.

Shapes: B interval ends (a lower and an upper one for each quantity), P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from routelaw.fitting.fit import Fit, scaled_jacobian
from routelaw.fitting.intervals import DEFAULT_LEVEL, Interval, Quantity, closed_interval
from routelaw.fitting.least_squares import minimise
from routelaw.laws.law import Array, Law

PULL_STRENGTH = 10.0
"""In units of the noise over the quantity's standard error: stiff enough to get there, soft enough to search fast."""
FARTHEST = 100.0
"""Standard errors after which an end counts as open: the data set no limit there."""
ROUNDS = 40
ROUNDS_UNIDENTIFIED = 6
"""Where parameters cannot be told apart, searches wander along a valley without an end; what is not found soon is
open."""


def profile_intervals(fit: Fit, quantities: Sequence[Quantity], level: float = DEFAULT_LEVEL) -> list[Interval]:
    ends = _Ends(fit, quantities, level)
    for _ in range(ROUNDS_UNIDENTIFIED if ends.unidentified else ROUNDS):
        if ends.done_B.all():
            break
        ends.advance()
    return ends.intervals()


class _Ends:
    """The state of the search for all interval ends."""

    def __init__(self, fit: Fit, quantities: Sequence[Quantity], level: float) -> None:
        weight_N = fit.points.weight
        free = int((weight_N > 0).sum()) - len(fit.law.parameters)
        self.fit, self.quantities, self.unidentified = fit, quantities, fit.status == "unidentified"
        self.best = float((weight_N * fit.residual_N**2).sum())
        self.noise = float(np.sqrt(self.best / free))
        self.threshold = float(np.sqrt(special.fdtri(1, free, level)))
        self.of_B = [q for q in quantities for _ in range(2)]
        self.side_B = np.tile([-1.0, 1.0], len(quantities))
        estimate_Q = np.array([float(q.of(fit.params_BP)[0]) for q in quantities])
        spread_Q = np.array([_linear_spread(fit, q, self.noise) for q in quantities])
        self.usable_Q = np.isfinite(estimate_Q) & np.isfinite(spread_Q) & (spread_Q > 0)
        self.estimate_B = np.repeat(np.where(self.usable_Q, estimate_Q, 0.0), 2)
        self.spread_B = np.repeat(np.where(self.usable_Q, spread_Q, 1.0), 2)
        self.limit_B = np.array([q.low if side < 0 else q.high for q, side in zip(self.of_B, self.side_B, strict=True)])
        self.done_B = np.repeat(~self.usable_Q, 2)
        self.search_BP = np.repeat(fit.search_P[None], len(self.of_B), axis=0)
        self.reached_B = self.estimate_B.copy()
        self.inside_B, self.inside_distance_B = self.estimate_B.copy(), np.zeros(len(self.of_B))
        self.outside_B, self.outside_distance_B = np.full(len(self.of_B), np.nan), np.full(len(self.of_B), np.nan)
        self.aim_B = self.estimate_B + self.side_B * self.threshold * self.spread_B

    def advance(self) -> None:
        """Aim once for every end that is not found yet, and look how far the error rose."""
        law, points = self.fit.law, self.fit.points
        live = np.flatnonzero(~self.done_B)
        pull = _Pull(
            law, [self.of_B[i] for i in live], self.aim_B[live], PULL_STRENGTH * self.noise / self.spread_B[live]
        )
        weights_LN = np.broadcast_to(points.weight, (live.size, len(points)))
        found = minimise(law, points.x, points.log_loss, weights_LN, self.search_BP[live], pull)
        reached_L = pull.residual(found.search_BP, np.arange(live.size)) / pull.strength_B + pull.aim_B
        distance_L = np.sqrt(np.maximum(found.error_B - self.best, 0.0)) / self.noise
        side_L, estimate_L = self.side_B[live], self.estimate_B[live]
        within_L = distance_L < self.threshold
        self.reached_B[live] = reached_L
        # A pulled search may fall into a worse basin. So each begins from the farthest point known to be inside, and
        # brackets only ever tighten.
        deeper_L = within_L & ((reached_L - self.inside_B[live]) * side_L >= 0)
        nearer_L = ~within_L & ((reached_L - estimate_L) * side_L > 0)
        nearer_L &= np.isnan(self.outside_B[live]) | ((reached_L - self.outside_B[live]) * side_L <= 0)
        self.search_BP[live[deeper_L]] = found.search_BP[deeper_L]
        self.inside_B[live] = np.where(deeper_L, reached_L, self.inside_B[live])
        self.inside_distance_B[live] = np.where(deeper_L, distance_L, self.inside_distance_B[live])
        self.outside_B[live] = np.where(nearer_L, reached_L, self.outside_B[live])
        self.outside_distance_B[live] = np.where(nearer_L, distance_L, self.outside_distance_B[live])
        at_limit_L = (reached_L - self.limit_B[live]) * side_L >= -1e-9
        too_far_L = np.abs(self.aim_B[live] - estimate_L) > FARTHEST * self.spread_B[live]
        open_L = within_L & (at_limit_L | too_far_L | ~np.isfinite(reached_L))
        self.reached_B[live[open_L]] = side_L[open_L] * np.inf
        gap_L = (self.outside_B - self.inside_B)[live] * side_L
        shut_L = gap_L <= 1e-3 * np.abs(self.outside_B[live] - estimate_L)
        self.reached_B[live[shut_L]] = self.outside_B[live[shut_L]]
        self.done_B[live] = open_L | shut_L | (np.abs(distance_L - self.threshold) < 2e-3 * self.threshold)
        self.aim_B[live] = self._next_aim()[live]

    def _next_aim(self) -> Array:
        """Between two brackets by the secant of distance, which is nearly straight; before that, further out."""
        with np.errstate(all="ignore"):
            share_B = (self.threshold - self.inside_distance_B) / (self.outside_distance_B - self.inside_distance_B)
            between_B = self.inside_B + np.clip(share_B, 0.05, 0.95) * (self.outside_B - self.inside_B)
            growth_B = np.clip(self.threshold / np.maximum(self.inside_distance_B, 1e-9), 1.1, 3.0)
            beyond_B = self.estimate_B + (self.inside_B - self.estimate_B) * growth_B
            beyond_B = np.where(
                (beyond_B - self.aim_B) * self.side_B > 0,
                beyond_B,
                self.estimate_B + (self.aim_B - self.estimate_B) * 1.5,
            )
        # The pull falls a little short of its aim; overshoot by as much.
        short_B = np.where(np.isnan(self.outside_B), 0.0, self.aim_B - self.reached_B)
        return np.where(np.isnan(self.outside_B), beyond_B, between_B + np.where(np.isfinite(short_B), short_B, 0.0))

    def intervals(self) -> list[Interval]:
        # An end not found in time is put where the error is known to be too high, or left open: never too narrow.
        known_B = np.where(np.isnan(self.outside_B) | self.unidentified, self.side_B * np.inf, self.outside_B)
        end_B = np.where(self.done_B, self.reached_B, known_B)
        lows, highs = end_B[0::2], end_B[1::2]
        nothing = Interval(np.nan, np.nan, True, True)
        return [
            closed_interval(q, float(low), float(high)) if usable else nothing
            for q, low, high, usable in zip(self.quantities, lows, highs, self.usable_Q, strict=True)
        ]


@dataclass(frozen=True, eq=False)
class _Pull:
    law: Law
    of_B: list[Quantity]
    aim_B: Array
    strength_B: Array

    def residual(self, search_BP: Array, index_B: Array) -> Array:
        value_B = self._per_quantity(index_B, lambda q, rows: q.of(self.law.from_search(search_BP[rows])))
        return self.strength_B[index_B] * (value_B - self.aim_B[index_B])

    def slope(self, search_BP: Array, index_B: Array) -> Array:
        slope_BP = self._per_quantity(index_B, lambda q, rows: _slope(self.law, q, search_BP[rows]))
        return self.strength_B[index_B][:, None] * np.where(np.isfinite(slope_BP), slope_BP, 0.0)

    def _per_quantity(self, index_B: Array, evaluate) -> Array:
        """Evaluate each distinct quantity once, on all the problems that pull on it."""
        rows_of: dict[int, list[int]] = {}
        for row, i in enumerate(index_B):
            rows_of.setdefault(id(self.of_B[i]), []).append(row)
        with np.errstate(all="ignore"):
            pieces = [evaluate(self.of_B[index_B[rows[0]]], rows) for rows in rows_of.values()]
        order = np.argsort(np.concatenate([np.array(rows) for rows in rows_of.values()]))
        return np.concatenate(pieces)[order]


def _linear_spread(fit: Fit, quantity: Quantity, noise: float) -> float:
    """Standard error by linear propagation: the scale of the first aim, no more.

    Parameters at a bound are held there, unless the quantity depends on nothing else: a Jacobian that vanishes towards
    the bound would make every standard error enormous and every pull too weak.
    """
    jac_NP = scaled_jacobian(fit.law, fit.points, fit.search_P)
    slope_P = _slope(fit.law, quantity, fit.search_P[None])[0]
    low_P, high_P = fit.law.search_bounds()
    inner_P = ~(np.isclose(fit.search_P, low_P) | np.isclose(fit.search_P, high_P))
    for kept_P in (inner_P, np.ones_like(inner_P)):
        jac_NK, slope_K = jac_NP[:, kept_P], slope_P[kept_P]
        covariance_KK = np.linalg.pinv(jac_NK.T @ jac_NK, rcond=1e-13)
        with np.errstate(all="ignore"):  # an infinite quantity has no slope, and no interval then
            spread = float(noise * np.sqrt(np.maximum(slope_K @ covariance_KK @ slope_K, 0.0)))
        if spread > 0:
            return spread
    return 0.0


def _slope(law: Law, quantity: Quantity, search_BP: Array) -> Array:
    """Gradient of a quantity in search coordinates by central differences, (B, P), in one evaluation."""
    B, P = search_BP.shape
    step_P = 1e-5 * np.maximum(1e-2, np.abs(search_BP).max(0))
    shift_PP = np.diag(step_P)
    moved = np.concatenate([search_BP[None] + shift_PP[:, None], search_BP[None] - shift_PP[:, None]])
    with np.errstate(all="ignore"):
        value_2PB = quantity.of(law.from_search(moved.reshape(2 * P * B, P))).reshape(2, P, B)
        return ((value_2PB[0] - value_2PB[1]) / (2 * step_P[:, None])).T
