"""`NAME=PATH`, as several options take it: the name becomes the column loss_NAME of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9_.-]+")


def named_paths(items: Sequence[str], option: str) -> dict[str, Path]:
    from routelaw.errors import InputError

    found: dict[str, Path] = {}
    for item in items:
        name, given, path = item.partition("=")
        if not given or not path or not NAME.fullmatch(name):
            raise InputError(f"{option} takes NAME=PATH, such as c4=texts/c4.jsonl.xz, not {item!r}.")
        if name in found or name == "validation":
            why = "is given twice" if name in found else "is the corpus's own held-out text"
            raise InputError(f"{option}: the name {name!r} {why}; choose another.")
        found[name] = Path(path)
    return found
