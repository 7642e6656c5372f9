"""An irreducible loss plus one power of N and of the saturated expert count, with no interaction between them.

As many parameters as the paper's law; the floor L∞ takes over the role of the interaction c, and with it the size at
which routing would stop helping disappears: N_cut is a matter of functional form.
"""

from routelaw.laws.law import Parameter
from routelaw.laws.power_sum import Coefficient, PowerSum, coefficient
from routelaw.laws.saturation import EXPERTS

TERM: tuple[Coefficient, ...] = (
    coefficient("log_a", "log10 of the scale A of the reducible loss", (0, 0)),
    coefficient("a", "slope of the reducible loss in log N", (1, 0)),
    coefficient("b", "slope of the reducible loss in log Ê", (0, 1)),
)
L_INF = Parameter("l_inf", "irreducible loss in nats: what no model of this kind gets below", low=0.0, high=20.0)

LAW = PowerSum(
    name="irreducible",
    formula="L = L∞ + A·N^a·Ê^b",
    source="routelaw; after Hoffmann et al. 2022 and Clark et al. 2022",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=(TERM,),
    saturation=EXPERTS,
    offset=L_INF,
)
