"""Faults, as benchmarks/sweep_faults.py injects them, once each: the final table is that of the undisturbed sweep."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_faults_once_each(tmp_path: Path) -> None:
    """All against one undisturbed sweep. A full disk needs root, for a small tmpfs; a lost node needs Ray. That a
    sweep itself is killed, test_local.py has."""
    faults = ["worker", "twice"]
    faults += ["disk"] * _can_mount(tmp_path) + ["node"] * (importlib.util.find_spec("ray") is not None)
    words = [sys.executable, str(ROOT / "benchmarks" / "sweep_faults.py"), "--faults", ",".join(faults)]
    words += ["--trials", str(len(faults)), "--most", "1", "--few", "--steps", "20", "--no-record"]
    known = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(faults)} of {len(faults)} sweeps of 6 runs ended equal" in done.stdout
    assert "twice, 1 times" in done.stdout, "one was through before the other had begun"


def _can_mount(folder: Path) -> bool:
    small = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(small, capture_output=True, check=False).returncode:
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True
