"""How values are written for people: in messages, tables and pages alike."""

from __future__ import annotations

LONGEST = 60


def shortened(value: object, longest: int = LONGEST) -> str:
    """A value of the user's for a sentence, cut where it would fill the screen."""
    text = str(value)
    return text[:longest] + "…" if len(text) > longest else text


def printable(text: str) -> str:
    """Text from data as a terminal may show it: on one line, with control characters (colours, cursor movements,
    reversed writing) and halves of surrogate pairs written as escapes. Names come from files, and files from anywhere.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
