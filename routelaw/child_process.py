"""A process that this one started: what is written to it, what it wrote to standard error, and how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from routelaw.errors import ended_by

LONGEST_STDERR = 20_000
"""Characters of standard error that are of interest: the last ones."""


class ChildProcess:
    """It reads lines from a pipe. Standard error is kept in a file, since a pipe that nobody reads would fill up."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, keep_stderr: bool = True, **options: Any
    ) -> None:
        """`environment` is added to this process's own; `options` are those of `subprocess.Popen`."""
        self._stderr: IO[bytes] | None = tempfile.TemporaryFile() if keep_stderr else None  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **environment},
            text=True,
            encoding="utf-8",
            **options,
        )
        assert self._process.stdin is not None
        self.stdin, self.stdout, self.pid = self._process.stdin, self._process.stdout, self._process.pid

    @property
    def code(self) -> int | None:
        """None while it lives, negative where a signal ended it."""
        return self._process.poll()

    @property
    def stderr(self) -> str:
        """The end of what it wrote to standard error, where that is kept."""
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        return self._stderr.read()[-LONGEST_STDERR:].decode(errors="replace")

    @property
    def cause(self) -> str:
        """How it ended, as the end of a sentence."""
        code = self.code
        return f"was {ended_by(code)}" if code is not None and code < 0 else f"ended with code {code}"

    def send(self, text: str) -> None:
        """Write to its standard input. One that has just died cannot hear it, which shows where its end is seen."""
        with suppress(OSError):
            self.stdin.write(text)
            self.stdin.flush()

    def wait(self) -> None:
        self._process.wait()

    def terminate(self) -> None:
        if self.code is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self, deadline: float = 0.0) -> None:
        """Kill it, if it has not ended by then (by the monotonic clock)."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self, deadline: float = 0.0) -> None:
        """End it, and let go of its pipes."""
        self.end(deadline)
        for pipe in (self.stdin, self.stdout, self._stderr):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()
