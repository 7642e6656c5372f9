"""Error on points a fit has not seen: one point out, one size out, the largest size out, and for laws in tokens the
splits of splits.py. All RMSLE in log10 L.

Leaving out a few of many points moves an optimum by little, so refits without a group of points are found for all
groups at once, in time that grows with the points, not their square. The gradient of the error over all points is
computed exactly at some places around the optimum and a polynomial is put through it; for each group, the gradient of
its own points, exact where it is asked for, is taken off, and the zero of the difference is the refit. Further places
say how far the polynomial is from the gradient: a group that moves the optimum farther than it is good for is left to a
search of its own. Such groups have a large share of all leverage, which adds up to the number of parameters: there are
few of them however many points there are.

Coordinates are whitened by the Jacobian at the optimum (J = QR, η = R·δz): a unit of η moves predictions by one unit of
log10 L, and the gradient's slope is nearly the identity.

Shapes: N points, G groups, P parameters, F of them free (not at a bound), M places, K monomials.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from routelaw.fitting.fit import RANK_TOLERANCE, RESAMPLE_SEARCHES, Fit, is_determined, scaled_jacobian, solve
from routelaw.fitting.least_squares import minimise
from routelaw.fitting.lengths import reads_length
from routelaw.fitting.splits import errors_of_splits
from routelaw.laws.law import LN10, Array, Law
from routelaw.laws.power_sum import PowerSum

ACCURACY = 1e-6
"""Error allowed in a prediction of what was left out, in standard deviations of the noise."""
DEGREE = 4
MOST_PARAMETERS = 12
"""The monomials of more are too many."""
RADII = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Radii of the polynomials, in standard deviations of the noise. A group has the narrowest that reaches its refit."""
FEW_GROUPS = 40
SAME_PREDICTION = 1e-3
"""Optima whose predictions differ by less, in standard deviations of the noise, are one."""
ROUNDS = 60
PLACES_AT_ONCE = 1 << 18
"""Numbers of the Jacobians at the places that are worked on at a time."""


def determined_without(fit: Fit, group_N: Array, groups: int) -> Array:
    """Whether the points without each group could determine the law: `is_determined` for all of them, (G,)."""
    used_N = fit.points.weight > 0
    left_G = used_N.sum() - np.bincount(group_N, used_N, groups)
    q_NP, r_PP = np.linalg.qr(scaled_jacobian(fit.law, fit.points, fit.search_P))
    share_G, axes_GPP = np.linalg.eigh(np.eye(len(r_PP)) - _outer_sums(q_NP, q_NP, group_N, groups))
    factor_GPP = np.sqrt(np.maximum(share_G, 0.0))[:, :, None] * (axes_GPP.transpose(0, 2, 1) @ r_PP)
    unit_GPP = factor_GPP / (np.linalg.norm(factor_GPP, axis=1, keepdims=True) + 1e-300)
    singular_GP = np.linalg.svd(unit_GPP, compute_uv=False)
    ratio_G = singular_GP[:, -1] / singular_GP[:, 0]
    verdict_G = (left_G > len(fit.law.parameters)) & (ratio_G > RANK_TOLERANCE)
    # A group that holds nearly all that is known of a direction, or a verdict by a hair: looked at by itself.
    close_G = (share_G[:, 0] < 1e-2) | (np.abs(np.log10(ratio_G + 1e-300) - np.log10(RANK_TOLERANCE)) < 1)
    for group in np.flatnonzero(close_G):
        verdict_G[group] = is_determined(fit, group_N != group)
    return verdict_G


def refits_without(fit: Fit, group_N: Array, groups: int) -> tuple[Array, Array]:
    """Optimum without each group in search coordinates, (G, P), and which of them are known so, (G,): none under a law
    or at an optimum that allows no expansion."""
    search_GP, known_G = np.repeat(fit.search_P[None], groups, axis=0), np.zeros(groups, bool)
    if fit.error != "squared" or fit.status == "unidentified" or not _is_smooth(fit.law):
        return search_GP, known_G
    around = _Surroundings(fit, group_N, groups)
    if not around.free_P.any():
        return search_GP, known_G
    for radius in RADII:
        left = np.flatnonzero(~known_G)
        if left.size <= FEW_GROUPS:
            break
        search_GP[left], known_G[left] = around.refits(left, radius * around.noise)
    return search_GP, known_G & ~_may_change_basin(fit, group_N, groups)


def _may_change_basin(fit: Fit, group_N: Array, groups: int) -> Array:
    """Groups without which another optimum of all points might be the better one, (G,).

    Without its group this optimum has at most the error of its other points, and another one at least its own less
    what the group could take off it, which is taken to be twice the group's error there.
    """
    points, law = fit.points, fit.law
    starts_SP = law.to_search(law.starts(points.x, points.loss, points.weight[None], law.searches))[0]
    found = minimise(law, points.x, points.log_loss, np.repeat(points.weight[None], len(starts_SP), axis=0), starts_SP)
    search_SP = np.concatenate([fit.search_P[None], found.search_BP[found.converged_B]])
    with np.errstate(all="ignore"):
        residual_SN = law.log_loss(law.from_search(search_SP), points.x) - points.log_loss
    square_SN = points.weight * residual_SN**2
    error_S = square_SN.sum(1)
    noise = np.sqrt(error_S[0] / (points.weight > 0).sum())
    other_S = np.isfinite(error_S) & (np.abs(residual_SN - residual_SN[0]).max(1) > SAME_PREDICTION * noise)
    own_G = np.bincount(group_N, square_SN[0], groups)
    changes_G = np.zeros(groups, bool)
    for s in np.flatnonzero(other_S):
        changes_G |= error_S[s] - 2 * np.bincount(group_N, square_SN[s], groups) < error_S[0] - own_G
    return changes_G


def _is_smooth(law: Law) -> bool:
    """Whether slopes of the law are known at points of each vector's own, and its parameters are few enough."""
    known = type(law).jacobian in (Law.jacobian, PowerSum.jacobian)
    return known and len(law.parameters) <= MOST_PARAMETERS


@dataclass(eq=False)
class _Surroundings:
    """The error around the optimum of a fit."""

    fit: Fit
    group_N: Array
    groups: int

    def __post_init__(self) -> None:
        fit, points = self.fit, self.fit.points
        self.low_P, self.high_P = fit.law.search_bounds()
        at_bound_P = np.isclose(fit.search_P, self.low_P) | np.isclose(fit.search_P, self.high_P)
        self.free_P = ~at_bound_P
        jac_NP = scaled_jacobian(fit.law, points, fit.search_P)
        self.noise = float(np.sqrt((points.weight * fit.residual_N**2).sum() / (points.weight > 0).sum())) + 1e-300
        q_NF, self.r_FF = np.linalg.qr(jac_NP[:, self.free_P])
        self.inverse_FF = np.linalg.pinv(self.r_FF)
        self.gram_GFF = _outer_sums(q_NF, q_NF, self.group_N, self.groups)
        self.lever_G = np.sqrt(np.linalg.eigvalsh(self.gram_GFF)[:, -1].clip(0.0))
        # To first order: what a group pulls at the optimum, over the slope that the others leave.
        pull_GF = _sums(q_NF * (np.sqrt(points.weight) * fit.residual_N)[:, None], self.group_N, self.groups)
        slope_GFF = np.eye(q_NF.shape[1]) - self.gram_GFF
        self.usable_G = np.linalg.eigvalsh(slope_GFF)[:, 0] > 1e-2
        slope_GFF[~self.usable_G] = np.eye(q_NF.shape[1])
        self.first_GF = np.linalg.solve(slope_GFF, pull_GF[..., None])[..., 0]

    def refits(self, chosen_C: Array, radius: float) -> tuple[Array, Array]:
        """Refits of the chosen groups by a polynomial that is good within a radius; which of them it is good for."""
        near_C = self.usable_G[chosen_C] & (np.linalg.norm(self.first_GF[chosen_C], axis=1) < radius)
        search_CP, known_C = np.repeat(self.fit.search_P[None], chosen_C.size, axis=0), np.zeros(chosen_C.size, bool)
        if near_C.any():
            polynomial = self._polynomial(radius)
            error_C = polynomial.error * self.lever_G[chosen_C]
            near_C &= error_C <= ACCURACY * self.noise
            near = np.flatnonzero(near_C)
            if near.size:
                search_CP[near], known_C[near] = self._zeros(chosen_C[near], polynomial)
        return search_CP, known_C

    def _zeros(self, chosen_C: Array, polynomial: _Polynomial) -> tuple[Array, Array]:
        """Where the polynomial equals the gradient of a group's own points, for each group; whether it was found."""
        own = _Own(self, chosen_C)
        eta_CF = self.first_GF[chosen_C]
        slope_CFF = self._whitened(polynomial.slope_FP).T - self.gram_GFF[chosen_C]
        inverse_CFF = np.linalg.inv(slope_CFF)
        enough = 0.1 * ACCURACY * self.noise
        with np.errstate(all="ignore"):
            for _ in range(ROUNDS):
                wrong_CF = self._whitened(polynomial.gradient(eta_CF) - own.gradient(self._search(eta_CF)))
                wrong_C = np.abs(np.where(np.isfinite(wrong_CF), wrong_CF, np.inf)).max(1)
                if wrong_C.max() <= enough:
                    break
                eta_CF = eta_CF - (inverse_CFF @ np.where(np.isfinite(wrong_CF), wrong_CF, 0.0)[..., None])[..., 0]
                length_C1 = np.linalg.norm(eta_CF, axis=1, keepdims=True)
                eta_CF = eta_CF * np.minimum(1.0, 1.5 * polynomial.radius / np.maximum(length_C1, 1e-300))
            search_CP = self._search(eta_CF)
            gradient_CP = polynomial.gradient(eta_CF) - own.gradient(search_CP)
        inside_C = ((search_CP > self.low_P) & (search_CP < self.high_P) | ~self.free_P).all(1)
        outward_P = np.where(np.isclose(self.fit.search_P, self.low_P), 1.0, -1.0)
        stays_C = (gradient_CP * outward_P > 0)[:, ~self.free_P].all(1)
        within_C = np.linalg.norm(eta_CF, axis=1) <= polynomial.radius
        return search_CP, inside_C & stays_C & within_C & (wrong_C <= enough)

    def _search(self, eta_CF: Array) -> Array:
        search_CP = np.repeat(self.fit.search_P[None], len(eta_CF), axis=0)
        search_CP[:, self.free_P] += eta_CF @ self.inverse_FF.T
        return search_CP

    def _polynomial(self, radius: float) -> _Polynomial:
        design = _design(int(self.free_P.sum()))
        with np.errstate(all="ignore"):
            gradient_MP = _gradients(self.fit, self._search(design.place_MF * radius))
        if not np.isfinite(gradient_MP).all():  # the law ends within the radius
            return _Polynomial(design.powers, np.zeros((len(design.powers), len(self.free_P))), radius, np.inf)
        inside = design.solver_KM.shape[1]
        coefficients_KP = design.solver_KM @ gradient_MP[:inside]
        off_MP = design.values_MK[inside:] @ coefficients_KP - gradient_MP[inside:]
        return _Polynomial(design.powers, coefficients_KP, radius, 2.0 * float(np.abs(self._whitened(off_MP)).max()))

    def _whitened(self, gradient_MP: Array) -> Array:
        return gradient_MP[:, self.free_P] @ self.inverse_FF


class _Own:
    """The points of some groups, each under the parameters of its own group."""

    def __init__(self, around: _Surroundings, chosen_C: Array) -> None:
        points = around.fit.points
        place_G = np.full(around.groups, -1)
        place_G[chosen_C] = np.arange(chosen_C.size)
        kept_N = place_G[around.group_N] >= 0
        self.law, self.groups, self.group_N = around.fit.law, chosen_C.size, place_G[around.group_N[kept_N]]
        self.x_N1 = {name: np.asarray(values)[kept_N, None] for name, values in points.x.items()}
        self.log_loss_N, self.weight_N = points.log_loss[kept_N], points.weight[kept_N]

    def gradient(self, search_CP: Array) -> Array:
        """Half the gradient of each group's weighted squared error, exact, (C, P)."""
        params_NP = self.law.from_search(search_CP)[self.group_N]
        shape = (len(params_NP), 1)
        residual_N = np.broadcast_to(self.law.log_loss(params_NP, self.x_N1), shape)[:, 0] - self.log_loss_N
        jac_NP = np.broadcast_to(self.law.jacobian(params_NP, self.x_N1), (*shape, params_NP.shape[1]))[:, 0]
        jac_NP = jac_NP * np.where(self.law.log_mask_P, params_NP * LN10, 1.0)
        return _sums(jac_NP * (self.weight_N * residual_N)[:, None], self.group_N, self.groups)


@dataclass(frozen=True, eq=False)
class _Design:
    """Places in the unit ball, and what turns values at the first of them into coefficients; the others check it."""

    powers: list[tuple[int, ...]]
    place_MF: Array
    values_MK: Array
    solver_KM: Array


@cache
def _design(free: int) -> _Design:
    powers = [c for degree in range(DEGREE + 1) for c in combinations_with_replacement(range(free), degree)]
    rng = np.random.default_rng(0)
    inside, check = 2 * len(powers), 4 * free
    direction_MF = rng.standard_normal((inside + check, free))
    direction_MF /= np.linalg.norm(direction_MF, axis=1, keepdims=True)
    reach_M = np.append(rng.uniform(0, 1, inside) ** (1 / free), np.ones(check))
    reach_M[-1] = 0.0
    place_MF = direction_MF * reach_M[:, None]
    values_MK = _monomials(powers, place_MF)
    q_MK, r_KK = np.linalg.qr(values_MK[:inside])
    return _Design(powers, place_MF, values_MK, np.linalg.solve(r_KK, q_MK.T))


@dataclass(frozen=True, eq=False)
class _Polynomial:
    powers: list[tuple[int, ...]]
    coefficients_KP: Array
    radius: float
    error: float
    """Twice the largest distance from the whitened gradient that was seen at the radius, where it is largest."""

    @property
    def slope_FP(self) -> Array:
        """At the optimum, by coordinate."""
        first = [k for k, own in enumerate(self.powers) if len(own) == 1]
        return self.coefficients_KP[first] / self.radius

    def gradient(self, eta_GF: Array) -> Array:
        return _monomials(self.powers, eta_GF / self.radius) @ self.coefficients_KP


def _monomials(powers: list[tuple[int, ...]], place_MF: Array) -> Array:
    """Every product of so many coordinates, (M, K); each is one of a lower degree times a coordinate."""
    column = {own: k for k, own in enumerate(powers)}
    values_KM = np.ones((len(powers), len(place_MF)))
    for k, own in enumerate(powers):
        if own:
            np.multiply(values_KM[column[own[:-1]]], place_MF[:, own[-1]], out=values_KM[k])
    return values_KM.T


def _gradients(fit: Fit, search_MP: Array) -> Array:
    """Half the gradient of the weighted squared error over all points, exact, (M, P)."""
    points = fit.points
    at = fit.law.at_points(points.x)
    at_once = max(1, PLACES_AT_ONCE // (len(points) * search_MP.shape[1]))
    pieces = []
    for first in range(0, len(search_MP), at_once):
        evaluation = at.evaluate(search_MP[first : first + at_once])
        weighted_MN = (evaluation.log_loss_BN - points.log_loss) * points.weight
        jac_MPN = evaluation.jacobian(np.arange(len(weighted_MN)))
        pieces.append((jac_MPN @ weighted_MN[..., None])[..., 0])
    return np.concatenate(pieces)


def _sums(values_NF: Array, group_N: Array, groups: int) -> Array:
    return np.stack([np.bincount(group_N, column_N, groups) for column_N in values_NF.T], axis=-1)


def _outer_sums(left_NF: Array, right_NF: Array, group_N: Array, groups: int) -> Array:
    """Σ of outer products over each group, (G, F, F)."""
    products_NFF = left_NF[:, :, None] * right_NF[:, None, :]
    return _sums(products_NFF.reshape(len(left_NF), -1), group_N, groups).reshape(groups, left_NF.shape[1], -1)


FEW = 20
"""Groups; without each of so few the law is searched for as in the whole data."""
SEARCHED = 1 << 14
"""Groups times points up to which every refit is a search; many refits of many points are expanded (leave_out.py)."""
SEARCHED_AT_ONCE = 1 << 15
"""Groups times points that are searched in one call: starting values take hundreds of times the memory."""


@dataclass(frozen=True, eq=False)
class Validation:
    """The errors; None where the data left over could not determine the law."""

    in_sample: float
    leave_one_out: float | None
    leave_size_out: float | None
    largest_size_out: float | None
    one_out_N: Array
    """Residual of each point when it alone was left out (NaN where that was not possible)."""
    size_out_N: Array
    """Residual of each point when its whole size was left out."""
    warnings: tuple[str, ...] = ()
    splits: Mapping[str, float | None] = field(default_factory=dict)
    """For laws in tokens, the errors of the splits that the points have (splits.py), by name."""

    @property
    def errors(self) -> dict[str, float | None]:
        """All of them by name, as JSON has them."""
        names = ("in_sample", "leave_one_out", "leave_size_out", "largest_size_out")
        return {name: getattr(self, name) for name in names} | dict(self.splits)


def validate(fit: Fit, *, each_point: bool = True) -> Validation:
    """Refit without every point and without every size in turn; of many points the first takes most of the time, and is
    not done unless `each_point`."""
    points = fit.points
    # Along training the evaluations of a run are one curve: leaving one out would leave out nothing.
    groups_N = points.size if fit.law.along_training else np.arange(len(points))
    one_out_N = held_out_residuals(fit, groups_N) if each_point else np.full(len(points), np.nan)
    size_out_N = held_out_residuals(fit, points.size)
    largest_N = points.size == points.sizes[-1]
    warnings = []
    if np.isnan(size_out_N).any():
        warnings.append(
            f"leave-size-out error is not available: without one of the {len(points.sizes)} sizes "
            f"law {fit.law.name} is not determined."
        )
    return Validation(
        in_sample=fit.rmsle,
        leave_one_out=_rms(one_out_N, points.weight),
        leave_size_out=_rms(size_out_N, points.weight),
        largest_size_out=_rms(size_out_N[largest_N], points.weight[largest_N]),
        one_out_N=one_out_N,
        size_out_N=size_out_N,
        warnings=tuple(warnings),
        splits=errors_of_splits(fit) if reads_length(fit.law) else {},
    )


def held_out_residuals(fit: Fit, groups_N: Array) -> Array:
    """Residual (predicted − measured log10 L) of every point under the fit that left its group out."""
    points = fit.points
    names, group_N = np.unique(groups_N.astype(str), return_inverse=True)
    search_GP, known_G = np.repeat(fit.search_P[None], len(names), axis=0), np.zeros(len(names), bool)
    determined_G = determined_without(fit, group_N, len(names))
    few = int(determined_G.sum()) <= FEW
    if not few and len(names) * len(points) > SEARCHED:
        search_GP, known_G = refits_without(fit, group_N, len(names))
    searched = np.flatnonzero(determined_G & ~known_G)
    at_once = 1 + SEARCHED_AT_ONCE // len(points)
    for piece in (searched[i : i + at_once] for i in range(0, searched.size, at_once)):
        weights_RN = np.where(group_N != piece[:, None], points.weight, 0.0)
        searches = fit.law.searches if few else RESAMPLE_SEARCHES
        search_GP[piece], _, _ = solve(
            fit.law, points, weights_RN, warm_P=fit.search_P, searches=searches, error=fit.error
        )
    x_N1 = {name: np.asarray(values)[:, None] for name, values in points.x.items()}
    with np.errstate(all="ignore"):
        log_loss_N1 = fit.law.log_loss(fit.law.from_search(search_GP)[group_N], x_N1)
    residual_N = np.broadcast_to(log_loss_N1, (len(points), 1))[:, 0] - points.log_loss
    return np.where(determined_G[group_N], residual_N, np.nan)


def error_e4(value: float | None) -> str:
    """An error of log10 L as tables have it, in units of 1e-4."""
    return "–" if value is None else f"{value * 1e4:.1f}"


def _rms(residual_N: Array, weight_N: Array) -> float | None:
    if not weight_N.any() or np.isnan(residual_N).any():
        return None
    return float(np.sqrt(np.average(residual_N**2, weights=weight_N)))
