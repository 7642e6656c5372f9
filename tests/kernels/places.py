"""Where a kernel can be tried: by Triton's interpreter on a CPU, or on a GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

NUMPY = tuple(map(int, np.__version__.split(".")[:2]))
interpreter = [
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed: make interpret"),
    pytest.mark.skipif(NUMPY >= (2, 4), reason="triton 3.6's interpreter needs numpy below 2.4: make interpret"),
    pytest.mark.slow,
]
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def interpret(program: str, case: str) -> None:
    """Run a program of this folder; an error of its own is one here."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(program)), case],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
