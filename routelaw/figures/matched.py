"""What the figures of studies share: runs beside the usual ones of equal size and E, and the noise of seeds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Picture

from routelaw.figures import style
from routelaw.figures.figure import CannotDraw
from routelaw.fitting.matched_runs import VALIDATION, MatchedRuns, one_recipe
from routelaw.fitting.points import one_corpus
from routelaw.runs.table import LOSS_PREFIX, RunTable
from routelaw.runs.variants import DEFAULT, parts_of, relative_to_usual
from routelaw.specs.names import DENSE

LINES = ("-", "--", ":", "-.")
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
"""A legend of many lines, where it hides none of them."""
LOG_LOSS = f"log_{VALIDATION}"
OWN_VARIANT = "own_variant"
"""The variant as the table has it, beside that relative to the usual one."""
WEIGHT = "_weight"
"""How the names of settings end that weight a part of the loss."""
PAPER_CUTOFF = 0.02
"""Nats: what the paper took for a difference that means something (appendix A)."""


def matched_runs(table: RunTable) -> MatchedRuns:
    """The runs with variants relative to the usual ones. In a table without a validation loss its first one stands
    there."""
    relative = relative_to_usual(table)
    frame = relative.frame.assign(**{OWN_VARIANT: table.frame["variant"]})
    frame = one_recipe(one_corpus(frame, []), [])
    if VALIDATION not in frame:
        frame = frame.assign(**{VALIDATION: frame[table.losses[0]]})
    runs = MatchedRuns(replace(relative, frame=frame))
    if runs.finals.empty:
        raise CannotDraw("No run of the table has finished.")
    return runs


def loss_label(table: RunTable) -> str:
    return f"{table.losses[0].removeprefix(LOSS_PREFIX)} loss (nats per token)"


def percent(log_ratio: Any) -> Any:
    """log10 of a ratio of losses as percent above one."""
    return 100 * (10**log_ratio - 1)


def words_of(variant: str) -> str:
    """A variant in words: `entropy_weight=0.1,variant=G` as "G, entropy weight 0.1". Settings at the technique's
    default are left out: another variant of a technique often has no such setting at all."""
    parts = parts_of(variant)
    words = [parts["variant"]] if parts.get("variant", DEFAULT) != DEFAULT else []
    words += [
        f"{key.replace('_', ' ')} {value}".strip()
        for key, value in parts.items()
        if key != "variant" and value != DEFAULT
    ]
    return ", ".join(words) or "at the defaults"


def in_order(runs: MatchedRuns, sizes: Iterable[object]) -> list[str]:
    """Sizes, smallest first."""
    wanted = set(map(str, sizes))
    return [size for size in runs.active_params if size in wanted]


def noise_band(axes: Axes, runs: MatchedRuns, size: str, half: float, centre: float = 0.0) -> None:
    """Grey, `half` up and down: nothing where no model was trained with several seeds."""
    if runs.noise(size) is not None:
        axes.axhspan(centre - half, centre + half, color="#eeeeee", zorder=0, label=noise_name(runs, size))


def noise_name(runs: MatchedRuns, size: str) -> str:
    """For a legend: whose seeds they are, too, where a size has none of its own."""
    seeds = runs.seeds_for(size)
    return f"noise of seeds (± one sd{'' if seeds == size else f'; seeds of {seeds}'})"


def noise_sd(runs: MatchedRuns, size: str, compared: int = 1) -> float:
    """Standard deviation of log10 L of a run, or of the difference of two; zero where there are no seeds."""
    noise = runs.noise(size)
    return float(np.sqrt(compared)) * noise.sd if noise else 0.0


def dense_loss(runs: MatchedRuns, size: str) -> float | None:
    """The loss of the usual dense model of a size, in nats; None where there is none."""
    rows = runs.one_length
    own = rows[(rows["router"] == DENSE) & (rows["size"] == size) & (rows["variant"] == "")]
    return float(10 ** own[LOG_LOSS].mean()) if len(own) else None


def experts_axis(axes: Axes, experts: Iterable[float]) -> None:
    """E with the values that are there named; a dense model's 1 stands apart."""
    style.experts_axis(axes, tuple(sorted({int(e) for e in experts})))


def legend_panels(
    columns: int, rows: int = 1, *, width: float, height: float, legend: float = 2.0, **options: Any
) -> tuple[Picture, np.ndarray]:
    """Panels with room for a legend beside the last of each row; `legend` is its width in inches."""
    picture, axes = style.panels(columns, rows, width=width, height=height, **options)
    picture.set_figwidth(picture.get_figwidth() + legend)
    return picture, axes


def legend_once(axes: Axes, *others: Axes) -> None:
    """Everything that is named in these panels, once, beside the first."""
    named: dict[str, Any] = {}
    for panel in (axes, *others):
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    axes.legend(named.values(), named.keys(), **BESIDE)
