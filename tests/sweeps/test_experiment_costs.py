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


@pytest.fixture(scope="module")
def printed(costs: ModuleType) -> list[str]:
    return list(costs.table())


def test_the_table_is_the_one_printed(printed: list[str]) -> None:
    readme = (EXPERIMENTS / "README.md").read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(readme) if line.startswith("| question"))
    assert readme[first : first + len(printed)] == printed


def test_every_file_has_its_line(printed: list[str]) -> None:
    text = "\n".join(printed)
    bases = {"paper.toml", "miniature.toml"}
    files = {path.name: path.name for path in EXPERIMENTS.glob("*.py")}
    files |= {path.name: f"paper/{path.name}" for path in (EXPERIMENTS / "paper").iterdir() if path.name not in bases}
    assert all(f"[{name}]({link})" in text for name, link in files.items())
    assert "see there" not in text  # every program says what it costs


def test_training_flops_of_one_run(printed: list[str]) -> None:
    """Two FLOPs for every parameter, the logits and three products of T × T, thrice: all else is below a hundredth.
    RL-R does as many, but for its router and value network."""
    blocks, width, length = 32, 4096, 2048
    per_token = 2 * 6_979_846_144 + 2 * 32_000 * width + blocks * 6 * length * width
    cells = next(line for line in printed if "limit_7b.toml" in line).split(" | ")
    assert (cells[2], float(cells[3])) == ("2", pytest.approx(2 * 3 * per_token * 100_000 * 1024 * length, rel=0.03))
