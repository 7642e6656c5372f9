"""Charts to play with, as plain Plotly figures: loss against E, laws ranked, effective size, the slope b(N).

Every trace says in `meta` what it is of (router, size, law), and the page's chips and select boxes show and hide by
that. Plotly reads a little HTML in its texts, so every name passes through `plain` before it gets there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from routelaw.fitting.fit import Fit
from routelaw.fitting.points import Points
from routelaw.fitting.selection import mean_error
from routelaw.fitting.slopes import law_slopes, slopes_by_size
from routelaw.laws import equivalence
from routelaw.laws.law import Array
from routelaw.report.runs.analysis import Analysis, PlotStyle
from routelaw.report.runs.explorer import UNREACHABLE
from routelaw.runs.table import FINISHED
from routelaw.specs.techniques import DENSE

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


CURVE_POINTS = 40


def loss_chart(analysis: Analysis) -> Chart:
    """Measured losses over E by size, with every fitted law in (N, E)."""
    traces: list[Trace] = []
    ends: dict[str, tuple[float, list[float]]] = {}
    for key, points in analysis.points.items():
        for law in analysis.laws:
            if fit := analysis.fits(law).get(key):
                traces += _law_lines(analysis, key, fit)
        for size, _, group in points.where(~points.dense).by_size():
            traces.append(_marks(analysis, key, size, group))
            last, losses = ends.get(size, (0.0, []))
            ends[size] = max(last, float(group.x["experts"].max())), [*losses, float(group.loss[-1])]
    traces += _dense_marks(analysis)
    widest = max((last for last, _ in ends.values()), default=1.0)
    for size, (_, losses) in ends.items():
        traces.append(size_mark(size, widest, float(np.mean(losses))))
    experts = sorted({int(e) for points in analysis.points.values() for e in points.x["experts"]} | {1})
    return chart_of(
        analysis,
        traces,
        {
            "xaxis": experts_axis(experts),
            "yaxis": {"type": "log", "title": {"text": f"{plain(loss_words(analysis.target))} (nats per token)"}},
        },
    )


def dense_chart(analysis: Analysis) -> Chart | None:
    """Loss over N of the dense runs, with their power law where there is one."""
    frame = analysis.table.frame
    dense = frame[(frame["router"] == DENSE) & frame[analysis.target].notna()]
    unvaried = dense["variant"] == ""
    dense = dense[unvaried] if unvaried.any() else dense
    last = dense.sort_values("step", kind="stable").groupby("run_id", sort=False).tail(1).sort_values("active_params")
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
    """Leave-size-out error of each law, by technique, with its interval over sizes; in sample where there is none."""
    names = {r.fit.law.name: len(r.fit.law.parameters) for rows in analysis.ranked.values() for r in rows}
    order = sorted(names, key=lambda name: (mean_error(analysis.ranked, name), names[name]))
    fitted = [key for key, rows in analysis.ranked.items() if rows]
    traces: list[Trace] = []
    for nth, key in enumerate(fitted):
        offset = 0.0 if len(fitted) == 1 else 0.5 * (nth / (len(fitted) - 1) - 0.5)
        look = analysis.looks[key]
        rows = [r for r in analysis.ranked[key] if r.validation.leave_size_out is not None]
        errors = np.array([1e4 * (r.validation.leave_size_out or 0.0) for r in rows])
        lows, highs = (np.array([1e4 * (r.interval or (np.nan,) * 2)[i] for r in rows]) for i in (0, 1))
        texts = [
            f"{plain(look.label)}, {plain(r.fit.law.name)}: {e:.1f} [{lo:.1f}, {hi:.1f}]"
            for r, e, lo, hi in zip(rows, errors, lows, highs, strict=True)
        ]
        places = np.array([order.index(r.fit.law.name) + offset for r in rows])
        trace = scatter(errors, places, texts, look, {"router": key})
        bars = {"array": numbers(highs - errors), "arrayminus": numbers(errors - lows), "symmetric": False}
        traces.append({**trace, "error_x": {"type": "data", "thickness": 1, "width": 0, **bars}})
    ticks = {"tickvals": list(range(len(order))), "ticktext": [f"{plain(n)} ({names[n]})" for n in order]}
    layout = {
        "xaxis": log_axis("leave-size-out error of log10 L (10⁻⁴)", traces, "x"),
        "yaxis": {"range": [len(order) - 0.5, -0.5], "automargin": True, **ticks},
    }
    return {**chart_of(analysis, traces, layout, chips=("router",), select=""), "height": 120 + 34 * len(order)}


def effective_chart(analysis: Analysis) -> Chart:
    """N̄/N over E by size: how many times larger a dense model of the same loss would be."""
    traces: list[Trace] = []
    for law in analysis.laws:
        for key, fit in analysis.fits(law).items():
            look = analysis.looks[key]
            for size, active, group in fit.points.by_size():
                experts = np.geomspace(1, fit.points.x["experts"].max(), CURVE_POINTS)
                meta = {"router": key, "size": size, "law": law}
                predicted = fit.predict(active_params=active, experts=experts)
                traces.append(_effective(fit, active, experts, predicted, look, meta, "lines"))
                routed = group.where(~group.dense)
                if len(routed):
                    traces.append(_effective(fit, active, routed.x["experts"], routed.loss, look, meta, "markers"))
    experts = sorted({int(e) for points in analysis.points.values() for e in points.x["experts"]} | {1})
    y_axis = log_axis("effective over active parameters, N̄/N", traces, "y")
    return chart_of(analysis, traces, {"xaxis": experts_axis(experts), "yaxis": y_axis}, select="law")


def slope_chart(analysis: Analysis) -> Chart:
    """Slope of log L in log E at each size: marks from that size alone, lines from the laws."""
    traces: list[Trace] = []
    sizes: dict[float, str] = {}
    for key, points in analysis.points.items():
        look = analysis.looks[key]
        measured = slopes_by_size(points)
        sizes |= {active: size for size, active, _ in points.by_size()}
        if measured:
            texts = [f"{plain(look.label)} {plain(s)}: b = {b:.4f}" for s, _, b in measured]
            active, slopes = (np.array([row[i] for row in measured]) for i in (1, 2))
            traces.append(scatter(active, slopes, texts, look, {"router": key}))
        for law in analysis.laws:
            if fit := analysis.fits(law).get(key):
                grid = np.geomspace(points.x["active_params"].min(), points.x["active_params"].max(), CURVE_POINTS)
                slopes = law_slopes(fit, grid)
                label = f"{plain(look.label)}, law {plain(law)}"
                texts = [f"{label}: b = {b:.4f} at N = {n:.3g}" for n, b in zip(grid, slopes, strict=True)]
                traces.append(line(grid, slopes, texts, look.colour, {"router": key, "law": law}))
    layout = {"xaxis": sizes_axis(sizes), "yaxis": {"title": {"text": "slope b(N) of log L in log E"}}}
    return chart_of(analysis, traces, layout, chips=("router",), select="law")


def _law_lines(analysis: Analysis, key: str, fit: Fit) -> list[Trace]:
    look, lines = analysis.looks[key], []
    experts = np.geomspace(1, fit.points.x["experts"].max(), CURVE_POINTS)
    for size, active, _ in fit.points.by_size():
        losses = fit.predict(active_params=active, experts=experts)
        label = f"{plain(look.label)} {plain(size)}, law {plain(fit.law.name)}"
        texts = [f"{label}: {loss:.4f} at E = {e:.3g}" for e, loss in zip(experts, losses, strict=True)]
        meta = {"router": key, "size": size, "law": fit.law.name}
        lines.append(line(experts, losses, texts, look.colour, meta))
    return lines


def _marks(analysis: Analysis, key: str, size: str, group: Points) -> Trace:
    """A faint line joins the marks of one size, so that they can be told from those of the next."""
    look = analysis.looks[key]
    pairs = zip(group.x["experts"], group.loss, strict=True)
    texts = [f"{plain(look.label)} {plain(size)}, E = {e:.0f}: {loss:.4f}" for e, loss in pairs]
    trace = scatter(group.x["experts"], group.loss, texts, look, {"router": key, "size": size})
    return {**trace, "mode": "lines+markers", "line": {"color": f"{look.colour}66", "width": 1, "dash": "dot"}}


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


def _effective(
    fit: Fit, active: float, experts: Array, losses: Array, look: PlotStyle, meta: dict[str, str], mode: str
) -> Trace:
    params = np.broadcast_to(fit.params_BP, (len(losses), fit.params_BP.shape[1]))
    with np.errstate(all="ignore"):
        effective = equivalence.size_for_loss(fit.law, params, np.log10(losses), 1.0)
    effective = np.where((effective > 1) & (effective < UNREACHABLE), effective, np.nan)
    label = f"{plain(look.label)} {plain(meta['size'])}"
    what = "measured" if mode == "markers" else f"law {plain(meta['law'])}"
    texts = [
        f"{label}, E = {e:.3g}: N̄ = {n:.3g} ({n / active:.2f} N), {what}"
        for e, n in zip(experts, effective, strict=True)
    ]
    if mode == "markers":
        return scatter(experts, effective / active, texts, look, meta)
    return line(experts, effective / active, texts, look.colour, meta)
