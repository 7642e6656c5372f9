"""A self-contained HTML page from sections of text, tables, pictures and things to play with.

Everything is in the one file, styles, pictures and scripts too, so that it opens from disk, from a mail or from an
archive, with no network. All text is escaped by Jinja; pictures are data URIs in <img>, where an SVG can neither run
nor load. A page with scripts names them by their hashes in its security policy, so that the browser runs these and no
others, whatever a table may say.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from routelaw.errors import InputError
from routelaw.fitting.intervals import Interval
from routelaw.formatting import number
from routelaw.whole_folder import whole_folder

SCRIPTS = ("charts.js", "explorer.js", "curves.js", "heat_maps.js", "run_table.js")
"""In this order: the first holds what the others share, the last one starts the page."""
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


@dataclass(frozen=True)
class Facts:
    """Large numbers in a row."""

    items: Sequence[tuple[str, str]]
    """(number, what it counts)."""
    kind: str = field(default="facts", init=False)


@dataclass(frozen=True)
class Interactive:
    """Something to play with: a script of the page finds it by its role and draws it from its data."""

    name: str
    role: str
    title: str
    caption: str
    data: Any
    """Plain values; they travel as JSON."""
    links: Sequence[tuple[str, str]] = ()
    kind: str = field(default="interactive", init=False)

    @property
    def island(self) -> str:
        """The data as JSON that cannot end the element it stands in: nothing in it reads as markup."""
        text = json.dumps(self.data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        for character in "<>&":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text


Block = Text | Bullets | Grid | Picture | Heading | Facts | Interactive


@dataclass(frozen=True)
class Section:
    title: str
    anchor: str
    blocks: Sequence[Block]


def render(
    title: str,
    lead: str,
    sections: Sequence[Section],
    footer: str = "",
    *,
    interactive: bool = False,
) -> str:
    """An `interactive` page has the scripts that draw blocks of that kind."""
    scripts = _scripts() if interactive else []
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(own_file("page.html"))
    return template.render(
        title=title,
        lead=lead,
        sections=sections,
        footer=footer,
        style=own_file("page.css") + (own_file("interactive.css") if interactive else ""),
        scripts=scripts,
        policy=_policy(scripts),
    )


def own_file(name: str) -> str:
    """The template, a style or a script: they lie beside this file."""
    return (files(__name__) / name).read_text(encoding="utf-8")


def _scripts() -> list[str]:
    """Plotly's and ours, as text to stand in a page."""
    import plotly

    library = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    own = "\n".join(own_file(f"scripts/{name}") for name in SCRIPTS)
    return [library.read_text(encoding="utf-8").replace("\r\n", "\n"), own]


def _policy(scripts: Sequence[str]) -> str:
    """These scripts, styles and pictures in the page itself, and nothing from anywhere else."""
    if not scripts:
        return ""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def embedded(paths: Sequence[Path]) -> str:
    """The first picture that is not too heavy, as a data URI."""
    chosen = next((p for p in paths if p.suffix != ".svg" or p.stat().st_size <= LARGEST_SVG), paths[-1])
    content = base64.b64encode(chosen.read_bytes()).decode()
    return f"data:{MEDIA[chosen.suffix]};base64,{content}"


def amount(value: float) -> str:
    """854016 as 854K, 1.3e9 as 1.3B."""
    return number(value, digits=3, least=1e3)


def percent(share: float, digits: int = 1) -> str:
    """A share with its sign: +1.4 %, −0.3 %."""
    sign = "+" if share > 0 else "−" if share < 0 else ""
    return f"{sign}{abs(100 * share):.{digits}f} %"


def loss_share(log10_ratio: float) -> float:
    """A difference of log10 L as a share of the loss."""
    return 10**log10_ratio - 1


def counted(count: int, thing: str, things: str = "") -> str:
    return f"{count:,} {thing if count == 1 else things or thing + 's'}"


def listed(names: Sequence[str], joint: str = "and") -> str:
    """a, b and c."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {joint} {names[-1]}" if names else ""


def span(values: Sequence[float], write=amount) -> str:
    """`2 to 8`, or the one there is."""
    low, high = min(values), max(values)
    return write(low) if low == high else f"{write(low)} to {write(high)}"


def known(interval: Interval | None, write=None) -> str:
    """An interval with open ends written as such; empty where there is none."""
    if interval is None or (math.isnan(interval.low) and math.isnan(interval.high)):
        return ""
    write = write or (lambda value: f"{value:.3g}")
    low = "…" if interval.open_low else write(interval.low)
    high = "…" if interval.open_high else write(interval.high)
    return f"{low} to {high}"


@dataclass(frozen=True)
class ReportProgress:
    """One part done. The last one carries the summary."""

    done: int
    total: int
    what: str
    summary: dict[str, Any] = field(default_factory=dict)


def check_target(out: Path, force: bool) -> None:
    """Refuse what could not be written later, before any work is done."""
    if out.is_symlink() and not out.exists():
        raise InputError(f"{out}: this is a link that leads nowhere; name a folder.")
    if not out.resolve().name:
        raise InputError(f"{out}: results need a folder of their own; name one below it.")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: this is a file; name a folder.")
    if out.exists() and not force:
        raise InputError(f"{out}: the folder exists; choose another one or pass --force to replace what is in it.")


def report_folder(out: Path, *, force: bool = False) -> AbstractContextManager[Path]:
    """A folder that appears whole or not at all. With `force` one that exists keeps what else it holds, and files of
    the same name are replaced one by one."""
    return whole_folder(out, lambda target: check_target(target, force), merge=True)
