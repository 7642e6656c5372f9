"""What a process loads before it trains: a compiler, FSDP or pandas would double the time it takes to begin."""

import subprocess
import sys

import pytest

HEAVY = ("torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "torch.distributed.tensor", "pandas", "scipy")


@pytest.mark.parametrize("module", ["routelaw.training.run", "routelaw.sweeps.worker"])
def test_a_process_begins_without_what_it_may_never_need(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
