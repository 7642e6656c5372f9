"""The table of costs in experiments/README.md is what its command prints, and its FLOPs are what they should be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def costs() -> ModuleType:
    found = importlib.util.spec_from_file_location("experiments_costs", EXPERIMENTS / "costs.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_table_is_the_one_printed(costs: ModuleType) -> None:
    readme = (EXPERIMENTS / "README.md").read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(readme) if line.startswith("| question"))
    printed = list(costs.table())
    assert readme[first : first + len(printed)] == printed


def test_every_file_has_its_line(costs: ModuleType) -> None:
    printed = "\n".join(costs.table())
    bases = {"paper.toml", "miniature.toml"}
    files = {path.name: path.name for path in EXPERIMENTS.glob("*.py")}
    files |= {path.name: f"paper/{path.name}" for path in (EXPERIMENTS / "paper").iterdir() if path.name not in bases}
    assert all(f"[{name}]({link})" in printed for name, link in files.items())
    assert "see there" not in printed  # every program says what it costs


def test_training_flops_of_one_run(costs: ModuleType) -> None:
    """Two FLOPs for every parameter, the logits and three products of T × T, thrice: all else is below a hundredth."""
    runs = costs.on_base(EXPERIMENTS / "paper" / "limit_7b.toml", "paper.toml").runs
    spec = next(run.spec for run in runs if run.spec.router.name == "dense")
    blocks, width, length = 32, 4096, 2048
    per_token = 2 * 6_979_846_144 + 2 * 32_000 * width + blocks * 6 * length * width
    assert costs.training_flops([spec]) == pytest.approx(3 * per_token * 100_000 * 1024 * length, rel=0.01)
