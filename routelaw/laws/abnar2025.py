"""Scaling law in sparsity of Abnar et al. 2025 ("Parameters vs FLOPs", arXiv 2501.12370), at one number of tokens.

    L = a/N^α + b/D^β + c/(1−S)^λ + d/((1−S)^δ·N^γ) + e,     S = (E − K)/E the share of idle experts

With K = 1, 1/(1 − S) = E; at fixed D the second term joins the constant, leaving eight parameters. Their N counts all
parameters, active or not, so this law reads `total_params` where its rivals read `active_params`.
"""

from routelaw.laws.irreducible import L_INF
from routelaw.laws.power_sum import PowerSum, coefficient, log_of

LAW = PowerSum(
    name="abnar2025",
    formula="L = A·P^α + C·E^λ + D·E^δ·P^γ + L∞",
    source="Abnar et al. 2025, at fixed tokens",
    inputs=("total_params", "experts"),
    first=log_of("total_params"),
    second=lambda x: x["experts"],
    terms=(
        (
            coefficient("log_a", "log10 scale of the loss that size removes", (0, 0)),
            coefficient("alpha", "its slope in log P", (1, 0), starts=(-0.1, -0.2, -0.35, -0.6)),
        ),
        (
            coefficient("log_c", "log10 scale of the loss that sparsity removes", (0, 0)),
            coefficient("lambda", "its slope in log E", (0, 1), starts=(-0.6, -0.1, 0.1, 0.2)),
        ),
        (
            coefficient("log_d", "log10 scale of the loss that both remove together", (0, 0)),
            coefficient("delta", "its slope in log E", (0, 1), starts=(-0.3, 0.3, 1.0, 2.5)),
            coefficient("gamma", "its slope in log P", (1, 0), starts=(-2.5, -1.0, -0.3, -0.1)),
        ),
    ),
    offset=L_INF,
    searches=100,
)
