"""A folder that appears whole or not at all: written beside its name, under a hidden one, and moved at the end.

The hidden name, `.NAME.PID.part`, says which process writes it, and a file in it on which host. So what a killed
process left behind can be told from what another one is still writing, and is taken away by the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from routelaw.errors import unwritable

UNFINISHED = ".part"
HOST = ".host"


@contextmanager
def whole_folder(out: Path, check: Callable[[Path], None], *, merge: bool = False) -> Iterator[Path]:
    """A hidden folder beside `out` that takes its name if all goes well, and goes away if not.

    `check` raises where what is at `out` already must stay. A folder that is there is replaced; with `merge` it keeps
    what else it holds, and files of the same name are replaced one by one.
    """
    out = out.absolute()
    part = out.with_name(f".{out.name}.{os.getpid()}{UNFINISHED}")
    missing = [folder for folder in out.parents if not folder.exists()]
    moved = False
    try:
        check(out)
        if out.parent.is_dir():
            _remove_leftovers(out)
        part.mkdir(parents=True)
        (part / HOST).write_text(socket.gethostname())
        yield part
        (part / HOST).unlink()
        (_merge if merge else _replace)(part, out)
        moved = True
        _remove_leftovers(out)
    except OSError as error:
        # Libraries that draw and pack do not say which file it was; a file elsewhere was read, and is named already.
        if error.filename is None or str(error.filename).startswith((str(out), str(part), *map(str, missing))):
            raise unwritable(out, error) from None
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        for folder in () if moved else missing:
            with suppress(OSError):
                folder.rmdir()  # only while it is empty: another process may have used it meanwhile


def _replace(part: Path, out: Path) -> None:
    if not out.exists():
        part.replace(out)
        return
    old = out.with_name(f".{out.name}.{os.getpid()}.old{UNFINISHED}")
    out.replace(old)
    part.replace(out)
    shutil.rmtree(old)


def _merge(part: Path, out: Path) -> None:
    if not out.exists():
        part.replace(out)
        return
    for path in sorted(part.rglob("*")):
        target = out / path.relative_to(part)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            path.replace(target)


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
