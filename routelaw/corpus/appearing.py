"""A folder that appears whole or not at all: written beside its name, under a hidden one, and renamed at the end.

The hidden name, `.NAME.PID.part`, says which process writes it, and a file in it on which host. So what a killed
process left behind can be told from what another one is still writing.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from routelaw.corpus.manifest import UNFINISHED
from routelaw.errors import InputError, unwritable
from routelaw.files import made_folder, reason_of

HOST = ".host"


@contextmanager
def appearing(out: Path, check: Callable[[Path], None]) -> Iterator[Path]:
    """A hidden directory beside `out` that takes its name if all goes well, and goes away if not. `check` raises where
    what is at `out` already must stay."""
    out = _resolved(out)
    part = out.with_name(f".{out.name}.{os.getpid()}{UNFINISHED}")
    with _naming(out):
        check(out)
    with made_folder(out.parent), _naming(out):
        _remove_leftovers(out)
        part.mkdir()
        try:
            (part / HOST).write_text(socket.gethostname())
            yield part
            (part / HOST).unlink()
            _rename(part, out)
            _remove_leftovers(out)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _naming(out: Path) -> Iterator[None]:
    """What the system does not allow is told with the name that the user gave."""
    try:
        yield
    except OSError as error:
        raise unwritable(out, error) from None


def _resolved(out: Path) -> Path:
    try:
        resolved, here = out.resolve(), Path.cwd()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that lead in a circle
        raise InputError(
            f"{str(out)!r:.200} cannot be written to ({reason_of(error)}); choose another --out."
        ) from None
    if here.is_relative_to(resolved):
        raise InputError(f"{resolved}: this is the working directory or one around it; give --out a name of its own.")
    return resolved


def _rename(part: Path, out: Path) -> None:
    if not out.exists():
        part.replace(out)
        return
    old = out.with_name(f".{out.name}.{os.getpid()}.old{UNFINISHED}")
    out.replace(old)
    part.replace(out)
    shutil.rmtree(old)


def _remove_leftovers(out: Path) -> None:
    """What processes of this host that no longer live were writing for the same name, or replacing. What was replaced
    stays while there is nothing in its place."""
    old = r"(\.old)?" if out.exists() else ""
    name = re.compile(rf"\.{re.escape(out.name)}\.(\d{{1,9}}){old}{re.escape(UNFINISHED)}")
    for path in list(out.parent.iterdir()):
        found = name.fullmatch(path.name)
        if found and path.is_dir() and not path.is_symlink() and _is_of_this_host(path) and _is_over(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)


def _is_of_this_host(part: Path) -> bool:
    try:
        return (part / HOST).read_text() == socket.gethostname()
    except OSError:
        return True  # a corpus about to be replaced, or killed at once


def _is_over(process: int) -> bool:
    if process == os.getpid():
        return True  # an earlier process of this number: numbers come again, in a container every time
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
