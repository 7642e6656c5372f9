"""The paper's law in compute and parameter utilisation, shared by models of any K and R (Clark et al. 2022).

F: forward TeraFLOPs per token. B = P / forward FLOPs per token: total parameters for each operation spent. B̂ saturates
as Ê does, from B_min = ½ (the dense limit of F = 2N). Real dense models have B of 0.19 to 0.39, because attention
scores and the output layer compute without parameters being counted: they are used where the transform stays positive.
"""

from dataclasses import replace

import numpy as np

from routelaw.laws.power_sum import PowerSum, coefficient
from routelaw.laws.saturation import E_MAX, E_START, Saturation

B_MIN = 0.5

LAW = PowerSum(
    name="compute",
    formula="log L = a·log F + b·log B̂ + c·log F·log B̂ + d",
    source="Clark et al. 2022, Eq. (joint scaling law in F and B), B_min = 1/2",
    inputs=("flops_per_token", "total_params"),
    first=lambda x: np.log10(x["flops_per_token"] / 1e12),
    second=lambda x: x["total_params"] / x["flops_per_token"],
    terms=(
        (
            coefficient("a", "slope in log F", (1, 0)),
            coefficient("b", "slope in log B̂ at one TeraFLOP per token", (0, 1)),
            coefficient("c", "interaction of log F and log B̂", (1, 1)),
            coefficient("d", "log10 loss at one TeraFLOP per token and B̂ = 1", (0, 0)),
        ),
    ),
    saturation=Saturation(
        replace(
            E_START,
            name="b_start",
            meaning="effective utilisation at B = 1/2",
            starts=(0.5, 0.8, 1.5, 3.0, 6.0),
        ),
        replace(E_MAX, name="b_max", meaning="effective utilisation as B → ∞", low=0.5),
        minimum=B_MIN,
    ),
)
