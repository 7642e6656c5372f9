"""The techniques that a table compares: a router and what it was varied in, with the dense runs it is measured against.

A sweep over an option of one router is a comparison of techniques like any other, so each variant stands for itself:
under a name of its own, with its own colour, its own law and its own dense runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from routelaw.figures import style
from routelaw.formatting import printable
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE, TECHNIQUES, canonical_router


@dataclass(frozen=True, eq=False)
class Technique:
    key: str
    """What its rows are called in `table`: the router's name, with the variant where there is one."""
    router: str
    variant: str
    label: str
    """For people."""
    table: RunTable
    """Its own runs under `key`, and the dense runs."""


@dataclass(frozen=True)
class PlotStyle:
    label: str
    colour: str
    mark: str
    """A marker of Matplotlib."""
    symbol: str
    """The same in Plotly."""


PLUGIN = "plugin="
"""Names the version of a router of one's own (specs/run.py)."""
SYMBOLS = {"D": "diamond", "o": "circle", "s": "square", "^": "triangle-up", "v": "triangle-down", "P": "cross"}
SPARE_MARKS = {"X": "x", "*": "star", "p": "pentagon", "h": "hexagon", "d": "diamond-tall", "<": "triangle-left"}


def label_of(router: str, variant: str = "") -> str:
    """Known routers as the paper writes them, others as their authors do."""
    name = style.router_label(router) if router in TECHNIQUES else router
    return printable(f"{name} ({variant})" if variant else name)


def techniques_of(table: RunTable) -> list[Technique]:
    """Every routed technique of a table, plain routers before their variants."""
    frame = table.frame
    routed = frame[frame["router"] != DENSE]
    pairs = sorted(set(zip(routed["router"], routed["variant"], strict=True)), key=_order)
    keys: dict[str, tuple[str, str, str]] = {}
    for router, variant in pairs:
        shown = _shown(variant, [other for of, other in pairs if of == router])
        key = canonical_router(f"{router} {shown}") if shown else router
        while key in keys or (shown and key in table.routers):
            key += "'"
        keys[key] = router, variant, shown
    return [
        Technique(key, router, variant, label_of(router, shown), _rows(table, key, router, variant))
        for key, (router, variant, shown) in keys.items()
    ]


def _shown(variant: str, variants: list[str]) -> str:
    """A variant without the version of its plugin, where all runs of the router are of that one version."""
    versions = {part for other in variants for part in other.split(",") if part.startswith(PLUGIN)}
    return _without_plugin(variant) if len(versions) == 1 and all(PLUGIN in v for v in variants) else variant


def _without_plugin(variant: str) -> str:
    return ",".join(part for part in variant.split(",") if not part.startswith(PLUGIN))


def _order(pair: tuple[str, str]) -> tuple[bool, int, str, str]:
    router, variant = pair
    known = TECHNIQUES.index(router) if router in TECHNIQUES else len(TECHNIQUES)
    return bool(variant), known, router, variant


def _rows(table: RunTable, key: str, router: str, variant: str) -> RunTable:
    """Dense runs of the same variant (rotary positions, say) where there are some, else the plain ones."""
    frame = table.frame
    dense = frame["router"] == DENSE
    same = dense & (frame["variant"] == _without_plugin(variant))
    dense = same if same.any() else dense & (frame["variant"] == "")
    own = (frame["router"] == router) & (frame["variant"] == variant)
    rows: pd.DataFrame = frame[own | dense]
    rows = rows.assign(router=rows["router"].mask(own, key).astype("str"), variant="")
    return replace(table, frame=rows)


def plot_styles(keys: dict[str, str]) -> dict[str, PlotStyle]:
    """Colour and marks by key, the same in every chart of a page; `keys` maps each to its label."""
    colours = style.router_colours([DENSE, *keys])
    looks = {}
    spare = 0
    for key, label in {DENSE: label_of(DENSE), **keys}.items():
        if key in style.ROUTER_MARKS:
            mark = style.router_mark(key)
            symbol = SYMBOLS[mark]
        else:
            mark, symbol = list(SPARE_MARKS.items())[spare % len(SPARE_MARKS)]
            spare += 1
        looks[key] = PlotStyle(label, colours[key], mark, symbol)
    return looks
