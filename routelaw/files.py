"""Files, read and written in one way by every package.

Only regular files are opened: a FIFO or a device could block for ever or never end. Everything that is read whole has
a bound. JSON and TOML of ours are read strictly, so that a damaged file is one sentence and never a number that slipped
through. A file is written beside its name and renamed, so that it appears whole or not at all.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import math
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from routelaw.errors import InputError, unwritable

MOST_BYTES = 64 << 20
"""Bound for files of ours that are read whole: specs, manifests, states, logs of one run."""
MOST_TOML_BYTES = 1 << 20
"""Bound for spec and sweep files, which people write. The time to parse TOML grows faster than its length."""
DEEPEST = 64
"""Tables within tables, and parts of a dotted key; nothing of ours goes past five."""


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file for reading. Anything else is refused; nothing here waits for a writer that never comes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file.") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise InputError(f"{str(path)!r:.200} cannot be read ({reason_of(error)}).") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise InputError(f"{path}: this is {_kind(mode)}, not a regular file.")
    return os.fdopen(descriptor, "rb")  # still not waiting: /proc has files that call themselves regular and block


def open_to_append(path: Path) -> IO[str]:
    """Open a log for adding lines to it, made if it is not there. Anything but a regular file is refused."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{path}: this is {_kind(mode)}, not a regular file.")
    return os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)


def read_bytes(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """The whole content of a regular file of at most so many bytes."""
    with open_regular(path) as file:
        try:
            content = _read_at_most(file, most + 1)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({reason_of(error)}).") from None
    if content is None:  # a file of /proc that has nothing to say yet
        raise InputError(f"{path}: cannot be read (it would have to be waited for).")
    if len(content) > most:
        raise InputError(f"{path}: the file is larger than {most:,} bytes, the most that is read of its kind.")
    return content


def _read_at_most(file: IO[bytes], most: int) -> bytes | None:
    """So many bytes or all there are. Memory is asked for by the size that the file says it has: a buffer for the bound
    would cost a small file a hundred times its reading. Files of /proc say 0."""
    expected = os.fstat(file.fileno()).st_size + 1
    content = file.read(min(expected, most))
    if content is None or len(content) < expected or len(content) == most:
        return content
    return content + (file.read(most - len(content)) or b"")


def read_json(path: str | Path, most: int = MOST_BYTES) -> Any:
    return parse_json(read_bytes(path, most), str(path))


def parse_json(content: bytes | str, where: str) -> Any:
    """JSON as we write it: UTF-8, finite numbers, integers of 64 bits, bounded nesting. Anything else is damage."""
    try:
        value = _parsed(content)
        if _may_be_odd(content):
            check_plain(value)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
        raise InputError(f"{where} is damaged: not the JSON that was written ({why:.200}).") from None
    return value


def _parsed(content: bytes | str) -> Any:
    """Where no number can be too large for a float, none has to be looked at: logs are long, and mostly numbers."""
    text = content if isinstance(content, str) else content.decode(json.detect_encoding(content), "surrogatepass")
    if _LARGE_EXPONENT.search(text) or _has_long_number(text) or text.startswith("\ufeff"):
        return json.loads(content, parse_constant=_no_constant, parse_int=_integer, parse_float=_finite)
    return _DECODER.decode(text)


_LARGE_EXPONENT = re.compile(r"[eE]\+?\d\d\d")
_BLOCK = 150
"""A float of more than 308 digits has a block of so many that holds nothing else, wherever blocks begin."""


def _has_long_number(text: str) -> bool:
    return any(text[at : at + _BLOCK].isdigit() for at in range(0, len(text) - _BLOCK, _BLOCK))


@contextmanager
def without_collection() -> Iterator[None]:
    """Do without Python's search for cycles while much is read: JSON has none, and the search looks at all that was
    read before, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_toml(path: str | Path) -> dict[str, Any]:
    return parse_toml(read_bytes(path, MOST_TOML_BYTES), str(path))


def parse_toml(content: bytes | str, where: str) -> dict[str, Any]:
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        if any(part.count(".") > 2 * DEEPEST for part in re.split("[\n,={]", text)):
            raise ValueError("a key has too many parts")  # each costs the parser the time of all before it
        value = tomllib.loads(text)
        check_plain(value)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).rstrip(".")
        raise InputError(f"{where}: is not TOML: {why:.200}.") from None
    return value


def check_plain(value: Any) -> None:
    """Raise ValueError unless a value is plain: finite numbers, integers of 64 bits, text that can be written, bounded
    depth."""
    level = [value]
    for _ in range(DEEPEST):
        deeper: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                deeper += [*one, *one.values()]
            elif isinstance(one, list | tuple):
                deeper += one
            elif isinstance(one, str):
                one.encode()  # half a surrogate pair is a UnicodeEncodeError, which is a ValueError
            elif isinstance(one, float) and not math.isfinite(one):
                raise ValueError(f"{one} is not a finite number")
            elif isinstance(one, int) and not -(2**63) <= one < 2**64:
                raise ValueError("an integer does not fit in 64 bits")
        if not deeper:
            return
        level = deeper
    raise ValueError(f"it is nested more than {DEEPEST} deep")


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
        with suppress(OSError):
            part.unlink()


@contextmanager
def made_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, made if it is not there. What was made is taken away again if the writing fails."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield path
    except BaseException as error:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()  # only while it is empty: another process may have used it meanwhile
        if isinstance(error, OSError):
            raise unwritable(path, error) from None
        raise


def sha256_of(path: str | Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # pyrefly: ignore


def cache_folder() -> Path:
    """Where downloads and what was found out about this machine are kept: ROUTELAW_CACHE, else routelaw/ in
    XDG_CACHE_HOME, else in ~/.cache."""
    own = os.environ.get("ROUTELAW_CACHE")
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path.home() / ".cache") / "routelaw"
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir()) / f"routelaw-{os.getuid()}"


def reason_of(error: Exception) -> str:
    """What the system said, in its words and without the path, which our sentence already has."""
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return "the name is too long"
    return str(getattr(error, "strerror", None) or error)


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO (named pipe)",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "no ordinary file")


def _may_be_odd(content: bytes | str) -> bool:
    """Whether JSON could be nested too deeply or hold half a surrogate pair: a quick look, since logs are long."""
    text = content if isinstance(content, bytes) else content.encode()
    return text.count(b"[") + text.count(b"{") > DEEPEST or b"\\u" in text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("an integer does not fit in 64 bits")
    return int(digits)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits:.20} is not a finite number")
    return value
