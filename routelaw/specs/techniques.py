"""The names of routing techniques, in one spelling."""

import re

from routelaw.errors import InputError
from routelaw.specs.nearest import nearest_hint

DENSE = "dense"
TECHNIQUES = (DENSE, "s-base", "rl-r", "hash", "switch", "base")


def canonical_router(name: str) -> str:
    """Lower case with hyphens, so that `S-Base`, `s_base` and `S BASE` are one technique."""
    return re.sub(r"[\s_-]+", "-", name.strip()).strip("-").lower()


def known_router(name: str) -> str:
    """The canonical name, or an error that names the nearest technique there is."""
    router = canonical_router(name)
    if router not in TECHNIQUES:
        raise InputError(
            f"Unknown router '{name}'{nearest_hint(router, TECHNIQUES)}; there are {', '.join(TECHNIQUES)}."
        )
    return router
