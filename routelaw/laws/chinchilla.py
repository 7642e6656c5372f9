"""The law of Hoffmann et al. 2022 ("Chinchilla", arXiv 2203.15556): L = l_inf + a/N^alpha + b/D^beta.

N is `active_params`: a dense model's only count. D is `tokens`, what a run has seen of a schedule that ended there.
"""

from routelaw.laws.irreducible import L_INF
from routelaw.laws.power_sum import PowerSum, coefficient, log_of, scale

LOG_TOKENS = log_of("tokens")

LAW = PowerSum(
    name="chinchilla",
    formula="L = l_inf + a·N^−alpha + b·D^−beta",
    source="Hoffmann et al. 2022, approach 3",
    inputs=("active_params", "tokens"),
    others=(LOG_TOKENS,),
    terms=(
        (
            scale("a", "scale of the loss that size removes"),
            coefficient("alpha", "its power in N", (1,), (0.15, 0.25, 0.35, 0.5, 0.8), factor=-1, low=0.0, high=5.0),
        ),
        (
            scale("b", "scale of the loss that tokens remove"),
            coefficient(
                "beta", "its power in D", (0, 0, 1), (0.15, 0.25, 0.35, 0.5, 0.8), factor=-1, low=0.0, high=5.0
            ),
        ),
    ),
    offset=L_INF,
    searches=24,
)
