"""Pieces of Plotly figures as plain values: marks, lines, axes, and a chart with what its chips and boxes show.

Plotly reads a little HTML in its texts, so every name passes through `plain` before it gets there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from routelaw.laws.law import Array
from routelaw.report.analysis import Analysis
from routelaw.report.techniques import PlotStyle

Trace = dict[str, Any]
Chart = dict[str, Any]
HOVER = "%{text}<extra></extra>"


def plain(text: str) -> str:
    """Text that Plotly shows as it stands."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def size_mark(size: str, x: float, y: float) -> Trace:
    """The name of a size where its curves end."""
    return {
        "type": "scatter",
        "mode": "text",
        "x": [x],
        "y": [y],
        "text": [f"\u2003{plain(size)}"],
        "textposition": "middle right",
        "textfont": {"size": 11, "color": "#5b6575"},
        "hoverinfo": "skip",
        "cliponaxis": False,
        "meta": {"size": size},
    }


def scatter(x: Array, y: Array, texts: list[str], look: PlotStyle, meta: dict[str, str]) -> Trace:
    large = 11 if look.symbol.startswith("triangle") else 9
    marker = {"color": look.colour, "symbol": look.symbol, "size": large, "line": {"color": "white", "width": 0.7}}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(x),
        "y": numbers(y),
        "text": texts,
        "hovertemplate": HOVER,
        "marker": marker,
        "meta": meta,
    }


def line(x: Array, y: Array, texts: list[str], colour: str, meta: dict[str, str]) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": numbers(x),
        "y": numbers(y),
        "text": texts,
        "hovertemplate": HOVER,
        "line": {"color": colour, "width": 1.6},
        "meta": meta,
    }


def chart_of(
    analysis: Analysis,
    traces: list[Trace],
    layout: dict[str, Any],
    *,
    chips: tuple[str, ...] = ("router", "size"),
    select: str = "law",
) -> Chart:
    """`chips` are switched on and off one by one, of what `select` names one is shown at a time."""
    looks = {key: {"label": look.label, "colour": look.colour} for key, look in analysis.looks.items()}
    laws = analysis.laws
    return {
        "traces": traces,
        "layout": layout,
        "chips": list(chips),
        "select": {"name": select, "values": laws} if select and len(laws) > 1 else None,
        "looks": looks,
    }


def log_axis(title: str, traces: list[Trace], coordinate: str) -> dict[str, Any]:
    """With the span of what is drawn, from which the page chooses round ticks."""
    values = [v for trace in traces for v in trace[coordinate] if v is not None and v > 0]
    span = {"span": [min(values), max(values)]} if values else {}
    return {"type": "log", "title": {"text": title}, **span}


def experts_axis(experts: list[int]) -> dict[str, Any]:
    """Logarithmic, with the expert counts that were trained named."""
    named = experts if len(experts) <= 12 else [e for e in experts if e & (e - 1) == 0]
    return {"type": "log", "title": {"text": "experts E"}, "tickvals": named, "ticktext": [str(e) for e in named]}


def sizes_axis(sizes: dict[float, str]) -> dict[str, Any]:
    named = sorted(sizes)
    ticks = {"tickvals": named, "ticktext": [plain(sizes[n]) for n in named]}
    return {"type": "log", "title": {"text": "active parameters N"}, **ticks}


def loss_words(target: str) -> str:
    return f"{target.removeprefix('loss_').replace('_', ' ')} loss"


def numbers(values: Array) -> list[float | None]:
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in np.asarray(values, float)]
