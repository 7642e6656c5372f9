"""Signs of life that other hosts can see: a small file that its owner touches every few seconds."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

from routelaw.runs.locks import is_locked
from routelaw.runs.writing import write_atomically

CLAIM, LEASE, TRAINS = ".claim", "lease.json", ".lock"
LEASE_SECONDS = 90.0
"""Without a sign of life for so long, the owner on another host is taken for lost."""


@cache
def this_host() -> str:
    """A machine since it was last started: containers may share a name, and a restart frees every lock."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()}/{boot.read_text().strip() if boot.is_file() else uuid.getnode()}"


def write_lease(folder: Path, host: str) -> None:
    write_atomically(json.dumps({"host": host, "pid": os.getpid()}).encode(), folder / LEASE, force=True)


def host_of(folder: Path) -> str | None:
    try:
        return str(json.loads((folder / LEASE).read_bytes())["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_fresh(folder: Path, lease_seconds: float = LEASE_SECONDS) -> bool:
    try:
        return _now_at(folder.parent) - (folder / LEASE).stat().st_mtime < lease_seconds
    except FileNotFoundError:
        return False


def _now_at(folder: Path) -> float:
    """By the clock of the file system, the only one that all hosts share; by ours for who may only read."""
    probe = folder / f".now.{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def is_held(folder: Path) -> bool:
    """Whether some process is at work in a run's folder: by its lock on this host, by its lease on another."""
    if is_locked(folder / CLAIM) or is_locked(folder / TRAINS):
        return True
    host = host_of(folder)
    return host is not None and host != this_host() and is_fresh(folder)
