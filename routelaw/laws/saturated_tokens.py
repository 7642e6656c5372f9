"""The paper's law with an added term in tokens: L = 10^d·N^(a + c·log Ê)·Ê^b + B·D^−beta.

The first term is the law of Clark et al. 2022, which holds at one number of tokens; the second is what more tokens
remove, as in Hoffmann et al. 2022.
"""

from routelaw.laws.bilinear import TERM
from routelaw.laws.chinchilla import LOG_TOKENS
from routelaw.laws.power_sum import PowerSum, coefficient, scale
from routelaw.laws.saturation import EXPERTS

A, B, C, D = TERM

LAW = PowerSum(
    name="saturated-tokens",
    formula="L = 10^d·N^(a + c·log Ê)·Ê^b + b_tokens·D^−beta",
    source="routelaw; Clark et al. 2022 with a term in tokens",
    inputs=("active_params", "experts", "tokens"),
    second=lambda x: x["experts"],
    others=(LOG_TOKENS,),
    terms=(
        (
            D,
            coefficient("a", A.parameter.meaning, A.powers, (-0.05, -0.1, -0.2)),
            coefficient("b", B.parameter.meaning, B.powers, (-0.1, -0.05, 0.0)),
            coefficient("c", C.parameter.meaning, C.powers, (0.0, 0.008)),
        ),
        (
            scale("b_tokens", "scale of the loss that tokens remove"),
            coefficient("beta", "its power in D", (0, 0, 1), (0.2, 0.35, 0.6), factor=-1, low=0.0, high=5.0),
        ),
    ),
    saturation=EXPERTS,
    searches=60,
)
