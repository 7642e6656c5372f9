"""The page: whole in one file, and deaf to what a table says."""

import re
from html.parser import HTMLParser

from routelaw.report.page import Bullets, Entry, Grid, Heading, Picture, Section, Text, embedded, render

HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"
DOT = b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"><script>alert(1)</script></svg>'


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def page(hostile: str, image: str = "data:image/png;base64,AAAA") -> str:
    grid = Grid(["", hostile], [[Entry(hostile), Entry(hostile, hostile, hostile, hostile, "good")]])
    blocks = [
        Text(hostile),
        Heading(hostile, "anchor", hostile),
        Bullets([hostile]),
        grid,
        Picture("figure-x", hostile, hostile, image, hostile, [(hostile, "figures/x.svg")]),
    ]
    return render(hostile, hostile, [Section(hostile, "one", blocks)], hostile)


def tags(html: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(html)
    return parser.found


def test_hostile_text_stays_text():
    html = page(HOSTILE)
    found = tags(html)
    assert [tag for tag, _ in found] == [tag for tag, _ in tags(page("harmless"))]
    assert not any(tag == "script" for tag, _ in found)
    assert not any(name.startswith("on") for _, attributes in found for name in attributes)
    assert html.count("&lt;script&gt;") >= 10


def test_a_picture_cannot_run_anything(tmp_path):
    path = tmp_path / "x.svg"
    path.write_bytes(DOT)
    html = page("plain", embedded([path]))
    images = [attributes["src"] for tag, attributes in tags(html) if tag == "img"]
    assert images == [embedded([path])]
    assert images[0].startswith("data:image/svg+xml;base64,")
    assert "alert" not in html


def test_a_heavy_drawing_is_embedded_as_pixels(tmp_path):
    svg, png = tmp_path / "x.svg", tmp_path / "x.png"
    svg.write_bytes(b" " * 1_000_000)
    png.write_bytes(b"png")
    assert embedded([svg, png]).startswith("data:image/png;base64,")


def test_nothing_is_loaded_from_a_network():
    for _, attributes in tags(page("plain")):
        for name in ("src", "href", "srcset", "action"):
            assert not re.match(r"\s*(https?:)?//", attributes.get(name) or "")
    assert "@import" not in page("plain")
    assert "url(" not in page("plain")
