"""Names as users type them: routers in one spelling, and what a misspelt name probably meant."""

import re
from collections.abc import Collection
from difflib import get_close_matches

from routelaw.errors import InputError


def nearest_hint(word: str, choices: Collection[str]) -> str:
    """A parenthesis for an error sentence that names the nearest choice, or nothing when none is near."""
    spelled = {choice.lower(): choice for choice in choices}
    matches = get_close_matches(word.lower(), list(spelled), n=1, cutoff=0.4)
    return f" (did you mean '{spelled[matches[0]]}'?)" if matches else ""


DENSE = "dense"
TECHNIQUES = (DENSE, "s-base", "rl-r", "hash", "switch", "base")
OPTIONS = {
    "credit", "entropy_weight", "importance", "jitter", "max_iterations", "nucleus", "permuted", "policy_weight",
    "relative_temperature", "reward", "scheme", "temperature", "tolerance", "value_layers", "value_loss",
    "value_weight", "variant", "weight",
}  # fmt: skip
"""Names of the techniques' own options, for those who read variants and know no router."""


STUDIES = (
    "main", "k", "r", "single-layer", "shared-decisions", "permuted-hash", "stacked", "rl-variants", "robustness",
    "seeds", "lengths", "transfer", "limit",
)  # fmt: skip
"""The paper's studies: what a sweep file says it is, and what a report judges (routelaw/studies)."""


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


def known_study(name: str, where: str = "") -> str:
    """The name of a study, hyphens and underscores alike, or an error that names the nearest there is."""
    study = canonical_router(name)
    if study not in STUDIES:
        before = f"{where}: unknown" if where else "Unknown"
        raise InputError(f"{before} study {name!r}{nearest_hint(study, STUDIES)}; there are {', '.join(STUDIES)}.")
    return study
