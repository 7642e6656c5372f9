"""Start the processes of one run on this machine, as torchrun would, and name the one that fails.

They meet at a store that this process keeps on the loopback interface. When one ends badly the others are ended at
once; when this process ends, however that comes about, so do they.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import torch.distributed as dist

from routelaw.training.ranks import LIFELINE, Rank

POLL = 0.05
GRACE = 30.0
"""Seconds for a last checkpoint when the run is told to stop."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Ended:
    """How it went: all well, or the first process that did not."""

    world: int
    rank: int
    code: int
    said: str = ""
    """The end of what it wrote to standard error, where that was kept."""

    @property
    def well(self) -> bool:
        return self.code == 0

    @property
    def reason(self) -> str:
        """A sentence that names the process. A process that could still speak has given the reason itself."""
        who = f"process {self.rank} of {self.world}"
        if self.code < 0:
            short = " (out of memory?)" if -self.code == signal.SIGKILL else ""
            return f"{who} was ended by {signal.Signals(-self.code).name}{short}"
        last = self.said.strip().rpartition("\n")[2]
        if last.startswith("error: "):
            return last.removeprefix("error: ").rstrip(".")
        return f"{who} ended with code {self.code}{f' ({last})' if last else ''}"


def launch(
    command: Sequence[str],
    world: int,
    *,
    told: bytes = b"",
    keep_words: bool = False,
    threads: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run `command` in `world` processes. `told` is what each reads from its standard input; with `keep_words` their
    standard error is kept, otherwise it is this process's. `stop` asks them for a last checkpoint."""
    with _store() as port, _processes(command, world, port, told, keep_words, threads) as processes:
        asked = 0.0
        while True:
            ended = {rank: process.poll() for rank, (process, _) in enumerate(processes)}
            failed = [(code > 0, rank, code) for rank, code in ended.items() if code]
            if failed:
                _, rank, code = min(failed)  # of several within a moment, those that a signal ended are the cause
                return Ended(world, rank, code, _words(processes[rank][1]))
            if all(code == 0 for code in ended.values()):
                return Ended(world, 0, 0)
            if not asked and stop():
                asked = time.monotonic()
                for process, _ in processes:
                    process.send_signal(signal.SIGTERM)
            if asked and time.monotonic() - asked > GRACE:
                return Ended(world, next(rank for rank, code in ended.items() if code is None), -signal.SIGTERM)
            time.sleep(POLL)


@contextmanager
def _store() -> Iterator[int]:
    """Where they meet: a port of the loopback interface, open while this process needs it."""
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        listening.listen(128)
        port = listening.getsockname()[1]
        store = dist.TCPStore(LOOPBACK, port, None, True, wait_for_workers=False, master_listen_fd=listening.detach())
        yield port
        del store


@contextmanager
def _processes(
    command: Sequence[str], world: int, port: int, told: bytes, keep_words: bool, threads: int
) -> Iterator[list[tuple[subprocess.Popen[bytes], IO[bytes] | None]]]:
    started: list[tuple[subprocess.Popen[bytes], IO[bytes] | None]] = []
    lifeline, held = os.pipe()
    try:
        for number in range(world):
            words: IO[bytes] | None = tempfile.TemporaryFile() if keep_words else None  # noqa: SIM115
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=None if number == 0 and not keep_words else subprocess.DEVNULL,
                stderr=words,
                env={**os.environ, **_environment(Rank(number, world, number), port, threads), LIFELINE: str(lifeline)},
                pass_fds=(lifeline,),
            )
            started.append((process, words))
            assert process.stdin is not None
            process.stdin.write(told)
            process.stdin.close()
        yield started
    finally:
        os.close(lifeline)
        os.close(held)
        for process, words in started:
            if process.poll() is None:
                process.kill()
            process.wait()
            if words is not None:
                words.close()


def _environment(rank: Rank, port: int, threads: int) -> Mapping[str, str]:
    share = threads or max(1, len(os.sched_getaffinity(0)) // rank.world)
    return {
        "RANK": str(rank.number),
        "LOCAL_RANK": str(rank.local),
        "WORLD_SIZE": str(rank.world),
        "LOCAL_WORLD_SIZE": str(rank.world),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # nobody but this process opens the port
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        "OMP_NUM_THREADS": str(share),
    }


def _words(file: IO[bytes] | None) -> str:
    if file is None:
        return ""
    file.seek(0)
    return file.read()[-20_000:].decode(errors="replace")
