"""Locks that die with their process, on one host: flock on a file that nobody needs to clean up."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO

PATIENCE = 0.5
"""Seconds to try again: `is_locked` holds a lock for an instant."""


def lock(path: Path, patience: float = PATIENCE) -> IO[bytes] | None:
    """The file, locked until it is closed or the process ends; None where another process has it."""
    file = path.open("ab")
    deadline = time.monotonic() + patience
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
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
