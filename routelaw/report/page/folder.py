"""Writing a report: a folder that appears whole or not at all, and how far the work is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from routelaw.errors import InputError, unwritable


@dataclass(frozen=True)
class ReportProgress:
    """One part done. The last one carries the summary."""

    done: int
    total: int
    what: str
    summary: dict[str, Any] = field(default_factory=dict)


def check_target(out: Path, force: bool) -> None:
    """Refuse what could not be written later, before any work is done."""
    if out.is_symlink() and not out.exists():
        raise InputError(f"{out}: this is a link that leads nowhere; name a folder.")
    if not out.resolve().name:
        raise InputError(f"{out}: results need a folder of their own; name one below it.")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: this is a file; name a folder.")
    if out.exists() and not force:
        raise InputError(f"{out}: the folder exists; choose another one or pass --force to replace what is in it.")


@contextmanager
def whole_folder(out: Path, *, force: bool = False) -> Iterator[Path]:
    """A fresh folder beside `out`, moved into its place when the block ends well and removed when it does not.

    With `force` an existing folder keeps what else it holds, and files of the same name are replaced one by one.
    """
    out = out.absolute()
    check_target(out, force)
    missing = [folder for folder in out.parents if not folder.exists()]
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    moved = False
    try:
        part.mkdir(parents=True)
        yield part
        _move(part, out)
        moved = True
    except OSError as error:
        # Libraries that draw and pack do not say which file it was; a file elsewhere was read, and is named already.
        if error.filename is None or str(error.filename).startswith((str(out), str(part), *map(str, missing))):
            raise unwritable(out, error) from None
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if not moved:
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()


def _move(part: Path, out: Path) -> None:
    if not out.exists():
        part.rename(out)
        return
    for path in sorted(part.rglob("*")):
        target = out / path.relative_to(part)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            path.replace(target)
