"""bfloat16 on a CPU without dying of it.

Some machines advertise instructions that they cannot run: virtual ones that show AMX, for example. oneDNN, torch's
library for products on a CPU, believes them, and the first product in bfloat16 ends the process with SIGILL, with no
exception to catch. So before the first one a child process tries: as oneDNN would do it, then with fewer instructions
(`ONEDNN_MAX_CPU_ISA`), and what works is remembered for this machine and this version of torch. If nothing does,
torch's own products are used, which are about ten times slower and need no such instruction.

oneDNN reads the variable once, at the first product of any type. So it is set as early as possible: whoever starts
other processes sets it for them, and a process that is late finds that out in a fork of itself and leaves oneDNN out.

This module imports torch only where it must, so that it can be called before torch is imported.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from routelaw.errors import InputError
from routelaw.files import cache_folder, read_json, write_atomically

VARIABLE = "ONEDNN_MAX_CPU_ISA"
NATIVE, OFF = "native", "off"
LIMITS = (NATIVE, "AVX512_CORE_BF16", "AVX512_CORE")
"""Tried in this order: oneDNN's own choice, no AMX, no bfloat16 instructions at all. After them, oneDNN is off."""
OWN_VALUE = "ROUTELAW_OWN_MAX_CPU_ISA"
"""What the user had set the variable to, where it was changed here: processes of ours tell the two apart by it."""
SIMULATE = "ROUTELAW_SIMULATE_SIGILL"
"""For tests: names of limits, separated by commas, under which the child process ends itself with SIGILL."""
CHILD_SECONDS, FORK_SECONDS = 300.0, 60.0

PRODUCTS = """
import torch
torch.manual_seed(0)
def near(result, exact):
    assert (result.float() - exact).norm() < 0.02 * exact.norm(), "bfloat16 products are wrong on this CPU"
for rows, inner, columns in ((1, 64, 64), (33, 48, 17), (256, 128, 512)):
    a, b = torch.randn(rows, inner).bfloat16(), torch.randn(inner, columns).bfloat16()
    near(a @ b, a.float() @ b.float())
    near(torch.bmm(a[None].repeat(3, 1, 1), b[None].repeat(3, 1, 1))[2], a.float() @ b.float())
q = torch.randn(2, 2, 32, 16).bfloat16().requires_grad_()
torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
layer = torch.nn.Linear(64, 64, bias=False).bfloat16()
layer(torch.randn(7, 64).bfloat16()).sum().backward()
"""
CHILD = f"""
import os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
if sys.argv[1] in os.environ.get({SIMULATE!r}, "").split(","):
    os.kill(os.getpid(), signal.SIGILL)
{PRODUCTS}
"""

_settled = False


@dataclass(frozen=True)
class Found:
    """What a machine can do: the first limit under which products work, and how the ones before it failed."""

    limit: str
    cause: str = ""


def make_safe(notice: Callable[[str], None] = lambda _: None) -> None:
    """Before bfloat16 is used on a CPU: find out what works, see to it in this process, and say so if it is slower.

    Does nothing the second time in a process.
    """
    global _settled
    if _settled:
        return
    _settled = True
    found = remembered()
    if found is None:
        found, certain = find_out()
        if certain:
            _remember(found)
    apply(found, notice)


def apply_remembered() -> None:
    """What is known of this machine, if anything: for a process that starts, whatever it will compute."""
    found = remembered()
    if found is not None:
        _limit(found.limit)


def apply(found: Found, notice: Callable[[str], None]) -> None:
    if found.limit == NATIVE:
        return
    _limit(found.limit)
    slower = f"{VARIABLE}={found.limit} leaves these instructions out, which is slower"
    if found.limit == OFF:
        _leave_out_onednn()
        slower = "oneDNN is left out, which is about ten times slower than float32"
    elif "torch" in sys.modules and not _works_in_a_fork():
        _leave_out_onednn()
        slower = "oneDNN was in use before that was known and is left out in this process, which is much slower"
    notice(f"bfloat16 products fail on this CPU ({found.cause}): {slower}.")


def _limit(limit: str) -> None:
    """For this process, unless oneDNN has begun, and for every process that it starts."""
    if limit in (NATIVE, OFF) or os.environ.get(VARIABLE) == limit:
        return
    os.environ[OWN_VALUE] = os.environ.get(VARIABLE, "")
    os.environ[VARIABLE] = limit


def find_out() -> tuple[Found, bool]:
    """Try the limits in child processes. False where a child failed for another reason than the CPU's."""
    cause, certain = "", True
    for limit in LIMITS:
        environment = dict(os.environ) if limit == NATIVE else {**os.environ, VARIABLE: limit}
        try:
            child = subprocess.run(
                [sys.executable, "-c", CHILD, limit],
                env=environment,
                capture_output=True,
                timeout=CHILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Found(OFF, f"a trial took more than {CHILD_SECONDS:.0f} s"), False
        if child.returncode == 0:
            return Found(limit, cause), certain
        if child.returncode < 0:
            cause = cause or f"a trial was ended by {signal.Signals(-child.returncode).name}"
        else:
            lines = child.stderr.decode(errors="replace").strip().splitlines()
            cause, certain = cause or f"a trial ended with: {lines[-1] if lines else 'no message'}", False
    return Found(OFF, cause), certain


def remembered() -> Found | None:
    with suppress(InputError, TypeError, KeyError):
        found = Found(**read_json(_memory())[_machine()])
        if found.limit in (*LIMITS, OFF):
            return found
    return None


def _remember(found: Found) -> None:
    """A cache that cannot be written is no reason to fail: the next process asks again."""
    with suppress(InputError, OSError):
        known = read_json(_memory()) if _memory().exists() else {}
        _memory().parent.mkdir(parents=True, exist_ok=True)
        content = {**(known if isinstance(known, dict) else {}), _machine(): asdict(found)}
        write_atomically(json.dumps(content, indent=1).encode(), _memory(), force=True)


def _memory() -> Path:
    return cache_folder() / "cpu_bfloat16.json"


def _machine() -> str:
    """This machine, its CPU as the kernel shows it, the version of torch, and what the user has set."""
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        torch_version = "none"
    cpu = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        cpu = "\n".join(line for line in lines if not line.startswith(("cpu MHz", "bogomips", "processor")))
    own_value = os.environ.get(OWN_VALUE, os.environ.get(VARIABLE, ""))
    settings = (own_value, os.environ.get(SIMULATE, ""))
    parts = (platform.node(), platform.release(), platform.machine(), cpu, torch_version, *settings)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _works_in_a_fork() -> bool:
    """Whether products work in this very process, as a copy of it finds out; a copy that hangs counts as no."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forking where there are threads: the copy uses one, and ends soon
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            import torch

            torch.set_num_threads(1)  # the threads of the pool were not copied
            exec(PRODUCTS, {})
            os._exit(0)
        except BaseException:
            os._exit(1)
    deadline = time.monotonic() + FORK_SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _leave_out_onednn() -> None:
    import torch

    torch._C._set_mkldnn_enabled(False)  # set_flags of torch.backends.mkldnn would also warn of TF32 on Intel's GPUs
