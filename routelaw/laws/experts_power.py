"""Scaling in experts at one model size: log L_N(E) = b·log E + d′ (Clark et al. 2022, Eq. hopeful_power).

Fitted size by size it gives the paper's table of b(N), and a lower bound on the error of any joint law.
"""

import numpy as np

from routelaw.laws.power_sum import PowerSum, coefficient

LAW = PowerSum(
    name="experts",
    formula="log L_N = b·log E + d",
    source="Clark et al. 2022, Eq. (power law in E at fixed N)",
    inputs=("experts",),
    first=lambda x: np.log10(x["experts"]),
    terms=(
        (
            coefficient("b", "slope in log E at this size", (1, 0)),
            coefficient("d", "log10 loss of the dense model of this size", (0, 0)),
        ),
    ),
)
