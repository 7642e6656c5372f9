"""Kaplan et al. 2020 (arXiv 2001.08361), Eq. 1.5: L(N, D) = ((N_c/N)^(α_N/α_D) + D_c/D)^α_D.

It has no irreducible loss. N counts no embeddings; D is the tokens of a run, in their setting of a limited data set.
"""

from __future__ import annotations

import numpy as np

from routelaw.laws.law import LN10, Array, Inputs, Law, Parameter

STEEPEST = 5.0


class Kaplan2020Tokens(Law):
    name = "kaplan2020-tokens"
    formula = "L = ((n_c/N)^(alpha_n/alpha_d) + d_c/D)^alpha_d"
    source = "Kaplan et al. 2020, Eq. 1.5"
    inputs = ("active_params", "tokens")
    parameters = (
        Parameter("n_c", "size at which unlimited tokens leave one nat", 1.0, 1e60, True, (1e12, 1e14, 1e17)),
        Parameter("alpha_n", "power in N where tokens do not limit", 1e-4, STEEPEST, True, (0.04, 0.08, 0.15, 0.3)),
        Parameter("d_c", "tokens at which an unlimited model leaves one nat", 1.0, 1e60, True, (1e12, 1e14, 1e17)),
        Parameter("alpha_d", "power in D where size does not limit", 1e-4, STEEPEST, True, (0.05, 0.1, 0.2, 0.4)),
    )
    searches = 30

    def log_loss(self, params_BP: Array, x: Inputs) -> Array:
        _, alpha_d, by_size, by_tokens = self._powers(params_BP, x)
        return alpha_d * np.logaddexp2(by_size / np.log10(2), by_tokens / np.log10(2)) * np.log10(2)

    def jacobian(self, params_BP: Array, x: Inputs) -> Array:
        alpha_n, alpha_d, by_size, by_tokens = self._powers(params_BP, x)
        total = np.logaddexp2(by_size / np.log10(2), by_tokens / np.log10(2)) * np.log10(2)
        size_share = 10.0 ** (by_size - total)
        n_c, d_c = params_BP[:, 0, None], params_BP[:, 2, None]
        by_exponent = alpha_d * size_share * by_size  # both exponents enter the first power as their ratio
        columns = [
            size_share * alpha_n / (n_c * LN10),
            by_exponent / alpha_n,
            alpha_d * (1.0 - size_share) / (d_c * LN10),
            total - by_exponent / alpha_d,
        ]
        return np.stack(np.broadcast_arrays(*columns), axis=-1)

    @staticmethod
    def _powers(params_BP: Array, x: Inputs) -> tuple[Array, Array, Array, Array]:
        """α_N, α_D, and log10 of the two powers that are added."""
        n_c, alpha_n, d_c, alpha_d = (params_BP[:, p, None] for p in range(4))
        by_size = (np.log10(n_c) - np.log10(np.atleast_2d(x["active_params"]))) * alpha_n / alpha_d
        return alpha_n, alpha_d, by_size, np.log10(d_c) - np.log10(np.atleast_2d(x["tokens"]))


LAW = Kaplan2020Tokens()
