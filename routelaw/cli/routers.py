"""`routelaw routers`: the routing techniques, their options, and what each option does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from routelaw.routers.description import RouterDescription

WIDTH = 120
"""Characters of a line of text at most."""


def routers(
    name: Annotated[
        str | None, typer.Argument(help="One technique, described in full; all of them unless given.")
    ] = None,
    plugin: Annotated[
        list[Path] | None, typer.Option(help="A Python file that registers a router. Code, so only what you trust.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the routing techniques: what each does, where it is published, and its options with their defaults.

    An option is set by `--set router.options.NAME=VALUE`, or under [router.options] in a file.
    """
    from routelaw.cli.output import print_json, show
    from routelaw.routers.description import describe_router, describe_routers
    from routelaw.routers.router import load_router

    for path in plugin or []:
        load_router(path)
    if name is not None:
        found = describe_router(name)
        print_json(_as_json(found)) if as_json else show(*_lines(found, in_full=True))
        return
    every = describe_routers()
    if as_json:
        print_json({known: _as_json(router) for known, router in every.items()})
        return
    for router in every.values():
        show(*_lines(router, in_full=False), "")
    show("`routelaw routers NAME` says more of one. Fields that all routers share are in docs/reference/fields.md.")


def _lines(router: RouterDescription, in_full: bool) -> Iterator[str]:
    yield router.name
    said = router.paragraphs if in_full else [router.summary] if router.summary else ()
    for words in said or ("It has no docstring.",):
        yield from _wrapped(words)
    if router.source:
        yield from _wrapped(f"Source: {router.source}.")
    if router.balance_weight:
        yield from _wrapped(f"router.balance_weight is {router.balance_weight:g} unless given.")
    if not router.options:
        yield from _wrapped("No options of its own.")
    for option in router.options:
        meaning = " ".join(option.meaning.split()) or "its file does not say."
        yield from _wrapped(f"router.options.{option.name} = {_value(option.default)}: {meaning}", hanging=True)


def _wrapped(words: str, hanging: bool = False) -> Iterator[str]:
    """Indented lines that fit the screen; a block that is indented already keeps its own. `hanging`: further in from
    the second line on."""
    import shutil
    import textwrap

    if any(line.startswith("    ") for line in words.splitlines()):
        yield from (f"  {line}" for line in words.splitlines())
        return
    width = min(shutil.get_terminal_size((WIDTH, 0)).columns, WIDTH)
    inner = "      " if hanging else "  "
    yield from textwrap.wrap(words, width, initial_indent="  ", subsequent_indent=inner, break_on_hyphens=False)


def _value(default: Any) -> str:
    """As a file has it. None is no value of a file: it stands for leaving the option out."""
    import json

    return json.dumps(default) if isinstance(default, bool | str) else str(default)


def _as_json(router: RouterDescription) -> dict[str, Any]:
    return {
        "name": router.name,
        "summary": router.summary,
        "description": list(router.paragraphs),
        "source": router.source,
        "balance_weight": router.balance_weight,
        "decides_token_by_token": router.by_token,
        "options": [
            {"name": o.name, "type": o.type, "default": _plain(o.default), "meaning": " ".join(o.meaning.split())}
            for o in router.options
        ],
    }


def _plain(default: Any) -> Any:
    """As JSON has it; what it has no form for is text."""
    return default if isinstance(default, bool | int | float | str | None) else str(default)
