"""The command line, called in this process as a shell would call it, and a table as a stranger might bring one."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from routelaw.cli.main import main

SIZES = (15e6, 60e6, 250e6, 1e9)
EXPERTS = (1, 2, 8, 32, 128)


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable:
    """`command("fit", path, "--json")`: exit code, stdout and stderr. There is no cached table, and no plugin stays."""
    monkeypatch.setenv("ROUTELAW_CACHE", str(tmp_path / "cache-that-is-not-there"))
    monkeypatch.setattr("routelaw.laws._plugins", {})

    def call(*args: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["routelaw", *map(str, args)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Outcome(code, *capsys.readouterr())

    return call


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
