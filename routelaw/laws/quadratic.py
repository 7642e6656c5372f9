"""The bilinear law with a quadratic term in log N: is it curvature in size that the bilinear law misses?

Ours, as a rival to the irreducible laws: it bends the dense curve without giving it a floor, so it extrapolates badly.
"""

from routelaw.laws.bilinear import TERM
from routelaw.laws.power_sum import PowerSum, coefficient

LAW = PowerSum(
    name="quadratic",
    formula="log L = a·log N + b·log E + c·log N·log E + d + q·(log N)²",
    source="routelaw; bilinear law of Clark et al. 2022 with curvature in log N",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=((*TERM, coefficient("q", "curvature in log N", (2, 0))),),
)
