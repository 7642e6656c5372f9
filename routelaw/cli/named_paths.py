"""`NAME=PATH`, as several options take it: the name becomes the column loss_NAME of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def named_paths(items: Sequence[str], option: str) -> dict[str, Path]:
    from routelaw.errors import InputError
    from routelaw.formatting import shortened
    from routelaw.runs.columns import check_loss_name

    found: dict[str, Path] = {}
    for item in items:
        name, given, path = item.partition("=")
        if not given or not path or not name:
            raise InputError(f"{option} takes NAME=PATH, such as c4=texts/c4.jsonl.xz, not {shortened(item)!r}.")
        check_loss_name(name, option)
        if name in found:
            raise InputError(f"{option}: the name {name!r} is given twice; choose another.")
        found[name] = Path(path)
    return found
