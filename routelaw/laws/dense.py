"""The law of dense models: a power law in size (Clark et al. 2022, Eq. dense_law, after Kaplan et al. 2020).

log L = a·log N + d, that is L = (N_c/N)^α_N with α_N = −a and N_c = 10^(−d/a).
"""

from routelaw.laws.kaplan_constants import power_constants
from routelaw.laws.power_sum import PowerSum, coefficient

LAW = PowerSum(
    name="dense",
    formula="log L = a·log N + d",
    source="Clark et al. 2022, Eq. (dense law); Kaplan et al. 2020",
    inputs=("active_params",),
    terms=(
        (
            coefficient("a", "slope in log N: −α_N", (1, 0)),
            coefficient("d", "log10 loss of a (hypothetical) model of one parameter", (0, 0)),
        ),
    ),
    constants=power_constants("N", slope=0, level=1),
)
