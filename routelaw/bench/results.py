"""Results that are kept: rows when time is up or the process is asked to stop, and one JSON line for each measurement.

A line says what was measured, when, on what, and of which code: the commit, and the name that git has for the package's
files as they were when the measurement began.

A table is rows of numbers, what they are measured against, and where. Failures are part of it.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import math
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from routelaw.errors import InputError


@dataclass(frozen=True)
class Failure:
    candidate: str
    reason: str
    """One line: the error's kind and how its message begins."""
    row: str = ""

    def __str__(self) -> str:
        return f"{self.row}: {self.candidate} failed: {self.reason}"


@dataclass(frozen=True)
class Row:
    name: str
    figures: Mapping[str, float]
    """By column. What could not be measured is left out."""
    failures: tuple[Failure, ...] = ()

    def __str__(self) -> str:
        figures = ", ".join(f"{column} {value:g}" for column, value in self.figures.items())
        return "\n".join([f"{self.name}: {figures or 'nothing'}", *(f"  {failure}" for failure in self.failures)])


@dataclass(frozen=True)
class Environment:
    device: str
    torch: str
    date: str

    def __str__(self) -> str:
        """Without the date, as files of results name machines."""
        return f"{self.device}, torch {self.torch}"


@dataclass(frozen=True)
class Description:
    """The words of a table."""

    setting: str
    """What was computed on what."""
    baseline: str
    """What ratios are measured against."""
    columns: Mapping[str, str]
    """By name, what it means."""


@dataclass(frozen=True)
class Table:
    name: str
    setting: str
    baseline: str
    columns: Mapping[str, str]
    rows: Mapping[str, Mapping[str, float]]
    failures: tuple[Failure, ...]
    machine: Environment

    @property
    def present(self) -> list[str]:
        """The columns that at least one row fills or failed to."""
        failed = {failure.candidate for failure in self.failures}
        return [c for c in self.columns if c in failed or any(c in row for row in self.rows.values())]

    def figures(self) -> dict[str, float | str]:
        """All in one line for a file of results: `row/column`, failures in words."""
        numbers = {f"{name}/{column}": value for name, row in self.rows.items() for column, value in row.items()}
        return numbers | {
            f"{failure.row}/{failure.candidate}": f"failed: {failure.reason}" for failure in self.failures
        }

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "columns": dict(self.columns),
            "rows": {name: dict(row) for name, row in self.rows.items()},
        }


def row(name: str, figures: Mapping[str, float], failures: Mapping[str, str] | None = None) -> Row:
    """To four digits, without what is no number; `failures` by candidate."""
    known = {column: float(f"{value:.4g}") for column, value in figures.items() if math.isfinite(value)}
    return Row(name, known, tuple(Failure(who, why, name) for who, why in (failures or {}).items()))


def gathered(name: str, description: Description, rows: Iterable[Row], machine: Environment) -> Table:
    """A table of rows, in the order in which they come."""
    found, columns = list(rows), description.columns
    unexplained = {column for r in found for column in r.figures} - set(columns)
    assert not unexplained, f"{name} has columns that it does not explain: {sorted(unexplained)}"
    failures = tuple(failure for r in found for failure in r.failures)
    by_name = {r.name: r.figures for r in found}
    return Table(name, description.setting, description.baseline, dict(columns), by_name, failures, machine)


T = TypeVar("T")
PACKAGE = Path(__file__).parents[1]
RESULTS = Path("benchmarks", "results.jsonl")
"""In a checkout, where the commands are given."""
RECORDED_AS = {"models": "step"}
"""Tables whose results have always been recorded by another name."""
INTERRUPT_AGAIN_S = 5.0
"""Seconds until another interruption, should the first be lost: what is raised in a destructor is."""
EXIT_LATE_S = 60.0
"""Seconds beyond a limit after which the process says where it is held up, and is no more."""


class ResultsFile:
    """A file of JSON lines to append to. The code is what is on the disk now: it may change before a benchmark ends."""

    def __init__(self, path: Path = RESULTS) -> None:
        if not path.parent.is_dir():
            raise InputError(f"{path}: there is no folder {path.parent}; give the path of a file of results.")
        self.path, self.commit, self.package = path, commit(), tree(PACKAGE)[:7]

    def append(self, benchmark: str, data: str, figures: Mapping[str, Any], device: str = "") -> None:
        """One line; `device` where it was not the CPU. None where nothing was measured."""
        if not figures:
            return
        line = {
            "benchmark": benchmark,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": self.commit,
            "package": self.package,
            "device": device or f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}",
            "data": data,
            "figures": figures,
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def append_table(self, table: Table) -> None:
        """A table as one line, under its name: with `gpu_` before it where it was measured on one."""
        name = RECORDED_AS.get(table.name, table.name)
        prefix = "" if table.machine.device.startswith("CPU") else "gpu_"
        self.append(prefix + name, table.setting, table.figures(), str(table.machine))


def commit() -> str:
    """The commit of the package's repository; `+changes` where there are some that are not committed."""

    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", *arguments], cwd=PACKAGE, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return ""
        return done.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "none") + ("+changes" if git("status", "--porcelain") else "")


def tree(folder: Path) -> str:
    """The name that git has for a folder with such files: `git rev-parse COMMIT:FOLDER`, if git has it at all."""
    entries = []
    for path in folder.iterdir():
        if path.name == "__pycache__":
            continue
        if path.is_dir():
            mode, order, name = b"40000", f"{path.name}/", tree(path)
        else:
            mode = b"100755" if os.access(path, os.X_OK) else b"100644"
            order, name = path.name, _git_name(b"blob", path.read_bytes())
        entries.append((order.encode(), mode + b" " + path.name.encode() + b"\0" + bytes.fromhex(name)))
    return _git_name(b"tree", b"".join(entry for _, entry in sorted(entries)))


def _git_name(kind: bytes, content: bytes) -> str:
    return hashlib.sha1(kind + b" %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class Stopped(BaseException):
    """No Exception, which benchmarks catch to continue with their next candidate."""


@contextmanager
def time_limit(seconds: float | None = None) -> Iterator[None]:
    """What is inside ends after so many seconds, even while compiling, or when the process is asked to (SIGTERM); what
    comes after it is still carried out. For the main thread.

    One thing holds it up: a backward pass on a GPU runs, and is compiled, in a thread that the main one awaits without
    looking at signals. It ends by itself, unless the signal went to the compiler's processes too, as `timeout` sends
    it: say `timeout --foreground`.
    """

    def stop(*_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, INTERRUPT_AGAIN_S, INTERRUPT_AGAIN_S)
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGTERM)}
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        faulthandler.dump_traceback_later(seconds + EXIT_LATE_S, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    except Stopped:
        print("stopped: nothing more is measured", file=sys.stderr, flush=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        for number, handler in before.items():
            signal.signal(number, handler)


def kept(rows: Iterable[T], seconds: float | None = None) -> list[T]:
    """All of them, printed as they come; those that there are, when time is up or the process is asked to stop."""
    found: list[T] = []
    with time_limit(seconds):
        for row in rows:
            print(row, file=sys.stderr, flush=True)
            found.append(row)
    return found
