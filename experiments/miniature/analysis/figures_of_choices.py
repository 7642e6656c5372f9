"""Figures of what was chosen for so short a training, and of what that changes: rates, RL-R's weights, S-BASE's
temperature, and how the routers spread tokens."""

from __future__ import annotations

from math import log

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from experiments.miniature.analysis.figures_of_results import NOTHING
from experiments.miniature.analysis.study import Study
from routelaw.errors import InputError
from routelaw.figures import style
from routelaw.figures.loss_curves import routed_techniques
from routelaw.figures.matched import BESIDE, LINES
from routelaw.fitting.matched_runs import PERCENT, VALIDATION
from routelaw.runs.variants import parts_of
from routelaw.studies.claims_on_balance import EXCESS, by_balance, crosses, varied
from routelaw.studies.study_runs import WEIGHTS

FEW = 3
"""Rates that make a line, weights that make a panel."""
SHOWN = 0.2
"""Nats over the best: what lies further off is out of the picture."""
RIVAL = "hash"
"""What S-BASE is to be better than."""
CHOSEN_OPTIONS = WEIGHTS | {"policy_weight", "reward"}


def rates(study: Study) -> pd.DataFrame:
    """Models that were trained with several learning rates, the chosen one (of the main table) among them, with the
    same seeds."""
    if study.rates is None or "learning_rate" not in study.finals:
        return pd.DataFrame()
    model = ["router", "size", "experts"]
    chosen = study.usual_shape[
        (study.usual_shape["variant"] == "") & study.usual_shape["seed"].isin(study.rates["seed"])
    ]
    columns = [*model, "learning_rate", VALIDATION]
    both = pd.concat([study.rates[columns].assign(chosen=False), chosen[columns].assign(chosen=True)])
    both = both.groupby([*model, "learning_rate"], as_index=False).agg({VALIDATION: "mean", "chosen": "any"})
    return both[both.groupby(model)["learning_rate"].transform("size") >= FEW]


def draw_rates(study: Study) -> Picture:
    """Loss over the best rate of each model: (a) dense ones; (b) where routed ones were tried, with the dense one."""
    found = rates(study)
    if found.empty:
        raise InputError(NOTHING)
    routed = found[found["router"] != "dense"]
    beside = found[(found["router"] == "dense") & found["size"].isin(routed["size"])]
    parts = [found[found["router"] == "dense"], pd.concat([beside, routed])][: 1 if routed.empty else 2]
    picture, axes = style.panels(len(parts), width=4.2, height=3.2)
    for panel, part, letter in zip(axes, parts, "ab", strict=False):
        by_size = part.assign(N=part["size"].map(study.active_params)).sort_values(["N", "learning_rate"])
        lines = by_size.groupby(["router", "size", "experts"], sort=False)
        for ((router, size, experts), own), line in zip(lines, LINES * 3, strict=False):
            _draw_rate(panel, router, size, experts, own, line)
        panel.set_xscale("log")
        panel.set_ylim(-0.05 * SHOWN, SHOWN)
        panel.set_xlabel("learning rate (filled: chosen for the size)")
        panel.set_ylabel("loss over the best rate (nats)")
        panel.legend(**BESIDE)
        style.panel_letter(panel, letter)
    return picture


def _draw_rate(axes: Axes, router: str, size: str, experts: int, own: pd.DataFrame, line: str) -> None:
    colour, over = style.router_colour(router), own[VALIDATION] - own[VALIDATION].min()
    name = f"{style.router_label(router)} {size}" + (f", E = {experts}" if experts > 1 else "")
    axes.plot(own["learning_rate"], over, color=colour, linestyle=line, marker="o", markerfacecolor="white", label=name)
    axes.plot(own["learning_rate"][own["chosen"]], over[own["chosen"]], "o", color=colour)


def rl_weights(study: Study) -> pd.DataFrame:
    """RL-R by its weights, with `decided`: how far its policies are from uniform, 0 to 1."""
    rows = study.usual_shape[study.usual_shape["router"] == "rl-r"]
    rows = rows[rows["variant"].map(lambda v: set(parts_of(v)) <= CHOSEN_OPTIONS)]
    spread = rows["run_id"].map(study.spreads["router_entropy"]) if "router_entropy" in study.spreads else np.nan
    return rows.assign(decided=1 - spread / rows["experts"].map(log)).dropna(subset=["decided"])


def draw_rl_weights(study: Study) -> Picture:
    """Loss by how decided the policies are at the end of training; a panel for each size and E with several weights."""
    rows = rl_weights(study)
    places = [(p, own) for p, own in rows.groupby(["size", "experts"]) if own["variant"].nunique() >= FEW]
    if not places:
        raise InputError(NOTHING)
    weights = sorted(rows["entropy"].unique())
    shades = dict(zip(weights, style.shades(len(weights)), strict=True))
    picture, axes = style.panels(len(places), width=3.9, height=3.3)
    for panel, ((size, experts), own) in zip(axes, places, strict=True):
        for weight, part in own.groupby("entropy"):
            panel.plot(part["decided"], part[VALIDATION], "o", color=shades[weight], label=f"entropy weight {weight:g}")
        usual = own[own["variant"] == ""]
        panel.plot(usual["decided"], usual[VALIDATION], "o", markersize=11, markerfacecolor="none", color="black",
                   linestyle="none", label="chosen")  # fmt: skip
        for router, e, line in (("dense", 1, "--"), ("s-base", experts, ":")):
            known = study.losses(router)
            if (size, e) in known.index:
                panel.axhline(10 ** known[size, e], color=style.router_colour(router), linestyle=line, linewidth=1,
                              label=style.router_label(router))  # fmt: skip
        panel.set_xlabel("policies: 0 uniform, 1 decided")
        panel.set_ylabel("validation loss (nats per token)")
        panel.set_title(f"RL-R {size}, E = {experts}")
    axes[-1].legend(**BESIDE)
    return picture


def temperatures(study: Study) -> pd.DataFrame:
    """S-BASE by the temperature of its rebalancing, 1 where none is named."""
    rows = study.usual_shape[study.usual_shape["router"] == "s-base"]
    rows = rows[rows["variant"].str.match(r"^(temperature=[^,]+)?$")]
    known = rows["variant"].map(lambda v: float(parts_of(v).get("temperature", 1.0)))
    dropped = rows["run_id"].map(study.spreads["dropped"]).astype(float)
    return rows.assign(temperature=known, dropped=dropped)


def draw_temperature(study: Study) -> Picture:
    """(a) gain over the dense model, HASH's beside it, and (b) share of assignments beyond the capacity, by E; a line
    for each size and temperature."""
    rows, dense = temperatures(study), study.losses("dense").droplevel("experts")
    rows = rows[rows["size"].isin(dense.index)]
    if rows["temperature"].nunique() < 2:
        raise InputError(NOTHING)
    sizes = [s for s in study.active_params if s in set(rows[rows["temperature"] != 1]["size"])]
    shades = dict(zip(sorted(rows["temperature"].unique()), style.shades(rows["temperature"].nunique()), strict=True))
    picture, axes = style.panels(2, width=4.2, height=3.3)
    for size, line in zip(sizes, LINES, strict=False):
        for temperature, own in rows[rows["size"] == size].groupby("temperature"):
            by_e = own.groupby("experts")[[f"log_{VALIDATION}", "dropped"]].mean()
            name = f"{size}, temperature {temperature:g}"
            drawn = {"color": shades[temperature], "linestyle": line, "marker": "o", "label": name}
            axes[0].plot(by_e.index, PERCENT * (dense[size] - by_e[f"log_{VALIDATION}"]), **drawn)
            axes[1].plot(by_e.index, 100 * by_e["dropped"], **drawn)
        beside = study.losses(RIVAL)
        if size in beside.index:
            drawn = style.router_look(RIVAL, linestyle=line, label=f"{size}, {style.router_label(RIVAL)}")
            axes[0].plot(beside[size].index, PERCENT * (dense[size] - beside[size]), **drawn)
    _finish(axes, rows, "gain over the dense model (%)", "dropped (% of assignments)")
    axes[-1].legend(handles=axes[0].get_legend_handles_labels()[0], **BESIDE)
    return picture


def draw_drops(study: Study) -> Picture:
    """(a) assignments dropped and (b) beyond an even load, by E, for every router and size of the main sweep."""
    rows = study.usual_shape[(study.usual_shape["variant"] == "") & (study.usual_shape["router"] != "dense")]
    rows = rows[rows["size"].isin(study.swept.frame["size"])]
    rows = rows.join(study.spreads.reindex(columns=["dropped", "oversubscribed"]), on="run_id").dropna(
        subset=["dropped", "oversubscribed"]
    )
    if rows["experts"].nunique() < FEW:
        raise InputError(NOTHING)
    sizes = [size for size in study.active_params if size in set(rows["size"])]
    picture, axes = style.panels(2, width=4.2, height=3.3)
    for router in [r for r in routed_techniques(study.table) if r in set(rows["router"])]:
        for size, strength in zip(sizes, np.linspace(0.35, 1.0, len(sizes)), strict=True):
            own = rows[(rows["router"] == router) & (rows["size"] == size)].groupby("experts")
            label = style.router_label(router) if size == sizes[-1] else None
            drawn = style.router_look(router, alpha=strength, label=label)
            for panel, column in zip(axes, ("dropped", "oversubscribed"), strict=True):
                share = 100 * own[column].mean()
                panel.plot(share.index, share, **drawn)
    _finish(axes, rows, "dropped (% of assignments)", "beyond an even load (%)")
    axes[-1].legend(**BESIDE)
    return picture


def _finish(axes: np.ndarray, rows: pd.DataFrame, *labels: str) -> None:
    """Panels of something by E."""
    for panel, label in zip(axes, labels, strict=True):
        style.experts_axis(panel, tuple(sorted(rows["experts"].unique())))
        panel.set_ylabel(label)
    style.letter_panels(axes)


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
        style.letter_panels(axes)
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
