"""The Chinchilla form for one router: both terms are scaled by a power of the saturated expert count Ê.

    L = l_inf + a·N^−alpha·Ê^−gamma + b·D^−beta·Ê^omega

Experts make a model as good as a larger one (gamma), and may need more tokens to be trained (omega).
"""

from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.irreducible import L_INF
from routelaw.laws.power_sum import PowerSum, coefficient, scale
from routelaw.laws.saturation import EXPERTS

LAW = PowerSum(
    name="chinchilla-experts",
    formula="L = l_inf + a·N^−alpha·Ê^−gamma + b·D^−beta·Ê^omega",
    source="routelaw; after Hoffmann et al. 2022 and Clark et al. 2022",
    inputs=("active_params", "experts", "tokens"),
    second=lambda x: x["experts"],
    others=(LOG_TOKENS,),
    terms=(
        (
            scale("a", "scale of the loss that size removes"),
            coefficient("alpha", "its power in N", (1,), (0.2, 0.35, 0.6), factor=-1, low=0.0, high=5.0),
            coefficient("gamma", "its power in Ê", (0, 1), (0.0, 0.15, 0.3), factor=-1),
        ),
        (
            scale("b", "scale of the loss that tokens remove"),
            coefficient("beta", "its power in D", (0, 0, 1), (0.2, 0.35, 0.6), factor=-1, low=0.0, high=5.0),
            coefficient("omega", "how many more tokens experts need: its power in Ê", (0, 1), (-0.1, 0.0, 0.2)),
        ),
    ),
    saturation=EXPERTS,
    offset=L_INF,
    searches=100,
)
