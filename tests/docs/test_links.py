"""Every relative link and image of the documents leads somewhere, anchors included."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md")
FOLDERS = ("docs/**/*.md", "experiments/**/*.md", "benchmarks/*.md")
DOCUMENTS = [ROOT / name for name in PAGES] + sorted(path for pattern in FOLDERS for path in ROOT.glob(pattern))

CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|(?:src|href)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", text, re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    broken = []
    for groups in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        link = next(filter(None, groups))
        if ELSEWHERE.match(link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_every_log_entry_is_in_the_index_newest_first():
    log = ROOT / "docs" / "log"
    listed = re.findall(r"^- .*?\]\((.*?)\)", (log / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in log.glob("*.md") if path.name != "README.md")
    dates = [name[:10] for name in listed]
    assert dates == sorted(dates, reverse=True)


def test_every_guide_is_in_the_index():
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text(encoding="utf-8")
    assert [
        path.name for path in docs.glob("*.md") if f"]({path.name})" not in index and path.name != "README.md"
    ] == []


def test_the_checker_finds_what_is_broken(tmp_path):
    (tmp_path / "other.md").write_text("# A title, twice\n\n## A title, twice\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[good](other.md) [anchor](other.md#a-title-twice-1) [own](#here) [web](https://example.org/x)\n"
        "`[code](not-there.md)`\n\n```\n[code](not-there.md)\n```\n"
        "![no picture](missing.png) [no file](gone.md) [no anchor](other.md#nothing) [not here](#there)\n",
        encoding="utf-8",
    )
    assert broken_links(page) == ["missing.png", "gone.md", "other.md#nothing", "#there"]
