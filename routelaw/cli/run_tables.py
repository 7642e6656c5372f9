"""`--set table.key=value`: fields by their dotted names, with values as TOML has them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from routelaw.errors import InputError
from routelaw.files import check_plain

LONGEST_VALUE = 20_000
"""Characters of a value that are read as TOML; what is longer is text, if anything."""


def settings_of(settings: Sequence[str]) -> dict[str, Any]:
    """Values by dotted name out of `table.key=value`."""
    values = {}
    for setting in settings:
        name, given, text = setting.partition("=")
        if not given or "." not in name:
            raise InputError(f"--set takes table.key=value, such as router.k=2, not {setting!r}.")
        values[name.strip()] = plain_value(text.strip())
    return values


def plain_value(text: str) -> Any:
    """As TOML would read it; what is no TOML value is text, so that names need no quotes."""
    try:
        value = tomllib.loads(f"value = {text}")["value"] if len(text) < LONGEST_VALUE else text
    except tomllib.TOMLDecodeError:
        value = text
    except (ValueError, RecursionError):  # thousands of digits, or of brackets
        raise InputError(f"--set cannot take {text[:20]!r}… as a value.") from None
    try:
        check_plain(value)
    except ValueError as error:
        raise InputError(f"--set cannot take {text[:40]!r} as a value: {error}.") from None
    return value
