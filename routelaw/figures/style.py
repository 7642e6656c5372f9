"""One look for all figures: colours that colour-blind readers tell apart, and the same marks for the same things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator

# Okabe & Ito's palette.
ROUTER_COLOURS = {
    "dense": "#000000",
    "s-base": "#0072B2",
    "rl-r": "#D55E00",
    "hash": "#009E73",
    "switch": "#CC79A7",
    "base": "#56B4E9",
}
OTHER_COLOURS = ("#E69F00", "#999999", "#F0E442")
SPARE_COLOURS = ("#E69F00", "#7B4FA3", "#8C510A", "#B2182B", "#4D8F8B", "#5E6B7A", "#A6A11F", "#D684BD")
"""For techniques that came later, side by side: each told apart from the others and from those above."""
ROUTER_MARKS = {"dense": "D", "s-base": "o", "rl-r": "s", "hash": "^", "switch": "v", "base": "P"}
GREY = "#8c8c8c"

RC = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "svg.hashsalt": "routelaw",
    "svg.fonttype": "path",
    "figure.facecolor": "white",
}


def router_colour(router: str) -> str:
    if router in ROUTER_COLOURS:
        return ROUTER_COLOURS[router]
    return OTHER_COLOURS[sum(map(ord, router)) % len(OTHER_COLOURS)]


def router_colours(routers: Iterable[str]) -> dict[str, str]:
    """A colour for each: the known ones keep theirs, the others get colours of their own in the order given."""
    routers = list(dict.fromkeys(routers))
    others = [router for router in routers if router not in ROUTER_COLOURS]
    spare = {router: SPARE_COLOURS[i % len(SPARE_COLOURS)] for i, router in enumerate(others)}
    return {router: ROUTER_COLOURS.get(router) or spare[router] for router in routers}


def router_mark(router: str) -> str:
    return ROUTER_MARKS.get(router, "X")


def router_look(router: str, **more: Any) -> dict[str, Any]:
    """Keywords of a line or of marks."""
    return {"color": router_colour(router), "marker": router_mark(router), **more}


def router_label(router: str) -> str:
    return {"dense": "Dense", "switch": "Switch"}.get(router, router.upper())


def shades(count: int) -> list[tuple[float, float, float, float]]:
    """An ordered, colour-blind-safe scale, dark for the largest: for sizes, K or R."""
    return [tuple(colormaps["viridis_r"](v)) for v in np.linspace(0.2, 0.95, count)]


def panels(
    columns: int, rows: int = 1, width: float = 3.1, height: float = 2.8, **options
) -> tuple[Picture, np.ndarray]:
    """A grid of axes that share nothing unless asked, laid out without overlap; axes come as a flat array."""
    picture = Picture(figsize=(width * columns, height * rows), layout="constrained")
    axes = picture.subplots(rows, columns, squeeze=False, **options)
    return picture, axes.ravel()


def named_ticks(axis: Axis, names: Mapping[float, str]) -> None:
    """Ticks at these values, and nowhere else, with these names."""
    axis.set_major_locator(FixedLocator(list(names)))
    axis.set_major_formatter(FixedFormatter(list(names.values())))
    axis.set_minor_locator(NullLocator())


def experts_axis(axes: Axes, values: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)) -> None:
    """Logarithmic E with its powers of two named."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(values)))
    axes.xaxis.set_major_formatter(FixedFormatter([str(v) for v in values]))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("experts E")


def log_loss_axis(axes: Axes, ticks: tuple[float, ...], label: str = "validation loss (nats per token)") -> None:
    """Logarithmic loss with round values named."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_major_formatter(FixedFormatter([f"{t:g}" for t in ticks]))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(label)


def panel_letter(axes: Axes, letter: str) -> None:
    axes.set_title(f"({letter})", loc="left", fontweight="bold")


def letter_panels(panels: Sequence[Axes] | np.ndarray) -> None:
    """(a), (b), (c) and so on."""
    for axes, letter in zip(panels, "abcdefgh", strict=False):
        panel_letter(axes, letter)


def legend_of(axes: Axes, picture: Picture) -> None:
    """What is named in one panel, in a row under all of them."""
    handles, labels = axes.get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=len(handles))
