"""Run tables drawn from effects that are known: what each run's loss is, and how far seeds are apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from routelaw.runs.table import RunTable
from routelaw.studies.study_runs import StudyRuns

ACTIVE = {"1M": 1e6, "3M": 3e6, "10M": 1e7, "30M": 3e7}
TOKENS = 1e9
LEVEL = 3.0


@dataclass(frozen=True)
class Run:
    router: str
    size: str
    experts: int
    over: float = 0.0
    """Its log10 L over that of a plain model of its size and E."""
    variant: str = ""
    k: int = 1
    routing_frequency: float = 0.5
    tokens_planned: float = TOKENS
    seed: int = 0


def plain(size: str, experts: int) -> float:
    """log10 L of a model that nothing was done to."""
    return float(np.log10(LEVEL)) - 0.08 * np.log10(ACTIVE[size] / 1e6) - 0.03 * np.log10(experts)


def table_of(runs: Iterable[Run], noise: float = 1e-5, **columns: Any) -> RunTable:
    drawn = np.random.default_rng(0)
    rows = [
        {
            "run_id": f"r{i}", "router": run.router, "variant": run.variant, "size": run.size, "experts": run.experts,
            "k": run.k, "routing_frequency": run.routing_frequency, "seed": run.seed, "active_params": ACTIVE[run.size],
            "total_params": ACTIVE[run.size] * run.experts, "flops_per_token": 2 * ACTIVE[run.size] * (1 + run.k / 4),
            "tokens": run.tokens_planned, "tokens_planned": run.tokens_planned, "step": 100,
            "loss_validation": 10 ** (plain(run.size, run.experts) + run.over + noise * drawn.standard_normal()),
            **columns,
        }
        for i, run in enumerate(runs)
    ]  # fmt: skip
    return RunTable.from_frame(pd.DataFrame(rows), "drawn")


def runs_of(runs: Iterable[Run], noise: float = 1e-5) -> StudyRuns:
    return StudyRuns.of(table_of(runs, noise))
