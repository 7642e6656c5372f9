"""What the user probably meant."""

from collections.abc import Collection
from difflib import get_close_matches


def nearest_hint(word: str, choices: Collection[str]) -> str:
    """A parenthesis for an error sentence that names the nearest choice, or nothing when none is near."""
    spelled = {choice.lower(): choice for choice in choices}
    matches = get_close_matches(word.lower(), list(spelled), n=1, cutoff=0.4)
    return f" (did you mean '{spelled[matches[0]]}'?)" if matches else ""
