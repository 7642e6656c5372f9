"""The constants in which Kaplan et al. 2020 write a power law, (X_c/X)^α, of a fit that has its slope and its level.

log10 of the power is slope·log X + level, so that α = −slope and X_c = 10^(level/α). At X_c the power would be one nat:
that is far from all data, so a small change of α moves X_c by a large factor, and its interval is made in log10.

Shapes: B parameter vectors, P parameters.
"""

from __future__ import annotations

import numpy as np

from routelaw.laws.law import Array, Constant


def power_constants(axis: str, slope: int, level: int) -> tuple[Constant, Constant]:
    """α and X_c of the power in X = `axis`, from the places of its slope and level among the parameters."""

    def log_scale(params_BP: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return -params_BP[:, level] / params_BP[:, slope]

    form = f"({axis}_c/{axis})^α_{axis}"
    return (
        Constant(f"alpha_{axis.lower()}", f"α_{axis}: exponent of Kaplan's {form}", lambda p: -p[:, slope]),
        Constant(f"{axis.lower()}_c", f"{axis}_c: scale of Kaplan's {form}", log_scale, log=True),
    )


def efficient_excess(slope_n: int, slope_s: int) -> Constant:
    """α_N/α_S, from the places of both slopes: Eq. B.5 of Kaplan et al., routelaw.converged_loss."""

    def ratio(params_BP: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            return params_BP[:, slope_n] / params_BP[:, slope_s]

    meaning = "α_N/α_S: excess of compute-efficient training over the converged loss (Eq. B.5)"
    return Constant("efficient_excess", meaning, ratio)
