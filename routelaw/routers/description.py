"""What a router says of itself: its docstring, its source and its options. The command and the reference show it."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, dataclass, fields
from typing import Any

from routelaw.errors import InputError
from routelaw.routers.router import Router, all_routers, router_class
from routelaw.specs.docstrings import field_meaning, paragraphs
from routelaw.specs.names import DENSE, canonical_router


@dataclass(frozen=True)
class RouterOption:
    """An option of one router alone: `router.options.NAME` of a file or of `--set`.

    >>> rl.describe_router("hash").options[0].default
    'modulo'
    """

    name: str
    type: str
    default: Any
    meaning: str


@dataclass(frozen=True)
class RouterDescription:
    """A routing technique in words.

    >>> rl.describe_router("s-base").balance_weight
    0.01
    """

    name: str
    paragraphs: tuple[str, ...]
    """What it does; the first is a summary."""
    source: str
    """Where it is published."""
    options: tuple[RouterOption, ...]
    balance_weight: float
    """Default of `router.balance_weight`; 0 where it has no balance loss."""
    by_token: bool
    """Whether it decides token by token, so that routing groups matter to capacity alone."""
    module: str

    @property
    def summary(self) -> str:
        """Its first paragraph, on one line."""
        return " ".join(self.paragraphs[0].split()) if self.paragraphs else ""


def describe_router(name: str) -> RouterDescription:
    """What a router is, where it is published, and its options with defaults and meanings.

    >>> router = rl.describe_router("rl-r")
    >>> [option.name for option in router.options][:3]
    ['variant', 'reward', 'credit']
    """
    wanted = canonical_router(name)
    if wanted == DENSE:
        raise InputError(f"{DENSE} is the model without experts: it has no router, and no options.")
    return _described(router_class(wanted))


def describe_routers() -> dict[str, RouterDescription]:
    """Every router that is known here by name, those of plugins included.

    >>> "switch" in rl.describe_routers()
    True
    """
    return {name: _described(kind) for name, kind in sorted(all_routers().items())}


def _described(kind: type[Router]) -> RouterDescription:
    module = sys.modules.get(kind.__module__)
    return RouterDescription(
        name=kind.name,
        paragraphs=tuple(paragraphs(kind.__doc__ or inspect.getdoc(module) or "")),
        source=kind.source,
        options=tuple(
            RouterOption(
                f.name,
                f.type if isinstance(f.type, str) else f.type.__name__,
                f.default if f.default_factory is MISSING else f.default_factory(),
                field_meaning(kind.Options, f.name),
            )
            for f in fields(kind.Options)
        ),
        balance_weight=kind.default_balance_weight,
        by_token=not kind.uses_groups,
        module=kind.__module__,
    )
