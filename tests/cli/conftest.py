"""The command line, called in this process as a shell would call it, and a table as a stranger might bring one."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from calling import command

SIZES = (15e6, 60e6, 250e6, 1e9)
EXPERTS = (1, 2, 8, 32, 128)


@pytest.fixture(scope="session")
def losses() -> pd.DataFrame:
    """The fewest columns that will do: two routers on one set of dense models, from a bilinear law with noise."""
    rng, rows = np.random.default_rng(0), []
    for active in SIZES:
        for router, behind in (("dense", 0.0), ("s-base", 0.0), ("hash", 0.004)):
            for experts in (1,) if router == "dense" else EXPERTS[1:]:
                u, v = np.log10(active), np.log10(experts)
                log_loss = 1.1 - 0.08 * u - 0.12 * v + 0.01 * u * v + behind + 0.002 * rng.standard_normal()
                rows.append((f"{router}-{active:g}-{experts}", router, experts, int(active), 10**log_loss))
    return pd.DataFrame(rows, columns=["run_id", "router", "experts", "active_params", "loss_validation"])


@pytest.fixture
def table(losses: pd.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "losses.csv"
    losses.to_csv(path, index=False)
    return path


__all__ = ["command"]
