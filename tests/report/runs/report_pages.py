"""Reports written for tests, and what can be read out of their pages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from routelaw.report.runs.report import report_steps


@dataclass(frozen=True)
class Page:
    folder: Path
    html: str
    summary: dict[str, Any]

    def island(self, name: str) -> Any:
        """The data of an interactive part."""
        return json.loads(re.search(f'id="{name}-data">(.*?)</script>', self.html, re.DOTALL)[1])

    @property
    def names(self) -> list[str]:
        """Names of the interactive parts, in their order."""
        return re.findall(r'data-from="(.*?)-data"', self.html)

    @property
    def parsed(self) -> Parsed:
        parser = Parsed()
        parser.feed(self.html)
        return parser

    @property
    def text(self) -> str:
        """What a reader without scripts sees."""
        return " ".join(" ".join(self.parsed.words).split())


class Parsed(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._silent = False

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._silent = tag in ("script", "style")

    def handle_endtag(self, tag):
        self._silent = False

    def handle_data(self, data):
        if not self._silent:
            self.words.append(data)


def written(source: Path, out: Path, **options: Any) -> Page:
    summary: dict[str, Any] = {}
    for step in report_steps(source, out, **options):
        assert 0 <= step.done <= step.total
        summary = step.summary
    return Page(out, (out / "index.html").read_text(encoding="utf-8"), summary)
