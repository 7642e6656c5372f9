"""Independent power laws in N and E (Clark et al. 2022, Eq. separable).

It says that routing helps every size alike, which the paper's data contradict: b(N) falls in magnitude with N.
"""

from routelaw.laws.power_sum import PowerSum, coefficient

LAW = PowerSum(
    name="separable",
    formula="log L = a·log N + b·log E + d",
    source="Clark et al. 2022, Eq. (separable)",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=(
        (
            coefficient("a", "slope in log N", (1, 0)),
            coefficient("b", "slope in log E", (0, 1)),
            coefficient("d", "log10 loss at N = E = 1", (0, 0)),
        ),
    ),
)
