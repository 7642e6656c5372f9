"""Start the processes of one run on this machine, as torchrun would, and name the one that fails.

They meet at a store that this process keeps on the loopback interface. When one ends badly the others are ended at
once; when this process ends, however that comes about, so do they.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import torch.distributed as dist

from routelaw.child_process import ChildProcess
from routelaw.distributed.ranks import LIFELINE, Rank
from routelaw.errors import ended_by

POLL = 0.05
MOMENT = 0.5
"""Seconds until a process that a signal ended is seen to have: its connections close first."""
GRACE = 30.0
"""Seconds for a last checkpoint when the run is told to stop."""
LAST_WORDS = 3.0
"""Seconds after Ctrl-C."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class LaunchResult:
    """How it went: all well, or the first process that did not."""

    world: int
    rank: int
    code: int
    stderr: str = ""
    """The end of what it wrote to standard error, where that was kept."""

    @property
    def well(self) -> bool:
        return self.code == 0

    @property
    def reason(self) -> str:
        """A sentence that names the process. A process that could still speak has given the reason itself."""
        who = f"process {self.rank} of {self.world}"
        if self.code < 0:
            return f"{who} was {ended_by(self.code)}"
        lines = self.stderr.strip().splitlines()
        errors = [line for line in lines if line.startswith("error: ")]  # libraries may have the last word
        if errors:
            return errors[-1].removeprefix("error: ").rstrip(".")
        last = lines[-1] if lines else ""
        return f"{who} ended with code {self.code}{f' ({last})' if last else ''}"


class RankProcess(ChildProcess):
    """One process of a run, as it was started on this machine. It ends with this one (`exit_with_parent`)."""

    def __init__(
        self,
        command: Sequence[str],
        rank: Rank,
        rendezvous: tuple[str, int],
        stdin: str,
        keep_stderr: bool,
        threads: int,
    ) -> None:
        """`rendezvous` is host and port of the store where all meet."""
        lifeline, self._held = os.pipe()
        stdout = None if rank.first and not keep_stderr else subprocess.DEVNULL
        environment = {**_environment(rank, rendezvous, threads), LIFELINE: str(lifeline)}
        super().__init__(command, environment, keep_stderr=keep_stderr, stdout=stdout, pass_fds=(lifeline,))
        os.close(lifeline)
        self.send(stdin)
        with suppress(BrokenPipeError):
            self.stdin.close()

    def close(self, deadline: float = 0.0) -> None:
        super().close(deadline)
        os.close(self._held)


class Launch(Protocol):
    """Runs a command in several processes; here, or wherever a sweep has its nodes."""

    def __call__(
        self,
        command: Sequence[str],
        world: int,
        *,
        stdin: str = "",
        keep_stderr: bool = False,
        threads: int = 0,
        stop: Callable[[], bool] = ...,
    ) -> LaunchResult: ...


def launch(
    command: Sequence[str],
    world: int,
    *,
    stdin: str = "",
    keep_stderr: bool = False,
    threads: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> LaunchResult:
    """Run `command` in `world` processes. `stdin` is what each reads from its standard input; with `keep_stderr` their
    standard error is kept, otherwise it is this process's. `stop` asks them for a last checkpoint."""
    members: list[RankProcess] = []
    with rendezvous_address(LOOPBACK) as port:
        try:
            for number in range(world):
                rank = Rank(number, world, number)
                members.append(RankProcess(command, rank, (LOOPBACK, port), stdin, keep_stderr, threads))
            return _followed(members, stop)
        except KeyboardInterrupt:  # which they have heard, too: let them say so
            deadline = time.monotonic() + LAST_WORDS
            while time.monotonic() < deadline and any(member.code is None for member in members):
                time.sleep(POLL)
            raise
        finally:
            for member in members:
                member.close()


def _followed(members: Sequence[RankProcess], stop: Callable[[], bool]) -> LaunchResult:
    world, asked = len(members), 0.0
    while True:
        codes = {rank: member.code for rank, member in enumerate(members)}
        failed = [rank for rank, code in codes.items() if code]
        if failed:
            cause = _cause(members, failed[0])
            return LaunchResult(world, cause, members[cause].code or 0, members[cause].stderr)
        if all(code == 0 for code in codes.values()):
            return LaunchResult(world, 0, 0, members[0].stderr)
        if not asked and stop():
            asked = time.monotonic()
            for member in members:
                member.terminate()
        if asked and time.monotonic() - asked > GRACE:
            return LaunchResult(world, 0, 0, members[0].stderr)  # as they were told, if without a last checkpoint
        time.sleep(POLL)


def _cause(members: Sequence[RankProcess], failed: int) -> int:
    """Who failed, or who was ended by a signal, if that shows within a moment: it is then why others fail."""
    deadline = time.monotonic() + MOMENT
    while True:
        by_signal = [rank for rank, member in enumerate(members) if (member.code or 0) < 0]
        if by_signal or time.monotonic() > deadline:
            return (by_signal or [failed])[0]
        time.sleep(POLL)


@contextmanager
def rendezvous_address(host: str) -> Iterator[int]:
    """A store where processes meet, on one interface: its port."""
    with socket.socket() as listening:
        listening.bind((host, 0))
        listening.listen(128)
        port = listening.getsockname()[1]
        store = dist.TCPStore(host, port, None, True, wait_for_workers=False, master_listen_fd=listening.detach())
        yield port
        del store


def _environment(rank: Rank, rendezvous: tuple[str, int], threads: int) -> Mapping[str, str]:
    host, port = rendezvous
    here = host == LOOPBACK
    share = threads or max(1, len(os.sched_getaffinity(0)) // (rank.world if here else 1))
    known = {
        "RANK": str(rank.number),
        "LOCAL_RANK": str(rank.local),
        "WORLD_SIZE": str(rank.world),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # none of the processes opens the port
        "OMP_NUM_THREADS": str(share),
    }
    if here:
        known["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    return known
