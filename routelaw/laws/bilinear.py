"""Power laws in N and E whose slopes depend on each other (Clark et al. 2022, Eq. no_tailoff).

a(E) = a + c·log E and b(N) = b + c·log N are the partial derivatives of log L themselves (the paper prints a minus sign
too many); c > 0 means that routing helps less as models grow, and not at all beyond N_cut = 10^(−b/c).
"""

from routelaw.laws.power_sum import Coefficient, PowerSum, coefficient

TERM: tuple[Coefficient, ...] = (
    coefficient("a", "slope in log N of a model with one (effective) expert", (1, 0)),
    coefficient("b", "slope in log E of a (hypothetical) model of one parameter", (0, 1)),
    coefficient("c", "interaction: how much each slope changes per decade of the other size", (1, 1)),
    coefficient("d", "log10 loss at N = E = 1", (0, 0)),
)

LAW = PowerSum(
    name="bilinear",
    formula="log L = a·log N + b·log E + c·log N·log E + d",
    source="Clark et al. 2022, Eq. (bilinear)",
    inputs=("active_params", "experts"),
    second=lambda x: x["experts"],
    terms=(TERM,),
)
