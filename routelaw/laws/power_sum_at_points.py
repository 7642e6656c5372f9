"""A sum of powers at points that stay the same: what a search evaluates thousands of times, in few passes.

The same formulas as `PowerSum.log_loss`, `.jacobian` and `.basis`, which are the plain reference (equal by test). What
does not depend on the parameters is computed once: powers of all sizes but v, and which points share a value of the
second size, so that saturation is computed for the few distinct ones. A slope reuses the powers that the prediction
has computed.

Shapes: B fits, L of them whose slopes are wanted, N points, V distinct values of the second size, C coefficients,
P parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from routelaw.laws.law import LN10, Array, Inputs

if TYPE_CHECKING:
    from routelaw.laws.power_sum import Coefficient, PowerSum

LOG2_10 = np.log2(10.0)


class PowerSumAtPoints:
    def __init__(self, law: PowerSum, x: Inputs) -> None:
        self.law = law
        self.u_N = np.asarray(law.first(x), float)
        rest = [self.u_N, *(np.asarray(other(x), float) for other in law.others)]
        self.second_V, self.value_N, self.v_1N = np.zeros(0), np.zeros(0, int), np.zeros((1, self.u_N.size))
        if law.second is not None:
            self.second_V, self.value_N = np.unique(np.asarray(law.second(x), float), return_inverse=True)
            with np.errstate(all="ignore"):
                self.v_1N = np.log10(self.second_V)[None, self.value_N]
        self.terms = [_Term(*piece, rest) for piece in zip(law.terms, law.places, strict=True)]
        # A coefficient searched in log10 counts by that logarithm: its slope needs no chain rule.
        self.log_P = law.log_mask_P & (np.arange(len(law.parameters)) >= law.linear_count)

    def evaluate(self, search_BP: Array) -> PowerSumEvaluation:
        params_BP = self.law.from_search(search_BP)
        return PowerSumEvaluation(self, params_BP, self.v(params_BP))

    def v(self, params_BP: Array) -> Array:
        """log10 of the second size, saturated where the law says so: (B, N), or (1, N) where it is the same for all."""
        if self.law.saturation is None:
            return self.v_1N
        start_B, ceiling_B = self.law.saturation_values(params_BP)
        return self.law.saturation.log_effective(self.second_V, start_B, ceiling_B)[:, self.value_N]

    def basis(self, search_BP: Array) -> Array:
        """What the coefficients of a law of one term multiply, (B, C, N), or (1, C, N) where it is the same for all."""
        v_BN = self.v(self.law.from_search(search_BP))
        (term,) = self.terms
        basis_BCN = np.empty((len(v_BN), len(term.powers_of_v), self.u_N.size))
        for j, (q, fixed_N) in enumerate(zip(term.powers_of_v, term.fixed, strict=True)):
            np.multiply(_power(v_BN, q), fixed_N, out=basis_BCN[:, j])
        return basis_BCN


class _Term:
    """One exponent: Σ_q v^q · (Σ_j β_j · fixed_j), where `fixed` is what the other sizes make of the monomial."""

    def __init__(self, term: tuple[Coefficient, ...], places_C: Array, rest: list[Array]) -> None:
        self.places_C = places_C
        self.powers_of_v = [c.powers[1] if len(c.powers) > 1 else 0 for c in term]
        self.fixed = [_fixed(c, rest) for c in term]
        self.factors_C = np.array([c.factor for c in term])
        self.varies = [any(c.powers[:1] + c.powers[2:]) for c in term]
        self.by_q = {q: [j for j, own in enumerate(self.powers_of_v) if own == q] for q in self.powers_of_v}

    def factors(self, values_BP: Array) -> dict[int, Array]:
        """By q, what multiplies v^q: each (B, N), or (B, 1) where it is the same at all points."""
        values_BC = values_BP[:, self.places_C]
        return {q: self._factor(values_BC, own) for q, own in self.by_q.items()}

    def _factor(self, values_BC: Array, own: list[int]) -> Array:
        pieces = [values_BC[:, j, None] * (self.fixed[j] if self.varies[j] else self.factors_C[j]) for j in own]
        return sum(pieces[1:], pieces[0])


def _fixed(c: Coefficient, rest: list[Array]) -> Array:
    value_N = np.full(rest[0].shape, c.factor)
    for power, size_N in zip(c.powers[:1] + c.powers[2:], rest, strict=False):
        if power:
            value_N = value_N * size_N**power
    return value_N


class PowerSumEvaluation:
    """Predictions at some parameter vectors, with the powers that their slopes are made of."""

    def __init__(self, at: PowerSumAtPoints, params_BP: Array, v_BN: Array) -> None:
        self.at, self.params_BP, self.v_BN = at, params_BP, v_BN
        self.factors: list[dict[int, Array]] = []
        self.powers: list[Array] = []
        self.total_BN = np.ones((1, 1))
        shape = (len(params_BP), at.u_N.size)
        etas = []
        values_BP = at.law.to_search(params_BP)
        for term in at.terms:
            factors = term.factors(values_BP)
            pieces = [f_BN if q == 0 else f_BN * _power(v_BN, q) for q, f_BN in factors.items()]
            etas.append(sum(pieces[1:], pieces[0]))
            self.factors.append(factors)
        if at.law.is_log_linear:
            self.log_loss_BN: Array = np.broadcast_to(etas[0], shape)
            return
        self.powers = [np.exp2(LOG2_10 * eta_BN) for eta_BN in etas]
        total_BN = sum(self.powers[1:], self.powers[0])
        self.total_BN = total_BN + params_BP[:, -1:] if at.law.offset else total_BN
        self.log_loss_BN = np.broadcast_to(np.log10(self.total_BN), shape)

    def jacobian(self, rows_L: Array) -> Array:
        at, law = self.at, self.at.law
        params_LP = self.params_BP[rows_L]
        v_LN = self.v_BN[rows_L] if len(self.v_BN) > 1 else self.v_BN
        inverse_LN = 1.0 / self.total_BN[rows_L] if self.powers else np.ones((1, 1))
        jac_LPN = np.empty((len(rows_L), params_LP.shape[1], at.u_N.size))
        by_v_LN = np.zeros((1, 1))
        jac_LPN[:, : law.linear_count] = 0.0
        for nth, term in enumerate(at.terms):
            share_LN = self.powers[nth][rows_L] * inverse_LN if self.powers else inverse_LN
            shares = {q: share_LN if q == 0 else share_LN * _power(v_LN, q) for q in term.by_q}
            for place, q, fixed_N in zip(term.places_C, term.powers_of_v, term.fixed, strict=True):
                jac_LPN[:, place] += shares[q] * fixed_N
            if law.saturation:
                for q, f_BN in self.factors[nth].items():
                    if q:
                        below_LN = share_LN if q == 1 else q * share_LN * _power(v_LN, q - 1)
                        by_v_LN = by_v_LN + f_BN[rows_L] * below_LN
        column = law.linear_count
        if law.saturation:
            derivatives = law.saturation.derivatives(at.second_V, *law.saturation_values(params_LP))
            for by_parameter_LV in derivatives:
                np.multiply(by_v_LN, by_parameter_LV[:, at.value_N], out=jac_LPN[:, column])
                column += 1
        if law.offset and self.powers:
            np.multiply(inverse_LN, 1.0 / LN10, out=jac_LPN[:, column])
        for p in np.flatnonzero(at.log_P):
            jac_LPN[:, p] *= (params_LP[:, p] * LN10)[:, None]
        return jac_LPN


def _power(v_BN: Array, q: int) -> Array:
    return np.ones_like(v_BN) if q == 0 else v_BN if q == 1 else v_BN**q
