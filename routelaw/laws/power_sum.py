"""The family nearly every published loss law belongs to: an offset plus a sum of powers.

    L = l_inf + Σ_t 10^η_t,      η_t = Σ_j β_tj · u^p · v^q · w^r · …

with u, v, w, … the logarithms of sizes (N and E, F and B, N, E and D), v perhaps saturated. A law of this family is a
declaration: which coefficient multiplies which monomial. Terms may share a coefficient. Prediction, the analytic
Jacobian and starting points are written here once. With one term and no offset log L is linear in every β, so a fit can
eliminate them (variable projection); otherwise the same linear algebra gives good starting points.

Shapes: B fits, R weightings of the points, G grid points, N points, C coefficients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from routelaw.errors import InputError
from routelaw.laws.law import LN10, MAX_STARTS, Array, Constant, Inputs, Law, LawAtPoints, Parameter
from routelaw.laws.power_sum_at_points import PowerSumAtPoints
from routelaw.laws.saturation import Saturation

Powers = tuple[int, ...]
"""Exponents (p, q, r, …) of the monomial u^p · v^q · w^r · … that a coefficient multiplies; those left out are 0."""


@dataclass(frozen=True)
class Coefficient:
    """A parameter that multiplies one monomial of one term. It counts by its logarithm where it is searched in that."""

    parameter: Parameter
    powers: Powers
    factor: float = 1.0
    """A constant of the formula: −1 for A·N^−α, ln 10 for an exponent written with natural logarithms."""


def coefficient(
    name: str,
    meaning: str,
    powers: Powers,
    starts: tuple[float, ...] = (),
    *,
    factor: float = 1.0,
    low: float = -math.inf,
    high: float = math.inf,
) -> Coefficient:
    """A parameter that multiplies u^p · v^q · …, with (p, q, …) the `powers`, and a constant `factor`.

    >>> rl.coefficient("c", "interaction of the two slopes", (1, 1)).parameter.name
    'c'
    """
    return Coefficient(Parameter(name, meaning, starts=starts, low=low, high=high), powers, factor)


def scale(name: str, meaning: str) -> Coefficient:
    """The scale of a term by its value, A of A·N^−α, rather than by its logarithm. A fit solves for where it starts.

    >>> rl.scale("a", "scale of what size removes").parameter.log
    True
    """
    return Coefficient(Parameter(name, meaning, low=1e-30, high=1e60, log=True, starts=(1.0,)), (0, 0))


def log_of(column: str) -> Callable[[Inputs], Array]:
    return lambda x: np.log10(x[column])


LOG_SIZE = log_of("active_params")


@dataclass(eq=False, repr=False)
class PowerSum(Law):
    """A law whose logarithm, or whose loss above a floor, is a sum of powers: most laws of the literature are.

    >>> c = rl.coefficient
    >>> law = rl.PowerSum(
    ...     name="two slopes", formula="log L = a·log N + b·log E + d", source="me",
    ...     inputs=("active_params", "experts"), second=lambda x: x["experts"],
    ...     terms=((c("a", "slope in log N", (1, 0)), c("b", "slope in log E", (0, 1)), c("d", "level", (0, 0))),),
    ... )
    >>> rl.fit_law(law, rl.select_points(table, "s-base")).status
    'converged'
    """

    name: str
    formula: str
    source: str
    inputs: tuple[str, ...]
    terms: tuple[tuple[Coefficient, ...], ...]
    offset: Parameter | None = None
    first: Callable[[Inputs], Array] = LOG_SIZE
    """u: log10 of the first size."""
    second: Callable[[Inputs], Array] | None = None
    """The second size itself, before its logarithm and saturation; None where a law has one axis."""
    saturation: Saturation | None = None
    others: tuple[Callable[[Inputs], Array], ...] = ()
    """w, …: log10 of further sizes."""
    along_training: bool = False
    at_one_length: str = ""
    of_few_experts: str = ""
    searches: int = 12
    constants: tuple[Constant, ...] = ()
    """What follows from the parameters and is reported with them."""
    parameters: tuple[Parameter, ...] = field(init=False)

    def __post_init__(self) -> None:
        coefficients = [c for term in self.terms for c in term]
        distinct = {c.parameter.name: c.parameter for c in coefficients}
        parameters = list(distinct.values())
        self._linear_count = len(parameters)
        names = list(distinct)
        self._places = [np.array([names.index(c.parameter.name) for c in term], int) for term in self.terms]
        self._factors = [np.array([c.factor for c in term]) for term in self.terms]
        parameters += [self.saturation.start, self.saturation.ceiling] if self.saturation else []
        parameters += [self.offset] if self.offset else []
        self.parameters = tuple(parameters)
        self._check()

    def _check(self) -> None:
        """A law of the user's own is declared in a file: what fitting takes for granted is refused here by name."""
        coefficients = [c for term in self.terms for c in term]
        alike = {(c.parameter.name, c.parameter) for c in coefficients}
        names = [name for name, _ in alike] + [p.name for p in self.parameters[self._linear_count :]]
        twice = [name for i, name in enumerate(names) if name in names[:i]]
        twice += [n for term in self.terms for n in _repeated([c.parameter.name for c in term])]
        if twice:
            raise InputError(f"law {self.name}: two parameters are called {twice[0]!r}; each needs a name of its own.")
        if not self.terms or not all(self.terms):
            raise InputError(f"law {self.name}: a law needs at least one term, and a term at least one coefficient.")
        for number, term in enumerate(self.terms, start=1):
            if len(self.terms) > 1 and any(term[0].powers):
                raise InputError(
                    f"law {self.name}: term {number} of {len(self.terms)} must begin with its scale, a coefficient of "
                    f"powers (0, 0), and {term[0].parameter.name!r} has {term[0].powers}."
                )

    # -- prediction ------------------------------------------------------------------------------------

    @property
    def is_log_linear(self) -> bool:
        """log L is linear in every coefficient, so a fit may solve for them exactly."""
        return len(self.terms) == 1 and self.offset is None

    @property
    def linear_count(self) -> int:
        """How many parameters are coefficients: the first ones."""
        return self._linear_count

    @property
    def places(self) -> list[Array]:
        """For each term, the number of the parameter that each of its coefficients is."""
        return self._places

    def log_loss(self, params_BP: Array, x: Inputs) -> Array:
        axes = self._axes(params_BP, x)
        powers = [self._exponent(term, beta, axes) for term, beta in self.split(params_BP)]
        if self.is_log_linear:
            return powers[0]
        return np.log10(self._sum(params_BP, powers))

    def jacobian(self, params_BP: Array, x: Inputs) -> Array:
        axes = self._axes(params_BP, x)
        terms = self.split(params_BP)
        powers = [self._exponent(term, beta, axes) for term, beta in terms]
        total_BN = None if self.is_log_linear else self._sum(params_BP, powers)
        columns: list[Array] = [np.zeros((1, 1))] * self.linear_count
        by_v_BN = np.zeros((1, 1))
        for (term, beta_BC), eta_BN, places_C in zip(terms, powers, self._places, strict=True):
            share_BN = np.ones_like(eta_BN) if total_BN is None else 10.0**eta_BN / total_BN
            for c, place in zip(term, places_C, strict=True):
                columns[place] = columns[place] + share_BN * c.factor * _monomial(c.powers, axes)
            if self.saturation:
                by_v_BN = by_v_BN + share_BN * self._slope_of_exponent(term, beta_BC, axes, 1)
        for place, parameter in enumerate(self.parameters[: self.linear_count]):
            if parameter.log:
                columns[place] = columns[place] / (params_BP[:, place, None] * LN10)
        if self.saturation:
            start_B, ceiling_B = self.saturation_values(params_BP)
            by_start, by_ceiling = self.saturation.derivatives(self._second(x), start_B, ceiling_B)
            columns += [by_v_BN * by_start, by_v_BN * by_ceiling]
        if total_BN is not None and self.offset:
            columns.append(1.0 / (total_BN * LN10))
        shape = np.broadcast_shapes(*(c.shape for c in columns), (len(params_BP), axes[0].shape[1]))
        return np.stack([np.broadcast_to(c, shape) for c in columns], axis=-1)

    def at_points(self, x: Inputs) -> LawAtPoints:
        plain = all(getattr(type(self), name) is getattr(PowerSum, name) for name in ("log_loss", "jacobian", "_axes"))
        return PowerSumAtPoints(self, x) if plain else super().at_points(x)

    def slopes(self, params_BP: Array, x: Inputs) -> tuple[Array, Array]:
        """(∂ log L/∂ log N, ∂ log L/∂ log Ê) at each point: the paper's a(E) and b(N), each (B, N)."""
        axes = self._axes(params_BP, x)
        terms = self.split(params_BP)
        powers = [self._exponent(term, beta, axes) for term, beta in terms]
        total_BN = self._sum(params_BP, powers)
        by_u, by_v = np.zeros_like(total_BN), np.zeros_like(total_BN)
        for (term, beta_BC), eta_BN in zip(terms, powers, strict=True):
            share_BN = 10.0**eta_BN / total_BN
            by_u = by_u + share_BN * self._slope_of_exponent(term, beta_BC, axes, 0)
            by_v = by_v + share_BN * self._slope_of_exponent(term, beta_BC, axes, 1)
        return by_u, by_v

    def log_cutoff(self, params_BP: Array, experts: float) -> Array | None:
        """One term, linear in u: the gain of E experts over one is a line in log N, and this is its zero."""
        if len(self.terms) > 1 or self.second is None or self.others:
            return None
        if any(c.powers[0] > 1 and c.powers[1] for c in self.terms[0]):
            return None
        x = {"active_params": np.ones(2), "experts": np.array([1.0, experts])}
        v_BN = self._axes(params_BP, x)[1]
        ((term, beta_BC),) = self.split(params_BP)
        constant_B, slope_B = np.zeros(len(params_BP)), np.zeros(len(params_BP))
        for j, (p, q) in enumerate(c.powers for c in term):
            rise_B = beta_BC[:, j] * (v_BN[:, 1] ** q - v_BN[:, 0] ** q)
            constant_B, slope_B = (constant_B, slope_B + rise_B) if p else (constant_B + rise_B, slope_B)
        with np.errstate(all="ignore"):
            zero_B = -constant_B / slope_B
        # Where the line falls, routing helps ever more with size and never stops; where flat, it helps or does not.
        never_ends_B = (slope_B < 0) | ((slope_B == 0) & (constant_B < 0))
        return np.where(slope_B > 0, zero_B, np.where(never_ends_B, np.inf, -np.inf))

    # -- the linear part -------------------------------------------------------------------------------

    def basis(self, params_BP: Array, x: Inputs) -> Array:
        """Columns that the coefficients multiply in log L, (B, N, C); depends on the saturation parameters only."""
        axes = self._axes(params_BP, x)
        columns = [c.factor * _monomial(c.powers, axes) for term in self.terms for c in term]
        shape = np.broadcast_shapes(*(c.shape for c in columns), (params_BP.shape[0], axes[0].shape[1]))
        return np.stack([np.broadcast_to(c, shape) for c in columns], axis=-1)

    def starts(self, x: Inputs, loss_N: Array, weights_RN: Array, count: int) -> Array:
        grid_GP = self._grid(float(loss_N.min()))
        if len(self.terms) == 1:
            return self._starts_one_term(grid_GP, x, loss_N, weights_RN, count)
        return self._starts_many_terms(grid_GP, x, loss_N, weights_RN, count)

    def _grid(self, lowest_loss: float) -> Array:
        """Starting values of all that is not solved for; an offset starts at shares of the lowest loss seen."""
        choices: dict[str, tuple[float, ...]] = {p.name: p.starts or (0.0,) for p in self.parameters}
        if self.offset and len(self.terms) == 1:
            choices[self.offset.name] = tuple(share * lowest_loss for share in (0.0, 0.3, 0.55, 0.7, 0.8, 0.88, 0.95))
        product = np.array(list(itertools.product(*choices.values())), dtype=float)
        if len(self.terms) > 1 and len(product) > MAX_STARTS:
            product = product[np.random.default_rng(0).choice(len(product), MAX_STARTS, replace=False)]
        return product

    def _starts_one_term(self, grid_GP: Array, x: Inputs, loss_N: Array, weights_RN: Array, count: int) -> Array:
        """For each grid point solve log10(L − l_inf) = Σ β·basis, weighted as errors in log L see it."""
        offset_G1 = grid_GP[:, -1:] if self.offset else np.zeros((len(grid_GP), 1))
        excess_GN = loss_N - offset_G1
        basis_GNC = self.basis(grid_GP, x)
        usable_G = (excess_GN > 0).all(1) & np.isfinite(basis_GNC).all((1, 2))
        grid_GP, excess_GN, basis_GNC = grid_GP[usable_G], excess_GN[usable_G], basis_GNC[usable_G]
        scale_GN = excess_GN / loss_N
        beta_RGC, error_RG = solve_weighted(basis_GNC * scale_GN[..., None], np.log10(excess_GN) * scale_GN, weights_RN)
        best_RS = np.argsort(error_RG, axis=1, kind="stable")[:, :count]
        starts_RSP = grid_GP[best_RS]
        starts_RSP[..., : self.linear_count] = np.take_along_axis(beta_RGC, best_RS[..., None], axis=1)
        logs = np.flatnonzero(self.log_mask_P[: self.linear_count])
        starts_RSP[..., logs] = 10.0 ** starts_RSP[..., logs]
        return starts_RSP

    def _starts_many_terms(self, grid_GP: Array, x: Inputs, loss_N: Array, weights_RN: Array, count: int) -> Array:
        """The sum is linear in its scales and the offset: solve for those, relative to the loss.

        A term's scale is its first coefficient, with powers (0, 0).
        """
        intercepts = [int(places_C[0]) for places_C in self._places]
        logs = [i for i in intercepts if self.parameters[i].log]
        grid_GP = grid_GP.copy()
        grid_GP[:, intercepts] = np.where(self.log_mask_P[intercepts], 1.0, 0.0)
        axes = self._axes(grid_GP, x)
        columns = [10.0 ** self._exponent(t, beta, axes) for t, beta in self.split(grid_GP)]
        shape = (len(grid_GP), loss_N.size)
        columns = [np.broadcast_to(c, shape) / loss_N for c in columns]
        if self.offset:
            columns.append(np.broadcast_to(1.0 / loss_N, shape))
        scales_RGC, _ = solve_weighted(np.stack(columns, -1), np.ones(shape), weights_RN)
        floor = 1e-6 * float(loss_N.min())
        share = np.stack([c.mean(1) for c in columns], -1)
        scales_RGC = np.maximum(scales_RGC, floor / share / loss_N.mean())
        R, G, _ = scales_RGC.shape
        starts_RGP = np.broadcast_to(grid_GP, (R, G, grid_GP.shape[1])).copy()
        starts_RGP[..., intercepts] = np.log10(scales_RGC[..., : len(self.terms)])
        starts_RGP[..., logs] = 10.0 ** starts_RGP[..., logs]
        if self.offset:
            starts_RGP[..., -1] = scales_RGC[..., -1]
        with np.errstate(all="ignore"):
            fitted = self.log_loss(starts_RGP.reshape(R * G, -1), x).reshape(R, G, -1)
        error_RGN = np.where(np.isfinite(fitted), (fitted - np.log10(loss_N)) ** 2, 1e6)
        error_RG = (error_RGN * weights_RN[:, None]).sum(-1)
        best_RS = np.argsort(error_RG, axis=1, kind="stable")[:, :count]
        return np.take_along_axis(starts_RGP, best_RS[..., None], axis=1)

    # -- pieces ----------------------------------------------------------------------------------------

    def _second(self, x: Inputs) -> Array:
        assert self.second is not None
        return self.second(x)

    def saturation_values(self, params_BP: Array) -> tuple[Array, Array]:
        return params_BP[:, self.linear_count], params_BP[:, self.linear_count + 1]

    def _axes(self, params_BP: Array, x: Inputs) -> list[Array]:
        """The logarithms u, v, w, …: each (B, N) or (1, N)."""
        u_BN = np.atleast_2d(self.first(x))
        if self.second is None:
            v_BN = np.zeros_like(u_BN)
        elif self.saturation is None:
            v_BN = np.log10(np.atleast_2d(self.second(x)))
        else:
            v_BN = self.saturation.log_effective(self.second(x), *self.saturation_values(params_BP))
        return [u_BN, v_BN, *(np.atleast_2d(other(x)) for other in self.others)]

    def split(self, params_BP: Array) -> list[tuple[tuple[Coefficient, ...], Array]]:
        """For each term, its coefficients and what multiplies their monomials, (B, C)."""
        logs = self.log_mask_P[: self.linear_count]
        own_BC = params_BP[:, : self.linear_count]
        values_BC = np.where(logs, np.log10(np.where(logs, own_BC, 1.0)), own_BC) if logs.any() else own_BC
        return [
            (term, values_BC[:, places_C] * factors_C)
            for term, places_C, factors_C in zip(self.terms, self._places, self._factors, strict=True)
        ]

    def _sum(self, params_BP: Array, powers: list[Array]) -> Array:
        total_BN = sum((10.0**eta_BN for eta_BN in powers), np.zeros((1, 1)))
        return total_BN + params_BP[:, -1:] if self.offset else total_BN

    @staticmethod
    def _exponent(term: tuple[Coefficient, ...], beta_BC: Array, axes: list[Array]) -> Array:
        return sum((beta_BC[:, j, None] * _monomial(c.powers, axes) for j, c in enumerate(term)), np.zeros((1, 1)))

    @staticmethod
    def _slope_of_exponent(term: tuple[Coefficient, ...], beta_BC: Array, axes: list[Array], axis: int) -> Array:
        """By the logarithm with this number."""
        pieces = (
            beta_BC[:, j, None] * c.powers[axis] * _monomial(_lowered(c.powers, axis), axes)
            for j, c in enumerate(term)
            if len(c.powers) > axis and c.powers[axis] > 0
        )
        return sum(pieces, np.zeros((1, 1)))


def _lowered(powers: Powers, axis: int) -> Powers:
    return (*powers[:axis], powers[axis] - 1, *powers[axis + 1 :])


def _monomial(powers: Powers, axes: list[Array]) -> Array:
    value = np.ones_like(axes[0])
    for power, axis_BN in zip(powers, axes, strict=False):
        if power:
            value = value * axis_BN**power
    return value


def _repeated(names: list[str]) -> list[str]:
    return [name for i, name in enumerate(names) if name in names[:i]]


def solve_weighted(basis_GNC: Array, target_GN: Array, weights_RN: Array) -> tuple[Array, Array]:
    """Weighted least squares of every grid point under every weighting: coefficients (R, G, C), squared error (R, G).

    All weightings share the outer products of a grid point, so the whole table is two matrix products.
    """
    G, N, C = basis_GNC.shape
    scale_GC = np.sqrt((basis_GNC**2).mean(1)) + 1e-300
    scaled_GNC = basis_GNC / scale_GC[:, None]
    outer = (scaled_GNC[..., :, None] * scaled_GNC[..., None, :]).transpose(1, 0, 2, 3).reshape(N, -1)
    normal_RGCC = (weights_RN @ outer).reshape(-1, G, C, C)
    normal_RGCC = normal_RGCC + 1e-13 * weights_RN.sum(1)[:, None, None, None] * np.eye(C)
    moment = (scaled_GNC * target_GN[..., None]).transpose(1, 0, 2).reshape(N, -1)
    moment_RGC = (weights_RN @ moment).reshape(-1, G, C)
    beta_RGC = np.linalg.solve(normal_RGCC, moment_RGC[..., None])[..., 0]
    explained_RG = (beta_RGC * moment_RGC).sum(-1)
    error_RG = weights_RN @ (target_GN**2).T - explained_RG
    return beta_RGC / scale_GC, error_RG
