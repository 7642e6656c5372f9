"""The law of Clark et al. 2022: bilinear in log N and log Ê, with Ê a saturating transform of E (their main equation).

For fixed (E_start, E_max) it is linear in (a, b, c, d), so a fit is a two-dimensional search.
"""

from routelaw.laws.bilinear import TERM
from routelaw.laws.power_sum import PowerSum
from routelaw.laws.saturation import EXPERTS

LAW = PowerSum(
    name="saturated",
    formula="log L = a·log N + b·log Ê + c·log N·log Ê + d",
    source="Clark et al. 2022, Eq. (joint scaling law)",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=(TERM,),
    saturation=EXPERTS,
)
