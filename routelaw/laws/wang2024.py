"""The law of Wang et al. 2024 ("Scaling Laws Across Model Architectures", arXiv 2410.05661) for dense and MoE models.

L = A/(N^alpha·E^gamma) + B/D^beta + sigma
"""

from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.law import Parameter
from routelaw.laws.power_sum import PowerSum, coefficient, scale

LAW = PowerSum(
    name="wang2024",
    formula="L = a·N^−alpha·E^−gamma + b·D^−beta + sigma",
    source="Wang et al. 2024 (form only)",
    inputs=("active_params", "experts", "tokens"),
    second=lambda x: x["experts"],
    others=(LOG_TOKENS,),
    terms=(
        (
            scale("a", "scale of the loss that size and experts remove"),
            coefficient("alpha", "its power in N", (1,), (0.15, 0.25, 0.35, 0.6), factor=-1, low=0.0, high=5.0),
            coefficient("gamma", "its power in E", (0, 1), (0.0, 0.1, 0.25), factor=-1),
        ),
        (
            scale("b", "scale of the loss that tokens remove"),
            coefficient("beta", "its power in D", (0, 0, 1), (0.15, 0.25, 0.35, 0.6), factor=-1, low=0.0, high=5.0),
        ),
    ),
    offset=Parameter("sigma", "irreducible loss in nats", low=0.0, high=20.0),
    searches=40,
)
