"""Files appear whole or not at all."""

import os
from pathlib import Path

from routelaw.errors import InputError, unwritable


def write_atomically(content: bytes, path: Path, *, force: bool = False) -> None:
    """Write beside `path` and rename, so that a reader or an interruption never meets half a file."""
    if path.is_dir():
        raise InputError(f"{path}: this is a directory; name a file in it.")
    if path.exists() and not force:
        raise InputError(f"{path}: the file exists; choose another name or pass --force to replace it.")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        if part.parent.is_dir():
            part.unlink(missing_ok=True)
