"""A run from three places: a TOML file, then options, then `--set table.key=value`; the later ones win."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from routelaw.errors import InputError
from routelaw.specs.architecture import Architecture
from routelaw.specs.files import read_toml

Tables = dict[str, Any]
SIZE = "model.size"


def gather_tables(file: Path | None, options: Mapping[str, Any], settings: Sequence[str]) -> Tables:
    """Nested tables of plain values. Options are by dotted name; those that are None were not given."""
    tables: Tables = read_toml(file) if file else {}
    if file and isinstance(tables.get("corpus"), str):
        tables["corpus"] = str(file.parent / tables["corpus"])  # a file's paths are relative to it
    for name, value in options.items():
        if value is not None:
            put(tables, name, value)
    for setting in settings:
        name, given, text = setting.partition("=")
        if not given or "." not in name:
            raise InputError(f"--set takes table.key=value, such as router.k=2, not {setting!r}.")
        put(tables, name.strip(), plain_value(text.strip()))
    return tables


def put(tables: Tables, name: str, value: Any) -> None:
    *path, key = name.split(".")
    table = tables
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise InputError(f"{name} cannot be set: {part} is not a table.")
    table[key] = value
    if name == SIZE:  # a size stands for the four numbers a file may have
        for number in fields(Architecture):
            table.pop(number.name, None)


def plain_value(text: str) -> Any:
    """As TOML would read it; what is no TOML value is text, so that names need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
