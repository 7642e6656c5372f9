"""One look for all figures: colours that colour-blind readers tell apart, and the same marks for the same things."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
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
SPARE_MARKS = ("X", "*", "p", "h", "d", "<")
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


def router_looks(routers: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and mark of each of several routers side by side: those not known here are told apart as well."""
    colours = router_colours(routers)
    others = [router for router in colours if router not in ROUTER_MARKS]
    spare = {router: SPARE_MARKS[i % len(SPARE_MARKS)] for i, router in enumerate(others)}
    return {r: {"color": colour, "marker": ROUTER_MARKS.get(r) or spare[r]} for r, colour in colours.items()}


def router_name(router: str) -> str:
    """Known routers as the paper writes them, others as their authors do: for text."""
    known = {"dense": "Dense", "switch": "Switch"}
    return known.get(router, router.upper()) if router in ROUTER_COLOURS else router


def router_label(router: str) -> str:
    """Its name, for a figure."""
    return safe(router_name(router))


def safe(text: str) -> str:
    """A name as it stands: Matplotlib would read mathematics between dollar signs, and hide what begins with _."""
    text = text.replace("$", r"\$")
    return f"\u200a{text}" if text.startswith("_") else text


def loss_label(target: str) -> str:
    """How an axis of this loss is named."""
    text = target.removeprefix("loss_")
    return f"{'validation loss' if text == 'validation' else f'loss on {safe(text)}'} (nats per token)"


def shades(count: int) -> list[tuple[float, float, float, float]]:
    """An ordered, colour-blind-safe scale, dark for the largest: for sizes, K or R."""
    return [tuple(colormaps["viridis_r"](v)) for v in np.linspace(0.2, 0.95, count)]


def tints(colour: str, count: int) -> list[str]:
    """So many shades of a colour from light to dark, the colour itself among them."""
    if count == 1:
        return [colour]
    place = (count - 1) / 2 if count > 2 else 1.0
    base = np.array(to_rgb(colour))
    light, dark = base + (1 - base) / 2, base * 0.515
    steps = np.arange(count) / place - 1
    return [to_hex(base + step * (dark - base) if step > 0 else base - step * (light - base)) for step in steps]


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


MOST_TICKS = 11
"""Expert counts that can stand side by side on an axis."""


def powers_of_two(least: float, most: float) -> tuple[int, ...]:
    """Those from `least` to `most`, as many as an axis can name; those next to them where there is none between."""
    low, high = math.floor(math.log2(max(least, 1)) + 1e-9), math.ceil(math.log2(max(most, 1)) - 1e-9)
    return tuple(2**i for i in range(low, high + 1, (high - low) // MOST_TICKS + 1))


def experts_axis(axes: Axes, values: tuple[int, ...] | None = None) -> None:
    """Logarithmic E with `values` named; else the powers of two about what has been drawn."""
    axes.set_xscale("log", base=2)
    if values is None:
        values = powers_of_two(*axes.dataLim.intervalx) if np.isfinite(axes.dataLim.intervalx).all() else (1, 2)
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
    """What is named in one panel, under all of them."""
    handles, labels = axes.get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels, picture))


def legend_columns(labels: Sequence[str], picture: Picture) -> int:
    """One row where the labels fit side by side, else as many columns as the longest allows."""
    inches = [0.5 + 0.055 * len(label) for label in labels]
    most = picture.get_figwidth()
    return len(labels) if sum(inches) <= most else max(1, int(most / max(inches)))


def grid_of_panels(count: int, most: int = 4, **options: Any) -> tuple[Picture, np.ndarray]:
    """So many panels in one row, or in several of at most `most`."""
    columns = -(-count // -(-count // most))
    picture, axes = panels(columns, -(-count // columns), **options)
    for spare in axes[count:]:
        spare.remove()
    return picture, axes[:count]


def label_outer(axes: Sequence[Axes] | np.ndarray) -> None:
    """Names of the y axis at the left alone; those of x under every panel, since rows may differ in length."""
    for panel in axes:
        subplot = panel.get_subplotspec()
        if subplot is not None and not subplot.is_first_col():
            panel.set_ylabel("")
            panel.tick_params(axis="y", which="both", labelleft=False)


def say_above(picture: Picture, sentence: str) -> None:
    """A sentence in small print over everything, where there is one: what could not be drawn, and why."""
    if sentence:
        lines = textwrap.wrap(safe(sentence), int(16 * picture.get_figwidth()))
        picture.suptitle("\n".join(lines), fontsize=7, color="#555555")


def round_values(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 and so on from `low` to `high`."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    return [v for d in decades for m in (1, 2, 5) if low <= (v := m * 10.0**d) <= high]
