"""What the code says of itself: paragraphs of docstrings, and the strings below the fields of a class."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise


def paragraphs(text: str) -> list[str]:
    """Without examples; the legend of shapes in a file of tensors is for its readers alone."""
    parts = (part.strip("\n") for part in inspect.cleandoc(text).split("\n\n"))
    return [part for part in parts if part and not part.startswith((">>>", "Shapes:", "Columns:"))]


def field_meaning(kind: type, name: str) -> str:
    """The string below a field of a class, or of one that it inherits from; empty where there is none."""
    for each in kind.__mro__:
        if found := _meanings(each).get(name):
            return found
    return ""


@cache
def _meanings(kind: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):  # of no file, or one that is gone
        return {}
    return {
        ast.unparse(line.target): inspect.cleandoc(str(below.value.value))
        for line, below in pairwise(getattr(tree, "body", []))
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }
