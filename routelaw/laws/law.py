"""What a law is: a function from a run's measurable sizes to its loss, with named parameters.

A law knows nothing of data files, optimisers or error bars. It states its formula and source, what each parameter
means and where it may lie, how to predict, and where a search should begin. Everything else (fitting,
cross-validation, intervals, plans, figures) works on any object that keeps this contract.

Shapes: B fits side by side, N points, P parameters. `params_BP` are natural values in the order of
`law.parameters`; "search" coordinates are the same with positive, decade-spanning parameters in log10.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

Array = np.ndarray
LN10 = np.log(10.0)
Inputs = Mapping[str, Array]

MAX_STARTS = 400

FEW_EXPERTS = 5
COLUMNS = (
    "active_params", "experts", "k", "routing_frequency", "total_params", "flops_per_token", "step", "tokens",
    "granularity", "shared_experts", "embedding_params", "batch_tokens", "learning_rate",
)  # fmt: skip
"""Columns of the run table that a law may read."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: what it means, where it may lie, and (unless solved for directly) where searches begin.

    >>> rl.Parameter("l_inf", "loss of the largest model", low=0.0, starts=(1.0, 1.5)).log
    False
    """

    name: str
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    log: bool = False
    """Searched and given intervals in log10: for positive parameters that span decades."""
    starts: tuple[float, ...] = ()
    """Values a search begins from; a linear parameter needs none, it is solved for."""


@dataclass(frozen=True)
class Constant:
    """A number that follows from a law's parameters alone, such as N_c: reported beside them, with an interval."""

    name: str
    meaning: str
    of: Callable[[Array], Array]
    """params_BP -> the value, (B,); its log10 where `log` is true."""
    log: bool = False
    """Its interval is made in log10: for positive numbers that span decades."""


class Evaluation(Protocol):
    """A law at some parameter vectors: what it predicts there, and its slopes for as many of them as are wanted."""

    @property
    def log_loss_BN(self) -> Array: ...

    def jacobian(self, rows_L: Array) -> Array:
        """d log_loss / d search coordinate of the vectors with these numbers, (L, P, N)."""
        ...


class LawAtPoints(Protocol):
    """A law at points that stay the same while a search moves its parameters."""

    def evaluate(self, search_BP: Array) -> Evaluation: ...


class Law(ABC):
    """One scaling law. Subclasses are values: configured once, never changed.

    >>> law = rl.get_law("bilinear")
    >>> isinstance(law, rl.Law), law.inputs
    (True, ('active_params', 'experts'))
    """

    name: str
    formula: str
    source: str
    inputs: tuple[str, ...]
    """Columns of the run table that the law reads, e.g. ("active_params", "experts")."""
    parameters: tuple[Parameter, ...]
    constants: tuple[Constant, ...] = ()
    """What follows from the parameters and is reported with them."""
    searches: int = 12
    """How many of the best starting points a fit follows to their optimum."""
    at_one_length: str = ""
    """The law that it is where all runs were trained for one length, since its term in tokens is a constant there."""
    of_few_experts: str = ""
    """The law that it is, nearly, with fewer than `FEW_EXPERTS` expert counts, where Ê is not seen to saturate."""
    along_training: bool = False
    """True when the law describes whole training curves, so a fit takes every evaluation of a run."""

    @abstractmethod
    def log_loss(self, params_BP: Array, x: Inputs) -> Array:
        """log10 of the predicted loss, one row per parameter vector: (B, N). NaN where the law is undefined.

        An input is (N,), the same points for every parameter vector, or (B, N), each vector at points of its own.
        """

    def jacobian(self, params_BP: Array, x: Inputs) -> Array:
        """d log_loss / d parameter, (B, N, P). Central differences unless a law knows better."""
        columns = []
        for p in range(params_BP.shape[1]):
            step_B = 1e-6 * np.maximum(np.abs(params_BP[:, p]), 1e-3)
            shift_BP = np.zeros_like(params_BP)
            shift_BP[:, p] = step_B
            rise_BN = self.log_loss(params_BP + shift_BP, x) - self.log_loss(params_BP - shift_BP, x)
            columns.append(rise_BN / (2 * step_B[:, None]))
        return np.stack(columns, axis=-1)

    def at_points(self, x: Inputs) -> LawAtPoints:
        """The law at these points, to be evaluated many times."""
        return _AtPoints(self, x)

    def slopes(self, params_BP: Array, x: Inputs) -> tuple[Array, Array]:
        """(∂ log L/∂ log N, ∂ log L/∂ log E) at each point, each (B, N): the paper's a(E) and b(N)."""
        rises = []
        for column in ("active_params", "experts"):
            up, down = dict(x), dict(x)
            up[column], down[column] = x[column] * 10**1e-5, x[column] * 10**-1e-5
            rises.append((self.log_loss(params_BP, up) - self.log_loss(params_BP, down)) / 2e-5)
        return rises[0], rises[1]

    def log_cutoff(self, params_BP: Array, experts: float) -> Array | None:
        """log10 of the size beyond which E experts stop helping, (B,), where there is a closed form; else None."""
        return None

    def starts(self, x: Inputs, loss_N: Array, weights_RN: Array, count: int) -> Array:
        """Parameter vectors to begin from, (R, count, P), for each of R weightings of the points.

        Here: the product of the parameters' own starting values, ranked by how well each already fits.
        """
        choices = [p.starts or ((p.low + p.high) / 2,) for p in self.parameters]
        total = math.prod(len(c) for c in choices)
        if total > MAX_STARTS:
            rng = np.random.default_rng(0)
            grid_GP = np.stack([rng.choice(c, MAX_STARTS) for c in choices], axis=-1)
        else:
            grid_GP = np.array(list(itertools.product(*choices)), dtype=float)
        return self._best_of_grid(grid_GP, x, loss_N, weights_RN, count)

    def _best_of_grid(self, grid_GP: Array, x: Inputs, loss_N: Array, weights_RN: Array, count: int) -> Array:
        with np.errstate(all="ignore"):
            residual_GN = self.log_loss(grid_GP, x) - np.log10(loss_N)
        error_RG = weights_RN @ np.where(np.isfinite(residual_GN), residual_GN**2, 1e6).T
        best_RS = np.argsort(error_RG, axis=1, kind="stable")[:, :count]
        return grid_GP[best_RS]

    # -- coordinates -----------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)

    @property
    def log_mask_P(self) -> Array:
        return np.array([p.log for p in self.parameters])

    def to_search(self, params_BP: Array) -> Array:
        """Natural values to search coordinates (log10 of the parameters marked `log`)."""
        return np.where(self.log_mask_P, np.log10(np.where(self.log_mask_P, params_BP, 1.0)), params_BP)

    def from_search(self, search_BP: Array) -> Array:
        return np.where(self.log_mask_P, 10.0 ** np.where(self.log_mask_P, search_BP, 0.0), search_BP)

    def search_bounds(self) -> tuple[Array, Array]:
        low_P = np.array([p.low for p in self.parameters])
        high_P = np.array([p.high for p in self.parameters])
        return self.to_search(low_P), self.to_search(high_P)

    def row(self, params: Mapping[str, float]) -> Array:
        """Named values as one parameter vector, (1, P)."""
        return np.array([[params[name] for name in self.names]], dtype=float)

    def predict(self, params: Mapping[str, float], **inputs: float | Array) -> Array:
        """Predicted loss in nats, for one set of named parameters: `law.predict(fit.params, experts=64, …)`."""
        arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(inputs[k], dtype=float)) for k in self.inputs))
        x = dict(zip(self.inputs, arrays, strict=True))
        return 10.0 ** self.log_loss(self.row(params), x)[0]

    def __repr__(self) -> str:
        return f"<law {self.name}: {self.formula}>"


@dataclass(frozen=True, eq=False)
class _AtPoints:
    law: Law
    x: Inputs

    def evaluate(self, search_BP: Array) -> Evaluation:
        params_BP = self.law.from_search(search_BP)
        log_loss_BN = self.law.log_loss(params_BP, self.x)
        return _Evaluated(self, params_BP, np.broadcast_to(log_loss_BN, (len(params_BP), log_loss_BN.shape[1])))


@dataclass(frozen=True, eq=False)
class _Evaluated:
    at: _AtPoints
    params_BP: Array
    log_loss_BN: Array

    def jacobian(self, rows_L: Array) -> Array:
        params_LP = self.params_BP[rows_L]
        chain_LP = np.where(self.at.law.log_mask_P, params_LP * LN10, 1.0)
        return (self.at.law.jacobian(params_LP, self.at.x) * chain_LP[:, None]).transpose(0, 2, 1)
