"""kill −9, as verification/kills.py does it, a few times."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_killed_run_ends_as_if_it_had_not_been() -> None:
    words = [sys.executable, "-m", "verification.kills", "--kills", "4"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    kills, _, equal, trials = map(int, re.findall(r"\d+", done.stdout))
    assert kills == 4
    assert equal == trials > 0
