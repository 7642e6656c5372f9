"""Faults, as benchmarks/sweep_faults.py injects them, once each: the final table is that of the undisturbed sweep."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def injected(fault: str) -> str:
    words = [sys.executable, str(ROOT / "benchmarks" / "sweep_faults.py"), "--trials", "1", "--faults", fault]
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*words, "--steps", "20", "--no-record"], capture_output=True, text=True, check=False, env=known
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["worker", "parent", "twice"])
def test_killed_or_started_twice(fault: str) -> None:
    assert "1 of 1 sweeps of 12 runs ended equal" in injected(fault)


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    small = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(small, capture_output=True, check=False).returncode:
        pytest.skip("a small tmpfs cannot be mounted here (needs root)")
    subprocess.run(["umount", str(tmp_path)], check=True)
    assert "1 of 1 sweeps of 12 runs ended equal" in injected("disk")


@pytest.mark.slow
def test_a_node_of_two_is_lost() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'routelaw[ray]'")
    assert "1 of 1 sweeps of 12 runs ended equal" in injected("node")
