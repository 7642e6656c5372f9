"""Run tables such as each study file of the paper would give, without training: losses follow a law that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from routelaw.laws import get_law
from routelaw.runs.folders import columns_of
from routelaw.runs.table import RunTable
from routelaw.runs.variants import parts_of
from routelaw.specs.run import RunSpec
from routelaw.sweeps.sweep import read_sweep

EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "paper"
BILINEAR = {"a": -0.08, "b": -0.1, "c": 0.01, "d": 1.1}
EFFECTS = {
    "permuted": 0.001, "shared_decisions": 0.004, "ffws_per_expert=3": 0.01, "placement=interior": 0.002,
    "variant=G": 0.02, "variant=S": 0.012, "importance": 0.003, "nucleus=1": 0.006,
}  # fmt: skip
"""What a setting adds to log10 L."""
ROUTERS = {"s-base": 0.0, "rl-r": 0.004, "hash": 0.008, "switch": 0.006}
ONE_BLOCK = 0.01
"""What routing fewer than half of the blocks adds."""


def study_specs(
    study: str, base: str = "miniature", sizes: int = 0, overrides: Mapping[str, Any] | None = None
) -> list[RunSpec]:
    """The runs of a study file on one of the two bases; `sizes` keeps that many, the smallest."""
    corpus: Any = SimpleNamespace(vocabulary=2048, id="c0ffee")
    with TemporaryDirectory() as folder:
        for path in EXPERIMENTS.glob("*.toml"):
            text = path.read_text(encoding="utf-8").replace('base = "paper.toml"', f'base = "{base}.toml"')
            (Path(folder) / path.name).write_text(text, encoding="utf-8")
        sweep = read_sweep(Path(folder) / f"{study}.toml", overrides=overrides, opened=lambda _: corpus)
    specs = [run.spec for run in sweep.runs]
    kept = sorted({spec.model.architecture for spec in specs}, key=lambda a: (a.d_model, a.blocks))[: sizes or None]
    return [spec for spec in specs if spec.model.architecture in kept]


def log_loss(spec: RunSpec) -> float:
    router, active = spec.router, spec.counts.active_params
    dense = BILINEAR["a"] * np.log10(active) + BILINEAR["d"]
    if router.name == "dense":
        return float(dense)
    law = get_law("bilinear").predict(BILINEAR, active_params=active, experts=router.experts)
    extra = sum(EFFECTS.get(f"{key}={value}" if value else key, 0.0) for key, value in parts_of(spec.variant).items())
    if router.balance_weight is not None:
        extra += 0.002 * abs(np.log10(max(router.balance_weight, 1e-4)) + 2)
    return float(np.log10(law[0]) + ROUTERS[router.name] + extra + ONE_BLOCK * (spec.routing_frequency < 0.45))


def rows_of(spec: RunSpec, evaluations: int = 4, noise: float = 0.0) -> list[dict[str, Any]]:
    """`evaluations` rows; the loss falls with training, and routing helps the more the further its schedule is."""
    shift = noise * np.random.default_rng(int(spec.run_id, 16)).standard_normal()
    rows = []
    for number in range(1, evaluations + 1):
        step = spec.train.steps * number // evaluations
        value = log_loss(spec) - 0.05 * np.log10(spec.tokens_after(step) / 1e6) + shift
        ended = number == evaluations
        rows.append({
            **columns_of(spec), "step": step, "tokens": spec.tokens_after(step), "loss_validation": 10**value,
            "status": "finished" if ended else "running",
        })  # fmt: skip
    return rows


def table_of(specs: Sequence[RunSpec], evaluations: int = 4, noise: float = 0.0) -> RunTable:
    rows = [row for spec in specs for row in rows_of(spec, evaluations, noise)]
    return RunTable.from_frame(pd.DataFrame(rows), "drawn")
