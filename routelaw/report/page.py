"""A self-contained HTML page from sections of text, tables and pictures.

Everything is in the one file, styles and pictures too, so that it opens from disk, from a mail or from an archive, with
no network. All text is escaped by Jinja; pictures are data URIs in <img>, where an SVG can neither run nor load.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from routelaw.report.page_template import STYLE, TEMPLATE

LARGEST_SVG = 700_000
"""Beyond this many bytes a picture of many points is lighter as PNG."""
MEDIA = {".svg": "image/svg+xml", ".png": "image/png"}


@dataclass(frozen=True)
class Text:
    text: str
    tone: str = ""
    kind: str = field(default="text", init=False)


@dataclass(frozen=True)
class Bullets:
    items: Sequence[str]
    kind: str = field(default="bullets", init=False)


@dataclass(frozen=True)
class Entry:
    """One cell: the text, a line under it, a mark, and a tone that colours it."""

    text: str
    under: str = ""
    over: str = ""
    mark: str = ""
    tone: str = ""
    link: str = ""


@dataclass(frozen=True)
class Grid:
    head: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    """The first entry of a row is its name."""
    wide: bool = False
    """Cells hold sentences rather than figures."""
    kind: str = field(default="grid", init=False)


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    caption: str
    image: str
    """A data URI."""
    source: str = ""
    links: Sequence[tuple[str, str]] = ()
    """(label, address relative to the page)."""
    kind: str = field(default="picture", init=False)


@dataclass(frozen=True)
class Heading:
    text: str
    anchor: str
    aside: str = ""
    kind: str = field(default="heading", init=False)


Block = Text | Bullets | Grid | Picture | Heading


@dataclass(frozen=True)
class Section:
    title: str
    anchor: str
    blocks: Sequence[Block]


def render(title: str, lead: str, sections: Sequence[Section], footer: str = "") -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE)
    return template.render(title=title, lead=lead, sections=sections, footer=footer, style=STYLE)


def embedded(paths: Sequence[Path]) -> str:
    """The first picture that is not too heavy, as a data URI."""
    chosen = next((p for p in paths if p.suffix != ".svg" or p.stat().st_size <= LARGEST_SVG), paths[-1])
    content = base64.b64encode(chosen.read_bytes()).decode()
    return f"data:{MEDIA[chosen.suffix]};base64,{content}"
