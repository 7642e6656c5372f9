"""Charts to play with, as plain Plotly figures: loss against E, laws ranked, effective size, the slope b(N).

Every trace says in `meta` what it is of (router, size, law), and the page's chips and select boxes show and hide by
that. Plotly reads a little HTML in its texts, so every name passes through `plain` before it gets there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from routelaw.laws.law import Array
from routelaw.report.runs.analysis import Analysis, PlotStyle
from routelaw.report.runs.chart_data import (
    CURVE_POINTS,
    Series,
    effective_series,
    loss_series,
    ranked_laws,
    slope_series,
)
from routelaw.runs.table import FINISHED, last_rows
from routelaw.specs.names import DENSE

Trace = dict[str, Any]
Chart = dict[str, Any]
HOVER = "%{text}<extra></extra>"


def loss_chart(analysis: Analysis) -> Chart:
    """Measured losses over E by size, with every fitted law in (N, E)."""
    traces: list[Trace] = []
    ends: dict[str, tuple[float, list[float]]] = {}
    for series in loss_series(analysis):
        look = analysis.looks[series.technique]
        name, points = f"{plain(look.label)} {plain(series.size)}", zip(series.x, series.y, strict=True)
        if series.measured:
            texts = [f"{name}, E = {e:.0f}: {loss:.4f}" for e, loss in points]
            # A faint line joins the marks of one size, so that they can be told from those of the next.
            faint = {"mode": "lines+markers", "line": {"color": f"{look.colour}66", "width": 1, "dash": "dot"}}
            traces.append({**trace_of(series, texts, look), **faint})
            last, losses = ends.get(series.size, (0.0, []))
            ends[series.size] = max(last, float(series.x.max())), [*losses, float(series.y[-1])]
        else:
            texts = [f"{name}, law {plain(series.law)}: {loss:.4f} at E = {e:.3g}" for e, loss in points]
            traces.append(trace_of(series, texts, look))
    traces += _dense_marks(analysis)
    widest = max((last for last, _ in ends.values()), default=1.0)
    for size, (_, losses) in ends.items():
        traces.append(size_mark(size, widest, float(np.mean(losses))))
    title = f"{plain(analysis.target.removeprefix('loss_').replace('_', ' '))} loss (nats per token)"
    layout = {"xaxis": experts_axis(experts_trained(analysis)), "yaxis": {"type": "log", "title": {"text": title}}}
    return chart_of(analysis, traces, layout)


def experts_trained(analysis: Analysis) -> list[int]:
    return sorted({int(e) for points in analysis.points.values() for e in points.x["experts"]} | {1})


def dense_chart(analysis: Analysis) -> Chart | None:
    """Loss over N of the dense runs, with their power law where there is one."""
    frame = analysis.table.frame
    dense = frame[(frame["router"] == DENSE) & frame[analysis.target].notna()]
    unvaried = dense["variant"] == ""
    dense = dense[unvaried] if unvaried.any() else dense
    last = last_rows(dense).sort_values("active_params")
    last = last[last["status"] == FINISHED]
    if last.empty:
        return None
    look = analysis.looks[DENSE]
    texts = [
        f"{look.label} {plain(s)}: {v:.4f}"
        for s, v in zip(last["size"], last[analysis.target].astype(float), strict=True)
    ]
    active = last["active_params"].to_numpy(float)
    traces = [scatter(active, last[analysis.target].to_numpy(float), texts, look, {"router": DENSE})]
    if analysis.dense:
        grid = np.geomspace(active.min(), active.max(), CURVE_POINTS)
        losses = analysis.dense.predict(active_params=grid)
        texts = [f"law {analysis.dense.law.name}: {v:.4f} at N = {n:.3g}" for n, v in zip(grid, losses, strict=True)]
        traces.append(line(grid, losses, texts, look.colour, {"router": DENSE}))
    sizes = {float(n): str(s) for n, s in zip(last["active_params"], last["size"], strict=True)}
    layout = {"xaxis": sizes_axis(sizes), "yaxis": {"type": "log", "title": {"text": "loss (nats per token)"}}}
    return chart_of(analysis, traces, layout, chips=(), select="")


def ranking_chart(analysis: Analysis) -> Chart:
    """Leave-size-out error of each law, by technique, with its interval over sizes."""
    ranked = ranked_laws(analysis)
    traces: list[Trace] = []
    for key, rows in ranked.rows.items():
        look = analysis.looks[key]
        texts = [f"{plain(look.label)}, {plain(law)}: {e:.1f} [{low:.1f}, {high:.1f}]" for law, _, e, low, high in rows]
        places, errors, lows, highs = np.array([row[1:] for row in rows]).reshape(-1, 4).T
        bars = {"array": numbers(highs - errors), "arrayminus": numbers(errors - lows), "symmetric": False}
        trace = scatter(errors, places, texts, look, {"router": key})
        traces.append({**trace, "error_x": {"type": "data", "thickness": 1, "width": 0, **bars}})
    count = len(ranked.parameters)
    names = [f"{plain(name)} ({parameters})" for name, parameters in ranked.parameters.items()]
    layout = {
        "xaxis": log_axis("leave-size-out error of log10 L (10⁻⁴)", traces, "x"),
        "yaxis": {"range": [count - 0.5, -0.5], "automargin": True, "tickvals": [*range(count)], "ticktext": names},
    }
    return {**chart_of(analysis, traces, layout, chips=("router",), select=""), "height": 120 + 34 * count}


def effective_chart(analysis: Analysis) -> Chart:
    """N̄/N over E by size: how many times larger a dense model of the same loss would be."""
    traces: list[Trace] = []
    for series in effective_series(analysis):
        look, ratios = analysis.looks[series.technique], series.y / series.active_params
        name = f"{plain(look.label)} {plain(series.size)}"
        what = "measured" if series.measured else f"law {plain(series.law)}"
        texts = [
            f"{name}, E = {e:.3g}: N̄ = {n:.3g} ({ratio:.2f} N), {what}"
            for e, n, ratio in zip(series.x, series.y, ratios, strict=True)
        ]
        traces.append(trace_of(replace(series, y=ratios), texts, look))
    y_axis = log_axis("effective over active parameters, N̄/N", traces, "y")
    return chart_of(analysis, traces, {"xaxis": experts_axis(experts_trained(analysis)), "yaxis": y_axis}, select="law")


def slope_chart(analysis: Analysis) -> Chart:
    """Slope of log L in log E at each size: marks from that size alone, lines from the laws."""
    traces: list[Trace] = []
    sizes = {active: size for points in analysis.points.values() for size, active, _ in points.by_size()}
    for series in slope_series(analysis):
        look, points = analysis.looks[series.technique], zip(series.x, series.y, strict=True)
        if series.measured:
            texts = [f"{plain(look.label)} {plain(sizes[n])}: b = {b:.4f}" for n, b in points]
        else:
            texts = [f"{plain(look.label)}, law {plain(series.law)}: b = {b:.4f} at N = {n:.3g}" for n, b in points]
        traces.append(trace_of(series, texts, look))
    layout = {"xaxis": sizes_axis(sizes), "yaxis": {"title": {"text": "slope b(N) of log L in log E"}}}
    return chart_of(analysis, traces, layout, chips=("router",), select="law")


def _dense_marks(analysis: Analysis) -> list[Trace]:
    """Each size once, however many techniques count it as their E = 1."""
    losses: dict[str, float] = {}
    for points in analysis.points.values():
        dense = points.where(points.dense)
        losses |= dict(zip(dense.size, dense.loss, strict=True))
    look = analysis.looks[DENSE]
    return [
        scatter(np.ones(1), np.array([v]), [f"{look.label} {plain(s)}: {v:.4f}"], look, {"router": DENSE, "size": s})
        for s, v in losses.items()
    ]


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


def trace_of(series: Series, texts: list[str], look: PlotStyle) -> Trace:
    meta = {"router": series.technique, "size": series.size, "law": series.law}
    meta = {name: value for name, value in meta.items() if value}
    if series.measured:
        return scatter(series.x, series.y, texts, look, meta)
    return line(series.x, series.y, texts, look.colour, meta)


def scatter(x: Array, y: Array, texts: list[str], look: PlotStyle, meta: dict[str, str]) -> Trace:
    large = 11 if look.symbol.startswith("triangle") else 9
    marker = {"color": look.colour, "symbol": look.symbol, "size": large, "line": {"color": "white", "width": 0.7}}
    return {**_trace("markers", x, y, texts, meta), "marker": marker}


def line(x: Array, y: Array, texts: list[str], colour: str, meta: dict[str, str]) -> Trace:
    return {**_trace("lines", x, y, texts, meta), "line": {"color": colour, "width": 1.6}}


def _trace(mode: str, x: Array, y: Array, texts: list[str], meta: dict[str, str]) -> Trace:
    trace = {"type": "scatter", "mode": mode, "x": numbers(x), "y": numbers(y), "text": texts}
    return {**trace, "hovertemplate": HOVER, "meta": meta}


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
        "hidden": analysis.others,
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


def numbers(values: Array) -> list[float | None]:
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in np.asarray(values, float)]
