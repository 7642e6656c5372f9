"""Carry out a command line, in this process or in one of its own, and say what came of it."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from routelaw.cli.main import main

SECONDS = 20.0
"""A refusal takes no longer, on a machine that does something else besides."""
BYTES = 2 << 30


@dataclass(frozen=True)
class Outcome:
    code: int
    """128 + the signal's number where one ended it."""
    out: str
    err: str
    seconds: float
    peak: int
    """Bytes, of a process of its own."""


def in_this_process(words: list[str], cwd: Path) -> Outcome:
    out, err, began = io.StringIO(), io.StringIO(), time.monotonic()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _argv(words):
        code = _main()
    return Outcome(code, out.getvalue(), err.getvalue(), time.monotonic() - began, 0)


def in_its_own(words: list[str], cwd: Path, limit: float = SECONDS * 5) -> Outcome:
    """A fork of this process, which has imported everything: as quick as a call, and can be ended or run out of memory
    by itself."""
    began = time.monotonic()
    out_file, err_file = cwd.with_name(f"{cwd.name}.out"), cwd.with_name(f"{cwd.name}.err")
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()  # what it starts can be ended with it
            for number, file in ((0, os.devnull), (1, out_file), (2, err_file)):
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
                os.dup2(descriptor, number)
            sys.stdin, sys.stdout, sys.stderr = (
                open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
                for number, mode in ((0, "r"), (1, "w"), (2, "w"))
            )
            os.chdir(cwd)
            resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))  # a machine of 24 GB survives a failure
            with _argv(words):
                code = _main()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    code, usage = _waited(child, began + limit)
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in (out_file, err_file)]
    for file in (out_file, err_file):
        file.unlink()
    return Outcome(code, *texts, time.monotonic() - began, usage.ru_maxrss * 1024)


def _waited(child: int, deadline: float) -> tuple[int, resource.struct_rusage]:
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return (code if code >= 0 else 128 - code), usage
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            deadline = float("inf")
        time.sleep(0.005)


def _main() -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        import traceback

        sys.stderr.write(traceback.format_exc())
        return 1
    return 0


@contextlib.contextmanager
def _argv(words: list[str]):
    before, sys.argv = sys.argv, ["routelaw", *words]
    try:
        yield
    finally:
        sys.argv = before
