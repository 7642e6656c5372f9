"""Two specs are the same run, or it can be said in which fields they are not."""

from __future__ import annotations

from typing import Any

from routelaw.errors import InputError
from routelaw.specs.run import RunSpec, meaning_of


def differences(stored: RunSpec, asked: RunSpec) -> list[str]:
    """Fields in which two specs differ in meaning, as `table.field: stored → asked`."""
    found: list[str] = []

    def walk(one: Any, two: Any, where: str) -> None:
        if isinstance(one, dict) and isinstance(two, dict):
            for key in sorted({*one, *two}):
                walk(one.get(key, "default"), two.get(key, "default"), f"{where}.{key}" if where else key)
        elif one != two:
            found.append(f"{where}: {_short(one)} → {_short(two)}")

    walk(meaning_of(stored), meaning_of(asked), "")
    return found


def require_same_run(stored: RunSpec, asked: RunSpec, sentence: str) -> None:
    """Layout and cadence may differ, and are no part of a RunSpec; what the run means may not."""
    if stored.run_id != asked.run_id:
        raise InputError(f"{sentence} (stored → asked): {'; '.join(differences(stored, asked))}.")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
