"""Who works on a run: locks within one host, and leases that other hosts can see.

A lock is flock on a file that nobody needs to clean up: it dies with its process. A lease is a small file that its
owner touches every few seconds, as a sign of life.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from routelaw.errors import InputError
from routelaw.files import read_json, write_atomically

TIMEOUT = 0.5
"""Seconds to try again: `is_locked` holds a lock for an instant."""


def lock(path: Path, timeout: float = TIMEOUT) -> IO[bytes] | None:
    """The file, locked until it is closed or the process ends; None where another process has it."""
    file = _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    deadline = time.monotonic() + timeout
    while True:
        try:
            # flock belongs to the open file, so closing it or dying frees it: nothing stale is ever left to clean up.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                file.close()
                return None
            time.sleep(0.02)


def is_locked(path: Path) -> bool:
    """Whether a process of this host has it; works without the right to write."""
    try:
        with _opened(path, os.O_RDONLY) as file:
            # A shared lock needs no right to write, and two that only ask do not take each other for the owner.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _opened(path: Path, flags: int) -> IO[bytes]:
    """A FIFO in the lock's place would be waited for, for ever; whoever put it there is told."""
    # O_CLOEXEC: a child process that inherited the descriptor would hold the lock after its parent's death.
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path}: a lock is a regular file, and this is none: remove it.")
    return os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "ab")


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
        return str(read_json(folder / LEASE)["host"])
    except (InputError, KeyError, TypeError):
        return None


def is_fresh(folder: Path, lease_seconds: float = LEASE_SECONDS) -> bool:
    """Whether a sign of life was given within the time of a lease, by the clock of the file system.

    One from the future, by a clock that was put back since, is fresh until it would be old on either side: a host that
    is lost must not hold a run for ever. Whoever lives touches its lease again within seconds, at the right time.
    """
    age = age_of(folder)
    return age is not None and abs(age) < lease_seconds


def age_of(folder: Path) -> float | None:
    """Seconds since the last sign of life, negative if it is from the future; None where there is none."""
    try:
        return _now_at(folder.parent) - (folder / LEASE).stat().st_mtime
    except OSError:
        return None


def dated_ahead(folder: Path, lease_seconds: float = LEASE_SECONDS) -> float:
    """Seconds by which the lease of another host is from the future, where that is why it does not count; else 0."""
    host, age = host_of(folder), age_of(folder)
    return -age if host not in (None, this_host()) and age is not None and age <= -lease_seconds else 0.0


def holder(folder: Path) -> str:
    """Whose an attempt is, in words."""
    host, age = host_of(folder) or "an unknown host", age_of(folder)
    if host == this_host():
        return "another process of this machine"
    if age is None:
        return f"host {host.partition('/')[0]}"
    when = f"last heard of {age:.0f} s ago" if age >= 0 else f"whose sign of life is dated {-age:.0f} s ahead"
    return f"host {host.partition('/')[0]}, {when}"


def _now_at(folder: Path) -> float:
    """By the clock of the file system, the only one that all hosts share; by ours for who may only read."""
    probe = folder / f".now.{uuid.uuid4().hex}"
    try:
        probe.touch()  # hosts' own clocks may be minutes apart; both times compared come from the file server
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
