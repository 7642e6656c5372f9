"""A stand-in for the paper's losses where they cannot be had: its main sweep, drawn from its printed coefficients.

Every (size, E) of the main sweep under the law published for each router, with noise of the size that its fits leave.
For demonstrations and examples; what is fitted to it says nothing about real models.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from routelaw.plans.budget import EXPERT_CHOICES
from routelaw.plans.literature import published
from routelaw.runs.table import RunTable
from routelaw.specs.counting import count
from routelaw.specs.sizes import PAPER_SIZES

SIZES = ("15M", "25M", "55M", "130M", "370M", "1.3B")
ROUTERS = ("s-base", "rl-r", "hash")
NOISE = 0.0015
"""Standard deviation in log10 L of a run, and again of what the runs of one size share."""


def simulated_runs(seed: int = 0) -> RunTable:
    rng = np.random.default_rng(seed)
    shared = {size: NOISE * rng.standard_normal() for size in SIZES}
    rows = []
    for size in SIZES:
        for router in ("dense", *ROUTERS):
            for experts in EXPERT_CHOICES[1:] if router != "dense" else (1,):
                counts = count(PAPER_SIZES[size], router, experts)
                law = published(f"clark2022/{router if experts > 1 else 's-base'}")
                x = {"active_params": np.array([counts.active_params]), "experts": np.array([experts])}
                log_loss = float(law.log_loss(**x)[0]) + shared[size] + NOISE * rng.standard_normal()
                rows.append(
                    {
                        "run_id": f"simulated-{len(rows)}",
                        "router": router,
                        "size": size,
                        "experts": experts,
                        "k": 1,
                        "routing_frequency": 0.5,
                        "active_params": counts.active_params,
                        "total_params": counts.total_params,
                        "flops_per_token": counts.flops_per_token,
                        "loss_validation": 10.0**log_loss,
                    }
                )
    return RunTable.from_frame(pd.DataFrame(rows), "simulated from the paper's printed coefficients")
