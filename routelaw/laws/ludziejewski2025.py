"""The joint law of Ludziejewski et al. 2025 ("Joint MoE Scaling Laws", arXiv 2502.05172), at one number of tokens.

    L = a·Ê^δ·N^(α + γ·ln Ê) + b·Ê^ω·D^(β + ζ·ln Ê) + c

At fixed D the second term is a power of Ê alone (its b and ω absorb D^β and ζ·ln D), leaving nine parameters. In
log10: γ here multiplies log10 N·log10 Ê in the exponent, so it is theirs times ln 10.
"""

from routelaw.laws.irreducible import L_INF
from routelaw.laws.power_sum import PowerSum, coefficient
from routelaw.laws.saturation import EXPERTS

LAW = PowerSum(
    name="ludziejewski2025",
    formula="L = A·Ê^δ·N^(α + γ·log Ê) + B·Ê^ω + L∞",
    source="Ludziejewski et al. 2025, at fixed tokens",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=(
        (
            coefficient("log_a", "log10 scale of the loss that size removes", (0, 0)),
            coefficient("alpha", "slope of that loss in log N", (1, 0), starts=(-0.15, -0.25, -0.4)),
            coefficient("delta", "slope of that loss in log Ê", (0, 1), starts=(-0.4, -0.15, 0.0)),
            coefficient("gamma", "interaction of log N and log Ê", (1, 1), starts=(0.0, 0.02, 0.05)),
        ),
        (
            coefficient("log_b", "log10 scale of the loss that tokens would remove", (0, 0)),
            coefficient("omega", "slope of that loss in log Ê", (0, 1), starts=(-0.3, -0.1, 0.1)),
        ),
    ),
    saturation=EXPERTS,
    offset=L_INF,
    searches=100,
)
