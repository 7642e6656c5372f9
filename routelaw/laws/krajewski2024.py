"""The law of fine-grained experts of Krajewski et al. 2024 (arXiv 2402.07871).

    L = c + (g/G^gamma + a)·N^−alpha + b·D^−beta

G is granularity: how many times narrower an expert is than the dense feed-forward block. Their N counts all parameters,
active or not, without embeddings: `total_params`. It holds at one expansion rate (theirs is 64).
"""

from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.law import Parameter
from routelaw.laws.power_sum import PowerSum, coefficient, log_of, scale

ALPHA = coefficient("alpha", "power in N of the loss that size removes", (1,), (0.1, 0.2, 0.35), factor=-1, low=0.0)

LAW = PowerSum(
    name="krajewski2024",
    formula="L = c + (g·G^−gamma + a)·N^−alpha + b·D^−beta",
    source="Krajewski et al. 2024, Eq. 9 (N: all parameters)",
    inputs=("total_params", "granularity", "tokens"),
    first=log_of("total_params"),
    others=(LOG_TOKENS, log_of("granularity")),
    terms=(
        (scale("a", "scale of the loss that size removes whatever the granularity"), ALPHA),
        (
            scale("g", "scale of the loss that granularity removes"),
            ALPHA,
            coefficient("gamma", "its power in G", (0, 0, 0, 1), (0.3, 0.6, 1.2), factor=-1, low=0.0, high=10.0),
        ),
        (
            scale("b", "scale of the loss that tokens remove"),
            coefficient("beta", "its power in D", (0, 0, 1), (0.1, 0.2, 0.35), factor=-1, low=0.0),
        ),
    ),
    offset=Parameter("c", "irreducible loss in nats", low=0.0, high=20.0),
    searches=60,
)
