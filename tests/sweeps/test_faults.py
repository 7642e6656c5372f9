"""Faults, as benchmarks/sweep_faults.py injects them, once each: the final table is that of the undisturbed sweep."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def injected(*faults: str) -> str:
    """One trial of each, all against one undisturbed sweep."""
    words = [sys.executable, str(ROOT / "benchmarks" / "sweep_faults.py"), "--faults", ",".join(faults)]
    words += ["--trials", str(len(faults)), "--steps", "20", "--no-record"]
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_killed_or_started_twice() -> None:
    assert "3 of 3 sweeps of 12 runs ended equal" in injected("worker", "parent", "twice")


@pytest.mark.slow
def test_a_full_disk_and_a_lost_node(tmp_path: Path) -> None:
    faults = []
    if _can_mount(tmp_path):
        faults.append("disk")
    if importlib.util.find_spec("ray") is not None:
        faults.append("node")
    if not faults:
        pytest.skip("no small tmpfs can be mounted here (needs root), and Ray is not installed")
    assert f"{len(faults)} of {len(faults)} sweeps of 12 runs ended equal" in injected(*faults)


def _can_mount(folder: Path) -> bool:
    small = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(small, capture_output=True, check=False).returncode:
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True
