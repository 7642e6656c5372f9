"""The law of Yun et al. 2024 ("Toward Inference-optimal Mixture-of-Expert Language Models", arXiv 2404.02852).

    log L = log(A/N^alpha + B/Ê^beta + C/D^gamma + F) + d·log N·log Ê

The last term multiplies all of the loss, so it is a coefficient that the four powers share. Logarithms here are to base
10: with natural ones d would be smaller by the factor ln 10.
"""

from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.power_sum import PowerSum, coefficient, scale
from routelaw.laws.saturation import EXPERTS

INTERACTION = coefficient("d", "interaction of log N and log Ê", (1, 1), (0.0, 0.005))

LAW = PowerSum(
    name="yun2024",
    formula="log L = log(a·N^−alpha + b·Ê^−beta + c·D^−gamma + f) + d·log N·log Ê",
    source="Yun et al. 2024 (form only)",
    inputs=("active_params", "experts", "tokens"),
    second=lambda x: x["experts"],
    others=(LOG_TOKENS,),
    terms=(
        (
            scale("a", "scale of the loss that size removes"),
            coefficient("alpha", "its power in N", (1,), (0.1, 0.25, 0.4), factor=-1, low=0.0, high=5.0),
            INTERACTION,
        ),
        (
            scale("b", "scale of the loss that experts remove"),
            coefficient("beta", "its power in Ê", (0, 1), (0.1, 0.4), factor=-1, low=0.0, high=5.0),
            INTERACTION,
        ),
        (
            scale("c", "scale of the loss that tokens remove"),
            coefficient("gamma", "its power in D", (0, 0, 1), (0.1, 0.25, 0.4), factor=-1, low=0.0, high=5.0),
            INTERACTION,
        ),
        (scale("f", "loss in nats that none of them removes"), INTERACTION),
    ),
    saturation=EXPERTS,
    searches=60,
)
