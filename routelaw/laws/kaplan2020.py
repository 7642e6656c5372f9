"""Kaplan et al. 2020, Eq. 1.6: L(N, S) = (N_c/N)^α_N + (S_c/S)^α_S, a law of whole training curves.

Its log-log slope in N is −α_N·(N_c/N)^α_N / L, which grows with S: a slope that changes along training does not by
itself refute it (the paper argues that it does). S is the optimiser step at this batch size; law kaplan2020-smin takes
S_min, as Kaplan et al. do. The N that is best for its compute ends training at (1 + α_N/α_S) times the loss that it
would converge to (their Eq. B.5), at any fixed batch.
"""

from routelaw.laws.kaplan_constants import efficient_excess, power_constants
from routelaw.laws.power_sum import PowerSum, coefficient

LAW = PowerSum(
    name="kaplan2020",
    formula="L = (N_c/N)^α_N + (S_c/S)^α_S",
    source="Kaplan et al. 2020, Eq. 1.6",
    inputs=("active_params", "step"),
    second=lambda x: x["step"],
    terms=(
        (
            coefficient("n_scale", "α_N·log10 N_c", (0, 0)),
            coefficient("a_n", "−α_N, slope of the first term in log N", (1, 0), starts=(-0.05, -0.08, -0.12, -0.2)),
        ),
        (
            coefficient("s_scale", "α_S·log10 S_c", (0, 0)),
            coefficient("a_s", "−α_S, slope of the second term in log S", (0, 1), starts=(-0.3, -0.6, -0.9, -1.5)),
        ),
    ),
    along_training=True,
    constants=(
        *power_constants("N", slope=1, level=0),
        *power_constants("S", slope=3, level=2),
        efficient_excess(slope_n=1, slope_s=3),
    ),
)
