"""How far apart runs are that differ in nothing but their seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.figures.loss_curves import metric_formatter, routed_techniques
from routelaw.figures.matched import (
    LINES,
    PAPER_CUTOFF,
    in_order,
    legend_once,
    legend_panels,
    matched_runs,
    noise_band,
)
from routelaw.fitting.matched_runs import VALIDATION, MatchedRuns, finished_runs
from routelaw.fitting.noise import seed_groups
from routelaw.runs.table import RunTable
from routelaw.specs.names import DENSE

Model = tuple[str, str, int]
"""Router, size and E."""
PROGRESS = {"tokens": "tokens seen", "step": "steps"}
ROTATED = 4
"""Models in a panel beyond which their names stand upright."""


def seeded_rows(runs: MatchedRuns) -> pd.DataFrame:
    """All rows of models that were trained with several seeds; `seeds_of` is the number of the model."""
    last = runs.finals
    group = seed_groups(last).set_axis(last["run_id"])
    group = group[group.groupby(group).transform("size") > 1]
    rows = finished_runs(runs.table)
    return rows.assign(seeds_of=rows["run_id"].map(group)).dropna(subset=["seeds_of", VALIDATION])


def spread_at_the_end(runs: MatchedRuns) -> dict[Model, np.ndarray]:
    """Each seed's loss less the mean of its model's, in nats; of several models with one (router, size, E) all."""
    made: dict[Model, list[float]] = {}
    last = runs.finals
    ends = seeded_rows(runs).groupby("run_id")["seeds_of"].first()
    for _, own in last[last["run_id"].isin(ends.index)].groupby(last["run_id"].map(ends)):
        made.setdefault(_model(own), []).extend(own[VALIDATION] - own[VALIDATION].mean())
    routers = {router: place for place, router in enumerate([DENSE, *routed_techniques(runs.table)])}
    ordered = sorted(made, key=lambda model: (routers[model[0]], model[2]))
    return {model: np.array(made[model]) for model in ordered}


def spread_along(runs: MatchedRuns) -> tuple[str, dict[Model, pd.Series]]:
    """Largest distance between seeds in nats by tokens (or steps, where nobody counted tokens), and which of the two;
    of several models with one (router, size, E) the widest. Only where all seeds of a model were evaluated."""
    rows = seeded_rows(runs)
    by = next((name for name in PROGRESS if rows[name].notna().all()), "")
    made: dict[Model, pd.Series] = {}
    if not by:
        return by, made
    for _, own in rows[rows[by] > 0].groupby("seeds_of"):
        losses = own.pivot_table(index=by, columns="run_id", values=VALIDATION).dropna()
        apart = pd.concat([losses.max(axis=1) - losses.min(axis=1), *([made[m]] if (m := _model(own)) in made else [])])
        made[m] = apart.groupby(level=0).max()
    return by, made


def _model(rows: pd.DataFrame) -> Model:
    first = rows.iloc[0]
    return str(first["router"]), str(first["size"]), int(first["experts"])


def draw(table: RunTable) -> Picture:
    runs = matched_runs(table)
    ends = spread_at_the_end(runs)
    if not ends:
        raise CannotDraw("No model was trained with several seeds.")
    by, along = spread_along(runs)
    along = {model: apart for model, apart in along.items() if len(apart) > 1}
    sizes = in_order(runs, {size for _, size, _ in ends})
    most = max(sum(model[1] == size for model in ends) for size in sizes)
    rows = 2 if along else 1
    width = max(3.6 if len(sizes) > 1 else 4.6, 0.28 * most)
    picture, axes = legend_panels(len(sizes), rows, width=width, height=3.0, sharey="row")
    upper, lower = axes[: len(sizes)], axes[len(sizes) :]
    for panel, size in zip(upper, sizes, strict=True):
        _draw_ends(panel, runs, size, {model: gaps for model, gaps in ends.items() if model[1] == size})
    upper[0].set_ylabel("loss less its seeds' mean (nats)")
    legend_once(upper[-1])
    for panel, size in zip(lower, sizes, strict=False):
        _draw_along(panel, {model: apart for model, apart in along.items() if model[1] == size}, along)
        panel.set_xlabel(PROGRESS[by])
    if along:
        lower[0].set_ylabel("largest distance of seeds (nats)")
        lower[0].set_ylim(bottom=0)
        legend_once(lower[-1], *lower[:-1])
    return picture


def _draw_ends(axes: Axes, runs: MatchedRuns, size: str, ends: dict[Model, np.ndarray]) -> None:
    for place, ((router, _, _), gaps) in enumerate(ends.items()):
        axes.plot(np.full(len(gaps), place), gaps, linestyle="none", **style.router_look(router, alpha=0.8))
    if noise := runs.noise(size):
        noise_band(axes, runs, size, noise.nats)
    names = [_label(model) for model in ends]
    axes.set_xticks(range(len(names)), names, rotation=90 if len(names) > ROTATED else 0, fontsize=7.5)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_title(f"{size}, end of training")


def _draw_along(axes: Axes, own: dict[Model, pd.Series], every: dict[Model, pd.Series]) -> None:
    experts = sorted({model[2] for model in every})
    for model in sorted(own, key=lambda model: (model[2], model[0])):
        apart = own[model]
        look = style.router_look(model[0], markersize=3, linestyle=LINES[experts.index(model[2]) % len(LINES)])
        axes.plot(apart.index.astype(float), apart, label=_label(model), **look)
    axes.axhline(PAPER_CUTOFF, color="black", linewidth=0.8, label=f"{PAPER_CUTOFF:g} nats, the paper's cut-off")
    axes.xaxis.set_major_formatter(metric_formatter())


def _label(model: Model) -> str:
    router, _, experts = model
    return style.router_label(router) + (f", E = {experts}" if router != DENSE else "")


FIGURES = (
    Figure(
        name="seeds",
        title="How far apart seeds are",
        caption=(
            "Runs that differ in nothing but their seed. Top: the loss of each at the end of training less the mean "
            "of its model's seeds; the grey band is one standard deviation, pooled over the models of the size. "
            "Bottom: the largest distance between the seeds of a model at every evaluation that all of them had. "
            "Where a router, size and E have several such models, they share a place above, and below the widest is "
            "drawn. Two losses that differ by less say nothing; 0.02 nats is the cut-off that the paper used."
        ),
        draw=draw,
        paper="Appendix figure apfig:seeds",
        released=False,
    ),
)
