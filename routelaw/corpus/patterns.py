"""Patterns of file names, as the shell writes them, where `**` meets each folder once: links may lead in circles."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

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
