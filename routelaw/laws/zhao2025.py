"""The law of Zhao et al. 2025 ("Towards a Comprehensive Scaling Law of Mixture-of-Experts", arXiv 2509.23678).

    L = (e·G + f/G + m·S² + n·S)·(N^−α + k·Na^−α + h·Na/N) + a/N^α + b/D^β + c/Na^α + ε

N counts all parameters and Na the active ones. G is the number of experts that a token uses, shared ones among them
(not granularity), and S the share of them that are shared: G = k + shared_experts, S = shared_experts/G.
"""

from __future__ import annotations

import numpy as np

from routelaw.laws.law import LN10, Array, Inputs, Law, Parameter

LINEAR = ("e", "f", "m", "n")
"""Coefficients of what G and S do; the loss is linear in these."""


def _positive(name: str, meaning: str, starts: tuple[float, ...] = (1.0,)) -> Parameter:
    return Parameter(name, meaning, low=1e-12, high=1e30, log=True, starts=starts)


class Zhao2025(Law):
    name = "zhao2025"
    formula = "L = (e·G + f/G + m·S² + n·S)·(N^−α + k·Na^−α + h·Na/N) + a·N^−α + b·D^−β + c·Na^−α + ε"
    source = "Zhao et al. 2025 (N: all parameters, Na: active ones, G: experts per token, S: share of shared ones)"
    inputs = ("active_params", "total_params", "k", "shared_experts", "tokens")
    parameters = (
        Parameter("e", "loss by each expert that a token uses", starts=(0.1,)),
        Parameter("f", "loss by having few of them", starts=(5.0,)),
        Parameter("m", "loss by the square of the share of shared experts", starts=(3.0,)),
        Parameter("n", "loss by the share of shared experts", starts=(-2.0,)),
        _positive("k", "weight of the active size against the total one", (1e-3, 0.1)),
        _positive("h", "weight of the share of active parameters", (0.05, 0.005)),
        _positive("a", "scale of the loss that total parameters remove", (30.0,)),
        Parameter("alpha", "power in both sizes", 1e-3, 3.0, starts=(0.15, 0.25, 0.4)),
        _positive("b", "scale of the loss that tokens remove", (1e3,)),
        Parameter("beta", "power in D", 1e-3, 3.0, starts=(0.2, 0.35, 0.5)),
        _positive("c", "scale of the loss that active parameters remove", (30.0,)),
        Parameter("epsilon", "irreducible loss in nats", 0.0, 20.0, starts=(0.5, 1.5)),
    )
    searches = 12

    def log_loss(self, params_BP: Array, x: Inputs) -> Array:
        return np.log10(self._loss(params_BP, x)[0])

    def jacobian(self, params_BP: Array, x: Inputs) -> Array:
        loss, by_parameter = self._loss(params_BP, x)
        columns = np.broadcast_arrays(*by_parameter)
        return np.stack(columns, axis=-1) / (loss * LN10)[..., None]

    def _loss(self, params_BP: Array, x: Inputs) -> tuple[Array, list[Array]]:
        """The loss, and its slope by each parameter."""
        e, f, m, n, k, h, a, alpha, b, beta, c, epsilon = (params_BP[:, p, None] for p in range(12))
        active, total, tokens = (np.atleast_2d(x[name]) for name in ("active_params", "total_params", "tokens"))
        used = np.atleast_2d(x["k"] + x["shared_experts"])
        shared = np.atleast_2d(x["shared_experts"]) / used
        by_total, by_active, by_tokens = total**-alpha, active**-alpha, tokens**-beta
        choice = e * used + f / used + m * shared**2 + n * shared
        sizes = by_total + k * by_active + h * active / total
        log_total, log_active = np.log(total), np.log(active)
        loss = choice * sizes + a * by_total + b * by_tokens + c * by_active + epsilon
        by_alpha = -(choice + a) * by_total * log_total - (choice * k + c) * by_active * log_active
        return loss, [
            used * sizes, sizes / used, shared**2 * sizes, shared * sizes,
            choice * by_active, choice * active / total,
            by_total, by_alpha, by_tokens, -b * by_tokens * np.log(tokens), by_active, np.ones_like(loss),
        ]  # fmt: skip


LAW = Zhao2025()
