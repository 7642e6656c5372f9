"""The examples of the documents, in order: commands, Python, and files that a page shows."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import routelaw

ROOT = Path(__file__).parents[2]
PATHS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PATHS}
PAGES["help(routelaw)"] = routelaw.__doc__ or ""

FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n|\n(?=\n* {4}))+")
SHELL = re.compile(r"(routelaw|make|torchrun|pip|python|\.|\.venv/\S+) ")
OUTPUT = "output"
FILES = {
    "[[grid]]": "my_sweep.toml",
    "[train]": "run.toml",
    "@register(": "by_position.py",
    "LAW = ": "mine.py",
    "run_id,": "my_losses.csv",
}
"""What a block that is a file contains -> the name that it is saved under, which the page tells its reader."""


@dataclass(frozen=True)
class Example:
    kind: str
    """command, python, output, or the name of a file."""
    text: str


def blocks_of(text: str) -> list[str]:
    """The code blocks of a page of Markdown, fenced or indented."""
    found = {match.start(): match[1] for match in FENCED.finditer(text)}
    outside = FENCED.sub(lambda match: "\0" * len(match[0]), text + "\n")
    found |= {match.start(): textwrap.dedent(match[0]).strip("\n") + "\n" for match in INDENTED.finditer(outside)}
    return [found[place] for place in sorted(found)]


def examples_of(text: str) -> Iterator[Example]:
    """A block of several commands is as many examples."""
    for block in blocks_of(text):
        lines = [re.split(r"\s+#\s", line)[0].strip() for line in re.sub(r"\\\n\s*", "", block).splitlines()]
        if SHELL.match(block):
            yield from (Example("command", line) for line in lines if line)
            continue
        file = next((name for mark, name in FILES.items() if mark in block), None)
        yield Example(file or ("python" if is_python(block) else OUTPUT), block)


def is_python(block: str) -> bool:
    try:
        ast.parse(block)
    except SyntaxError:
        return False
    return re.search(r"\brl\b|^(import|from) ", block, re.MULTILINE) is not None
