"""The critical batch size and what follows from it (Kaplan et al. 2020, section 5, after McCandlish et al. 2018).

A loss L that S steps of B tokens reach takes at least S_min steps (at a very large batch) and at least E_min tokens
(at a very small one). For all batches (S/S_min − 1)·(E/E_min − 1) = 1, with E = B·S, and

    B_crit(L) = E_min/S_min = B_*/L^(1/α_B),    S_min = S/(1 + B_crit/B),    E_min = E/(1 + B/B_crit)

At B = B_crit it takes twice the least of both. Clark et al. 2022 print the same S_min with B_c/L^(−α_B) in the place of
B_crit, which would fall as the loss does; the formula above is Kaplan's. To measure B_crit takes several batch sizes,
and the paper has one, of 524,288 tokens: B_* and α_B are Kaplan's, of another corpus and tokenizer, unless you give
your own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routelaw.errors import InputError
from routelaw.laws.law import Array


@dataclass(frozen=True)
class CriticalBatch:
    """B_crit(L) = B_*/L^(1/α_B), in tokens, and the least steps and tokens for a loss. Kaplan et al.'s constants.

    >>> critical = rl.CriticalBatch()
    >>> round(float(critical.tokens(loss=3.0)), -4)
    1070000.0
    >>> float(critical.min_steps(steps=250_000, batch_tokens=critical.tokens(2.5), loss=2.5))
    125000.0
    >>> float(critical.min_tokens(131e9, batch_tokens=256 * 2048, loss=2.5)) < 131e9
    True
    """

    scale: float = 2e8
    """B_*: the critical batch size, in tokens, at a loss of one nat."""
    exponent: float = 0.21
    """α_B: B_crit doubles as the loss falls by a factor 2^−α_B, 13 % for Kaplan's."""

    def __post_init__(self) -> None:
        for name, value in (("scale", self.scale), ("exponent", self.exponent)):
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"the {name} of a critical batch size must be a number above 0, not {value:g}.")

    def tokens(self, loss: float | Array) -> Array:
        """B_crit at this loss (nats per token)."""
        return self.scale * _positive(loss, "loss") ** (-1 / self.exponent)

    def min_steps(self, steps: float | Array, batch_tokens: float | Array, loss: float | Array) -> Array:
        """S_min: the steps to the same loss at a batch far above B_crit."""
        return _positive(steps, "steps") / (1 + self.tokens(loss) / _positive(batch_tokens, "batch_tokens"))

    def min_tokens(self, tokens: float | Array, batch_tokens: float | Array, loss: float | Array) -> Array:
        """E_min: the tokens to the same loss at a batch far below B_crit. C_min/C is the same share of the compute."""
        return _positive(tokens, "tokens") / (1 + _positive(batch_tokens, "batch_tokens") / self.tokens(loss))


def converged_loss(loss: float | Array, alpha_n: float, alpha_s: float) -> Array:
    """The loss that a model would converge to, from that of compute-efficient training (Kaplan et al. 2020, Eq. B.5).

    Where L(N, S) = (N_c/N)^α_N + (S_c/S)^α_S, the N that is best for its compute stops at
    L = (1 + α_N/α_S)·L(N, ∞), whatever the compute. This is only as good as that law: see `fit --law kaplan2020`.

    >>> round(float(rl.converged_loss(2.2, alpha_n=0.076, alpha_s=0.76)), 6)
    2.0
    """
    for name, value in (("alpha_n", alpha_n), ("alpha_s", alpha_s)):
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"{name} must be a number above 0, not {value:g}.")
    return _positive(loss, "loss") / (1 + alpha_n / alpha_s)


def _positive(value: float | Array, what: str) -> Array:
    values = np.asarray(value, dtype=float)
    if not (np.isfinite(values) & (values > 0)).all():
        raise InputError(f"{what} must be above 0 and finite.")
    return values
