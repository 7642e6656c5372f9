"""The paper's law on top of an irreducible loss: seven parameters, of which the interaction and the floor compete."""

from routelaw.laws.bilinear import TERM
from routelaw.laws.irreducible import L_INF
from routelaw.laws.power_sum import PowerSum
from routelaw.laws.saturation import EXPERTS

LAW = PowerSum(
    name="irreducible-bilinear",
    formula="log(L − L∞) = a·log N + b·log Ê + c·log N·log Ê + d",
    source="routelaw; Clark et al. 2022 with an irreducible loss",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=(TERM,),
    saturation=EXPERTS,
    offset=L_INF,
)
