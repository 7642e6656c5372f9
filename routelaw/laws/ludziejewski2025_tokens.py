"""The joint law of Ludziejewski et al. 2025 ("Joint MoE Scaling Laws", arXiv 2502.05172).

    L = a·Ê^delta·N^(alpha + gamma·ln Ê) + b·Ê^omega·D^(beta + zeta·ln Ê) + c

Their N counts active parameters with embeddings, so a table needs the column `embedding_params`. gamma and zeta
multiply the natural logarithm of Ê, as they print it.
"""

import numpy as np

from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.law import LN10, Parameter
from routelaw.laws.power_sum import PowerSum, coefficient, scale
from routelaw.laws.saturation import EXPERTS

LAW = PowerSum(
    name="ludziejewski2025-tokens",
    formula="L = a·Ê^delta·N^(alpha + gamma·ln Ê) + b·Ê^omega·D^(beta + zeta·ln Ê) + c",
    source="Ludziejewski et al. 2025, Eq. 5 (N with embeddings)",
    inputs=("active_params", "embedding_params", "experts", "tokens"),
    first=lambda x: np.log10(x["active_params"] + x["embedding_params"]),
    second=lambda x: x["experts"],
    others=(LOG_TOKENS,),
    terms=(
        (
            scale("a", "scale of the loss that size removes"),
            coefficient("alpha", "its slope in log N of a model with one effective expert", (1,), (-0.15, -0.25, -0.4)),
            coefficient("delta", "its slope in log Ê", (0, 1), (-0.4, -0.15, 0.0)),
            coefficient("gamma", "interaction of log N and ln Ê", (1, 1), (0.0, 0.015), factor=LN10),
        ),
        (
            scale("b", "scale of the loss that tokens remove"),
            coefficient("beta", "its slope in log D at one effective expert", (0, 0, 1), (-0.15, -0.25, -0.4)),
            coefficient("omega", "its slope in log Ê", (0, 1), (-0.3, 0.1, 0.5)),
            coefficient("zeta", "interaction of log D and ln Ê", (0, 1, 1), (-0.02, 0.0), factor=LN10),
        ),
    ),
    saturation=EXPERTS,
    offset=Parameter("c", "irreducible loss in nats", low=0.0, high=20.0),
    searches=100,
)
