"""Faults, as verification/sweep_faults.py injects them, one each: the final table is that of the undisturbed sweep."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.parametrize("fault", ["worker", "twice", "disk", "node"])
def test_a_disturbed_sweep_ends_as_an_undisturbed_one(fault: str, tmp_path: Path) -> None:
    """That a sweep itself is killed, test_local.py has."""
    if fault == "disk" and not _can_mount(tmp_path):
        pytest.skip("a full disk is a small tmpfs, and mounting one needs root")
    if fault == "node" and importlib.util.find_spec("ray") is None:
        pytest.skip("a lost node needs Ray")
    words = [sys.executable, "-m", "verification.sweep_faults", "--faults", fault, "--trials", "1"]
    words += ["--most", "1", "--few", "--steps", "20"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 sweeps ended equal" in done.stdout
    if fault == "twice":
        assert "twice: times 1, equal 1" in done.stderr, "one was through before the other had begun"


def _can_mount(folder: Path) -> bool:
    small = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(small, capture_output=True, check=False).returncode:
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True
