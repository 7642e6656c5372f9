"""Where text comes from: files of three kinds, plain or packed, or the Python library itself; streamed in order.

.txt      documents end at a line that holds only <|endoftext|>, or are lines, or whole files (`documents`)
.jsonl    one record a line, the text under `key`
.parquet  one record a row, the text in column `key`
python    the standard library of the running Python: every *.py in it, its tests and site-packages left out,
          one document a file, sorted by path (a file of this name is meant by ./python)

Names may be patterns as the shell writes them, where `**` meets each folder once: links may lead in circles.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routelaw.corpus.fragments import Fragment, cut
from routelaw.corpus.source_formats import CODECS, Advance, read_blocks, read_lines, read_texts
from routelaw.errors import InputError
from routelaw.specs.names import nearest_hint

PYTHON = "python"
NOT_LIBRARY = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
DOCUMENTS = ("separator", "line", "file")
SEPARATOR = re.compile(rb"\n<\|endoftext\|>(\r?)(?=\n)")
SEPARATOR_REACH = 32
"""Bytes at the end of what was read that may be the beginning of a separator."""
BOM = b"\xef\xbb\xbf"
LONGEST_RECORD = 64 << 20
"""Most bytes of a JSON record: parsed, it takes up to twenty times the memory of the line."""


@dataclass(frozen=True)
class Reading:
    """How text files are to be understood.

    >>> rl.Reading(documents="line").key
    'text'
    """

    documents: str = "separator"
    """separator: documents end at a line of only <|endoftext|>, a file without one is a document; line; file."""
    key: str = "text"
    """Key of a JSON record, column of a Parquet file."""
    errors: str = "strict"
    """strict: invalid UTF-8 is an error; replace: it becomes U+FFFD."""

    def __post_init__(self) -> None:
        if self.documents not in DOCUMENTS:
            raise InputError(f"--documents is separator, line or file, not {self.documents!r}.")
        if self.errors not in ("strict", "replace"):
            raise InputError(f"--errors is strict or replace, not {self.errors!r}.")


def find_files(sources: Sequence[str | Path]) -> list[tuple[Path, str]]:
    """Every file meant, each once, in the order given and sorted within a directory or pattern, with its kind."""
    found: dict[Path, tuple[Path, str]] = {}
    for source in sources:
        for path, kind in _expand(str(source)):
            found.setdefault(path.resolve(), (path, kind))
    if not found:
        raise InputError(
            "no source: name files, directories, patterns, or `python` for the text of the Python library."
        )
    return list(found.values())


def _expand(source: str) -> list[tuple[Path, str]]:
    if source == PYTHON:
        return [(path, "file") for path in _python_library()]
    if not source:
        raise InputError("a source has no name; the working directory is meant by `.`.")
    path = Path(source)
    if path.is_dir():
        inside = [(p, kind) for p in sorted(path.rglob("*")) if p.is_file() and (kind := _kind(p))]
        if not inside:
            raise InputError(f"{path}: no .txt, .jsonl or .parquet file in this directory.")
        return inside
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: this is not a regular file; name a text file, or a directory of them.")
    paths = [path] if path.exists() else [Path(p) for p in match_files(source)]
    if not paths:
        raise InputError(f"{source}: no such file, directory or pattern.")
    return [(p, _kind_of_named(p)) for p in paths if p.is_file()]


def _kind(path: Path) -> str | None:
    name = path.name.lower()
    for codec in CODECS:
        if name.endswith(codec):
            inner = name.removesuffix(codec)
            return next((kind for kind in ("txt", "jsonl") if inner.endswith(f".{kind}")), None)
    return next((kind for kind in ("txt", "jsonl", "parquet") if name.endswith(f".{kind}")), None)


def _kind_of_named(path: Path) -> str:
    if kind := _kind(path):
        return kind
    raise InputError(f"{path}: unknown suffix; text is read from .txt and .jsonl (also .gz, .xz, .zst) and .parquet.")


def _python_library() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [p for p in root.rglob("*.py") if not NOT_LIBRARY & set(p.relative_to(root).parts[:-1])]
    if not files:
        raise InputError(f"{root}: this Python comes without the source of its library; name text files instead.")
    return sorted(files, key=lambda p: p.relative_to(root).as_posix())


def read_documents(files: Iterable[tuple[Path, str]], reading: Reading, advance: Advance) -> Iterator[Fragment]:
    """All documents in order, in fragments of canonical length."""
    for path, kind in files:
        parts = _READERS[reading.documents if kind == "txt" else kind]
        yield from cut(parts(path, reading, advance))


def _separated(path: Path, reading: Reading, advance: Advance) -> Iterator[Fragment]:
    """Documents between separator lines. The newline before one belongs to it, as does one at the file's end."""
    # A newline is imagined before the file and after it, so that every separator stands between two.
    rest, base, fresh = b"\n", -1, 1
    for block in _with_last_newline(_without_bom(read_blocks(path, advance))):
        rest += block
        start = 0
        for match in SEPARATOR.finditer(rest):
            text = rest[start + fresh : match.start()]
            yield Fragment(text.removesuffix(match[1]), True, (str(path), base + start + fresh))
            start, fresh = match.end(), 1
        if len(rest) - start > 4 * SEPARATOR_REACH:
            end = len(rest) - SEPARATOR_REACH
            yield Fragment(rest[start + fresh : end], False, (str(path), base + start + fresh))
            start, fresh = end, 0
        rest, base = rest[start:], base + start
    last = rest[fresh:].removesuffix(b"\n").removesuffix(b"\n").removesuffix(b"\r")
    if last or not fresh:
        yield Fragment(last, True, (str(path), base + fresh))


def _lines(path: Path, reading: Reading, advance: Advance) -> Iterator[Fragment]:
    offset = 0
    for line in read_lines(_without_bom(read_blocks(path, advance)), path):
        yield Fragment(line.removesuffix(b"\r"), True, (str(path), offset))
        offset += len(line) + 1


def _whole_file(path: Path, reading: Reading, advance: Advance) -> Iterator[Fragment]:
    offset = 0
    for block in _without_bom(read_blocks(path, advance)):
        yield Fragment(block, False, (str(path), offset))
        offset += len(block)
    yield Fragment(b"", True, (str(path), offset))


def _json_lines(path: Path, reading: Reading, advance: Advance) -> Iterator[Fragment]:
    offset = 0
    lines = read_lines(_without_bom(read_blocks(path, advance)), path, LONGEST_RECORD)
    for number, line in enumerate(lines, start=1):
        where = f"{path}:{number}"
        try:
            record = json.loads(line.decode("utf-8", reading.errors)) if line.strip() else None
        except UnicodeDecodeError as error:
            raise InputError(
                f"{where}: byte {offset + error.start} of the file is not valid UTF-8; convert it, "
                "or pass --errors replace."
            ) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: this line is not JSON ({error}).") from None
        offset += len(line) + 1
        if record is not None:
            text = _json_text(record, where, reading)
            del record, line  # a long one is not to be held three times
            yield Fragment(text, True, (where, 0))


def _json_text(record: Any, where: str, reading: Reading) -> bytes:
    if not isinstance(record, dict):
        raise InputError(f"{where}: a record is a JSON object with the text under {reading.key!r}, not {record!r:.40}.")
    if reading.key not in record:
        hint = nearest_hint(reading.key, list(record))
        raise InputError(
            f"{where}: the record has no key {reading.key!r}{hint}; name the one that holds the text with --key."
        )
    text = record[reading.key]
    if not isinstance(text, str):
        raise InputError(f"{where}: {reading.key!r} holds {text!r:.40}, not text.")
    try:
        return text.encode("utf-8", "strict" if reading.errors == "strict" else "surrogatepass")
    except UnicodeEncodeError:
        raise InputError(f"{where}: the text holds half a surrogate pair; mend it, or pass --errors replace.") from None


def _parquet(path: Path, reading: Reading, advance: Advance) -> Iterator[Fragment]:
    for row, text in enumerate(read_texts(path, reading.key, advance), start=1):
        yield Fragment(text, True, (f"{path}, row {row}", 0))


def _without_bom(blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield next(blocks, b"").removeprefix(BOM)
    yield from blocks


def _with_last_newline(blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield from blocks
    yield b"\n"


_READERS: dict[str, Callable[[Path, Reading, Advance], Iterator[Fragment]]] = {
    "separator": _separated,
    "line": _lines,
    "file": _whole_file,
    "jsonl": _json_lines,
    "parquet": _parquet,
}


ANY_DEPTH = re.compile(r"(^|/)(?:\*\*/)*\*\*(?:/+|$)")


def match_files(pattern: str) -> list[str]:
    """What `glob.glob(pattern, recursive=True)` finds, sorted; of the names that links give to one folder, one."""
    return sorted(set(_match(pattern)))


def _match(pattern: str) -> Iterator[str]:
    found = ANY_DEPTH.search(pattern)
    if found is None:
        yield from glob.glob(pattern)  # noqa: PTH207
        return
    head, tail = pattern[: found.end(1)], pattern[found.end() :] or "*"
    for root in glob.glob(head) if head else ["."]:  # noqa: PTH207
        for folder in _folders(root):
            inside = "" if folder == "." else glob.escape(os.path.join(folder.removeprefix("./"), ""))  # noqa: PTH118
            yield from _match(inside + tail)


def _folders(root: str) -> Iterator[str]:
    """A folder and all within it, hidden ones left out; each once, by the first of its names."""
    seen: set[tuple[int, int]] = set()
    for folder, inner, _ in os.walk(root, followlinks=True):
        status = os.stat(folder)  # noqa: PTH116
        if (status.st_dev, status.st_ino) in seen:
            inner.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield folder
