"""Our joint law in size, experts and tokens: L = l_inf + a·N^−alpha·Ê^−gamma + b·D^−beta.

Of the forms tried (docs/log/2026-11-19-joint-law.md) it predicts sizes and lengths that it has not seen best on the
tables with enough expert counts to see Ê saturate. Where all runs have one length the last term is part of l_inf, and
it is the law irreducible; with fewer than five expert counts Ê is E, and it is the law wang2024. A fit says so.
"""

from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.irreducible import L_INF
from routelaw.laws.power_sum import PowerSum, coefficient, scale
from routelaw.laws.saturation import EXPERTS

LAW = PowerSum(
    name="joint",
    formula="L = l_inf + a·N^−alpha·Ê^−gamma + b·D^−beta",
    source="routelaw; after Hoffmann et al. 2022 and Clark et al. 2022",
    inputs=("active_params", "experts", "tokens"),
    second=lambda x: x["experts"],
    others=(LOG_TOKENS,),
    terms=(
        (
            scale("a", "scale of the loss that size and experts remove"),
            coefficient("alpha", "its power in N", (1,), (0.2, 0.35, 0.6), factor=-1, low=0.0, high=5.0),
            coefficient("gamma", "its power in Ê", (0, 1), (0.0, 0.15, 0.3), factor=-1),
        ),
        (
            scale("b", "scale of the loss that tokens remove"),
            coefficient("beta", "its power in D", (0, 0, 1), (0.2, 0.35, 0.6), factor=-1, low=0.0, high=5.0),
        ),
    ),
    saturation=EXPERTS,
    offset=L_INF,
    searches=60,
    at_one_length="irreducible",
    of_few_experts="wang2024",
)
