"""Options with a fixed set of values: the nearest is named when one is misspelt."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bound=str)


def one_of(value: str, choices: tuple[T, ...], option: str) -> T:
    from routelaw.errors import InputError
    from routelaw.specs.names import nearest_hint

    for choice in choices:
        if value == choice:
            return choice
    raise InputError(f"{option} takes {', '.join(choices)}, not {value!r}{nearest_hint(value, choices)}.")
