"""Scaling law in sparsity of Abnar et al. 2025 ("Parameters vs FLOPs", arXiv 2501.12370).

    L = a/N^alpha + b/D^beta + c/(1−S)^lambda + d/((1−S)^delta·N^gamma) + e,     S = (E − K)/E

S is the share of experts that a token leaves idle. Their N counts all parameters, active or not: `total_params`.
"""

import numpy as np

from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.law import Parameter
from routelaw.laws.power_sum import PowerSum, coefficient, log_of, scale

LAW = PowerSum(
    name="abnar2025-tokens",
    formula="L = a·N^−alpha + b·D^−beta + c·(1−S)^−lambda + d·(1−S)^−delta·N^−gamma + e",
    source="Abnar et al. 2025, Eq. 5 (N: all parameters; S = 1 − K/E)",
    inputs=("total_params", "experts", "k", "tokens"),
    first=log_of("total_params"),
    others=(LOG_TOKENS, lambda x: np.log10(x["k"] / x["experts"])),
    terms=(
        (
            scale("a", "scale of the loss that size removes"),
            coefficient("alpha", "its power in N", (1,), (0.2, 0.4, 0.6), factor=-1),
        ),
        (
            scale("b", "scale of the loss that tokens remove"),
            coefficient("beta", "its power in D", (0, 0, 1), (0.2, 0.4), factor=-1),
        ),
        (
            scale("c", "scale of the loss that sparsity changes"),
            coefficient("lambda", "its power in the share of active experts", (0, 0, 0, 1), (-0.2, 0.3), factor=-1),
        ),
        (
            scale("d", "scale of the loss that sparsity and size change together"),
            coefficient("delta", "its power in the share of active experts", (0, 0, 0, 1), (0.15, 0.6), factor=-1),
            coefficient("gamma", "its power in N", (1,), (0.15, 0.5), factor=-1),
        ),
    ),
    offset=Parameter("e", "irreducible loss in nats", low=0.0, high=20.0),
    searches=100,
)
