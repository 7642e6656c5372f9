"""Figures of the routers' weights: loss and over-subscription by balance weight, and by entropy weight for RL-R."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from experiments.miniature.effects import PERCENT
from experiments.miniature.figures_of_studies import LINES, NOTHING
from experiments.miniature.study import Study
from experiments.miniature.weights import EXCESS, by_balance, crosses, varied
from routelaw.errors import InputError
from routelaw.figures import style


def draw_balance(study: Study) -> Picture:
    """(a) loss over the best weight of each router; (b) over-subscription, where it was recorded."""
    losses = varied(by_balance(study))
    if losses.empty:
        raise InputError(NOTHING)
    shares = by_balance(study, EXCESS).reindex(losses.index).dropna(how="all")
    picture, axes = style.panels(1 if shares.empty else 2, width=4.4, height=3.2)
    _draw_by_weight(axes[0], (losses.sub(losses.min(axis=1), axis=0)) * PERCENT, losses)
    noise = study.noise(*losses.index.get_level_values("size"))
    if noise is not None:
        axes[0].axhspan(0, PERCENT * noise.sd, color="#eeeeee", zorder=0, label="noise of seeds, one sd")
    axes[0].set_ylabel("loss over the best weight (%)")
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    if not shares.empty:
        _draw_by_weight(axes[1], 100 * shares, losses)
        axes[1].set_ylabel("over-subscription (% of assignments)")
        axes[1].set_ylim(bottom=0)
        for panel, letter in zip(axes, "ab", strict=True):
            style.panel_letter(panel, letter)
    return picture


def _draw_by_weight(axes: Axes, table: pd.DataFrame, places: pd.DataFrame) -> None:
    """A line for each place; zero stands left of the scale."""
    least = min(w for w in table.columns if w > 0)
    sizes = list(dict.fromkeys(places.index.droplevel("router")))
    for (router, *place), own in table.iterrows():
        known, line = own.dropna(), LINES[sizes.index(tuple(place)) % len(LINES)]
        axes.plot([w if w > 0 else least / 10 for w in known.index], known, color=style.router_colour(router),
                  marker=style.router_mark(router), linestyle=line,
                  label=f"{style.router_label(router)}, {place[0]}, E = {place[1]}")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlabel(f"balance weight (0 drawn at {least / 10:g})")


def draw_cross(study: Study) -> Picture:
    """RL-R by entropy weight (down) and balance weight (across): loss over the best, and over-subscription."""
    losses, shares = crosses(study), crosses(study, EXCESS)
    if not losses:
        raise InputError(NOTHING)
    drawn = []
    for place, grid in losses.items():
        where = f"{place[0]}, E = {place[1]}"
        drawn.append((f"loss over the best, %\n({where})", PERCENT * (grid - np.nanmin(grid)), ".2f"))
        if place in shares:
            drawn.append((f"over-subscription, %\n({where})", 100 * shares[place], ".0f"))
    picture, axes = style.panels(len(drawn), width=3.4, height=2.9)
    for panel, (title, grid, form) in zip(axes, drawn, strict=True):
        _draw_grid(panel, grid, form)
        panel.set_title(title)
    return picture


def _draw_grid(axes: Axes, grid: pd.DataFrame, form: str) -> None:
    """Cells with their values; dark is high."""
    values = grid.to_numpy(float)
    axes.imshow(
        np.ma.masked_invalid(values), cmap="Blues", aspect="auto", vmin=0, vmax=1.8 * max(np.nanmax(values), 1e-9)
    )
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(column, row, f"{value:{form}}", ha="center", va="center")
    axes.set_xticks(range(grid.shape[1]), [f"{w:g}" for w in grid.columns])
    axes.set_yticks(range(grid.shape[0]), [f"{w:g}" for w in grid.index])
    axes.grid(visible=False)
    axes.set_xlabel("balance weight")
    axes.set_ylabel("entropy weight")
