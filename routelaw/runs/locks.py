"""Locks that die with their process, on one host: flock on a file that nobody needs to clean up."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path
from typing import IO

from routelaw.errors import InputError

TIMEOUT = 0.5
"""Seconds to try again: `is_locked` holds a lock for an instant."""


def lock(path: Path, timeout: float = TIMEOUT) -> IO[bytes] | None:
    """The file, locked until it is closed or the process ends; None where another process has it."""
    file = _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    deadline = time.monotonic() + timeout
    while True:
        try:
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
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _opened(path: Path, flags: int) -> IO[bytes]:
    """A FIFO in the lock's place would be waited for, for ever; whoever put it there is told."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path}: a lock is a regular file, and this is none: remove it.")
    return os.fdopen(descriptor, "rb" if flags == os.O_RDONLY else "ab")
