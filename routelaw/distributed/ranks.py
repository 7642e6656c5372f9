"""One process among those that train a run together, as whoever started them says in its environment.

torchrun and `launch.py` set the same variables. Either ends all processes as soon as one has failed; so an error need
only be said by one of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from routelaw.errors import InputError, LostContact

LIFELINE = "ROUTELAW_LIFELINE"
"""A descriptor that is closed when whoever started this process has gone."""
ABANDONED = 4
"""Exit code of a process whose parent has gone."""
BROKEN, WRONG_INPUT, DISK_FULL = 1, 2, 6
"""Exit codes of a process that has said what is wrong; the first is Python's after a traceback."""
ERROR_GRACE_S = 5.0
"""Seconds in which the first process has said what all know, and whoever started them has ended the rest."""


@dataclass(frozen=True)
class Rank:
    number: int = 0
    world: int = 1
    local: int = 0
    """Among those on this machine."""

    @classmethod
    def here(cls) -> Rank:
        """Alone, unless it was started with others."""
        number, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        return cls(number, world, int(os.environ.get("LOCAL_RANK", number)))

    @property
    def first(self) -> bool:
        return self.number == 0

    @property
    def on_this_machine(self) -> int:
        """Processes of the run that share this machine's memory, as far as whoever started them says."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.world))

    @property
    def is_distributed(self) -> bool:
        return self.world > 1

    def __str__(self) -> str:
        return f"process {self.number} of {self.world}"


@contextmanager
def report_error_once(rank: Rank) -> Iterator[None]:
    """Let one process say what went wrong.

    What the first finds wrong it says at once. Another waits until it would have been ended if all knew the same, then
    speaks for itself. Whoever only lost its partners waits, too: the process that is gone is the one to be named.
    """
    try:
        yield
    except InputError as error:
        if rank.first:
            raise
        time.sleep(ERROR_GRACE_S)
        raise type(error)(f"{rank}: {error}") from None
    except RuntimeError as error:
        if not rank.is_distributed or not _is_of_partners(error):
            raise
        time.sleep(ERROR_GRACE_S)
        first = str(error).strip().partition("\n")[0]
        raise LostContact(f"{rank} lost contact with the others ({first}).") from None


def _is_of_partners(error: RuntimeError) -> bool:
    """gloo raises RuntimeError, NCCL a class of its own; both are known by what they say."""
    import torch.distributed as dist

    words = ("gloo", "connection", "timed out", "nccl")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)


def exit_with_parent() -> None:
    """End this process at once when whoever started it has gone, as if it had been killed too."""
    descriptor = os.environ.pop(LIFELINE, None)
    if descriptor is not None:
        threading.Thread(target=_end_with, args=(int(descriptor),), daemon=True).start()


def _end_with(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    os._exit(ABANDONED)
