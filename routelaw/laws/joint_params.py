"""Our joint law for models of any K, R and granularity: experts count through the parameters that they add.

    L = l_inf + a·N^−alpha·Û^−gamma + b·D^−beta

Û saturates as Ê does, from U = P/N: all parameters for each active one, 1 for a dense model.
"""

from dataclasses import replace

from routelaw.laws.joint import LAW as JOINT
from routelaw.laws.saturation import E_MAX, E_START, Saturation

LAW = replace(
    JOINT,
    name="joint-params",
    formula="L = l_inf + a·N^−alpha·Û^−gamma + b·D^−beta, U = P/N",
    inputs=("active_params", "total_params", "tokens"),
    second=lambda x: x["total_params"] / x["active_params"],
    saturation=Saturation(
        replace(E_START, name="u_start", meaning="effective P/N of a dense model"),
        replace(E_MAX, name="u_max", meaning="effective P/N as P/N → ∞", low=1.1),
    ),
    at_one_length="",
    of_few_experts="",
)
