"""Recommendation 6: are the routers compared at several N and E, and which runs would decide most?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from routelaw.fitting.advice.result import AdviceTable, Recommendation, listed, shown
from routelaw.fitting.advice.runs import AdviceRuns
from routelaw.fitting.claims import HOLDS, OPEN, Claim, Effect, Outcome, graded
from routelaw.fitting.matched_runs import PERCENT, slope_effect
from routelaw.fitting.pairwise import stands_out
from routelaw.specs.names import DENSE

TITLE = "Compare at several N and E"
PAPER = (
    "New routing techniques must be validated at multiple values of N and E when comparing with prior work. Results "
    "on single sizes cannot be extrapolated."
)
SEVERAL = 3
"""Sizes, and expert counts: fewer do not tell a law from chance."""
MOST_RUNS = 8
"""Runs listed in the text."""


@dataclass(frozen=True)
class RunLacking:
    """One more run, and how many comparisons that are open now it takes part in."""

    router: str
    size: str
    experts: int
    trained: int
    """Seeds that are there."""
    open: int
    active_params: float


def runs_lacking(runs: AdviceRuns) -> Recommendation:
    claims = [
        Claim("grid", "Every router was trained at the same sizes and E, several of each", covered, PAPER,
              quantity="share of the grid that was trained"),
        Claim("one size", "A single size would mislead: the lead of one router over another changes with size",
              lead_changes, PAPER, quantity="change of the lead for ten times the size, % of the loss"),
    ]  # fmt: skip
    wanted = list(most_deciding(runs))
    shown = wanted[:MOST_RUNS]
    rows = [
        [w.router, w.size, f"{w.experts}", "missing" if not w.trained else f"seed {w.trained + 1}", str(w.open)]
        for w in shown
    ]
    title = f"Runs that would decide most, of {len(wanted)} ({_comparisons(runs)})"
    tables = [AdviceTable(title, ["router", "size", "E", "run", "open comparisons"], rows)] if rows else []
    return Recommendation(
        6,
        TITLE,
        PAPER,
        tuple(claim(runs) for claim in claims),
        tuple(tables),
        tuple(_remarks(runs)),
        {"missing": [{"router": r, "size": s, "experts": e} for r, s, e in missing(runs)],
         "runs_wanted": [asdict(w) for w in wanted]},
    )  # fmt: skip


def _comparisons(runs: AdviceRuns) -> str:
    return "comparisons with another router at that size and E, or with dense, that are missing or within the noise"


def grid_sizes(runs: AdviceRuns) -> list[str]:
    """The sizes that a grid is made of: where others have several E, a size with one is another study."""
    counts = runs.usual_routed.groupby("size")["experts"].nunique()
    several = [size for size in runs.sizes if counts[size] > 1]
    return several or list(runs.sizes)


def missing(runs: AdviceRuns) -> list[tuple[str, str, int]]:
    """Cells of the grid of sizes × E × routers that no run fills; a dense model of each size is one, too."""
    there = set(zip(runs.usual_routed["router"], runs.usual_routed["size"], runs.usual_routed["experts"], strict=True))
    sizes = grid_sizes(runs)
    dense = [(DENSE, size, 1) for size in sizes if size not in runs.dense.index]
    grid = [(router, size, e) for router in runs.ordered for size in sizes for e in runs.experts]
    return [*dense, *(cell for cell in grid if cell not in there)]


def covered(runs: AdviceRuns) -> Outcome:
    """The share of the grid of all sizes × E × routers that was trained. Holds if there are at least two routers, three
    sizes and three E, and all of the grid was trained; in part if most of it was."""
    routers, sizes, experts = len(runs.ordered), len(grid_sizes(runs)), len(runs.experts)
    if not routers:
        return "There is no finished routed run."
    counts = f"{routers} router{'s' * (routers > 1)}, {sizes} size{'s' * (sizes > 1)}, {experts} E"
    needed = {"two routers": routers < 2, "three sizes": sizes < SEVERAL, "three expert counts": experts < SEVERAL}
    few = [what for what, lacks in needed.items() if lacks]
    lacking = [cell for cell in missing(runs) if cell[0] != DENSE]
    total = routers * sizes * experts
    share = 1 - len(lacking) / total
    if few:
        return f"There are {counts}; a comparison needs {listed(few)}."
    cells = listed((f"{router} {size} E = {e}" for router, size, e in lacking), 4)
    why = f"{counts}: {total - len(lacking)} of {total} models." + (f" Missing: {cells}." if lacking else "")
    return Effect(share), graded(share, holds=1.0, partly=0.5), why


def lead_changes(runs: AdviceRuns) -> Outcome:
    """The lead of one router over another, mean over the E that both have at every size, as a straight line in log N.
    Holds if the interval of a slope leaves out zero, with an interval that allows for the number of pairs."""
    pairs = list(combinations(runs.ordered, 2))
    if not pairs:
        return "There is one router only." if runs.ordered else "There is no finished routed run."
    level = 1 - (1 - runs.level) / len(pairs)
    slopes = {pair: effect for pair in pairs if (effect := _slope(runs, *pair, level)) is not None}
    known = {pair: e for pair, e in slopes.items() if np.isfinite(e.low)}
    if not known:
        return "No two routers share three sizes (four without seeds) at the same E."
    first, second = max(known, key=lambda pair: abs(known[pair].value) / (known[pair].high - known[pair].value))
    effect = known[first, second].scaled(PERCENT)
    apart = [f"{p} over {q}" for (p, q), e in known.items() if e.low > 0 or e.high < 0]
    effect = effect if effect.value > 0 else effect.scaled(-1)
    why = f"Most surely {first} against {second}: by {shown(effect)} of the loss for ten times the size."
    others = [pair for pair in apart if pair != f"{first} over {second}"]
    why += f" Also {listed(others)}." if others else ""
    return effect, HOLDS if apart else OPEN, why


def _slope(runs: AdviceRuns, first: str, second: str, level: float) -> Effect | None:
    losses = runs.usual_routed.pivot_table(index="size", columns=["router", "experts"], values="log_loss")
    gaps = pd.DataFrame(losses[second] - losses[first]).dropna(how="all").dropna(axis="columns")
    sizes = [size for size in runs.sizes if size in gaps.index]
    if len(sizes) < SEVERAL or gaps.empty:
        return None
    x, y = np.log10([runs.sizes[size] for size in sizes]), gaps.loc[sizes].mean(axis="columns").to_numpy()
    return slope_effect(x, y, sizes, float(np.sqrt(2 / gaps.shape[1])), runs.matched.noise, level)


def most_deciding(runs: AdviceRuns) -> Iterator[RunLacking]:
    """Runs to add, by how many comparisons that are open they take part in; of equals the smaller model first."""
    cells = {(r, s, int(e)): (y, int(n)) for r, s, e, y, n in _cells(runs)}
    sizes = grid_sizes(runs)
    places = [(DENSE, size, 1) for size in sizes]
    places += [(router, size, e) for router in runs.ordered for size in sizes for e in runs.experts]
    wanted = [
        RunLacking(*place, cells[place][1] if place in cells else 0, _open(runs, cells, place), runs.sizes[place[1]])
        for place in places
    ]
    order = sorted(wanted, key=lambda w: (-w.open, w.active_params, w.experts, w.router))
    return (w for w in order if w.open)


def _cells(runs: AdviceRuns) -> Iterator[tuple[str, str, int, float, int]]:
    rows = pd.concat([runs.usual_routed, runs.dense.reset_index()])
    yield from zip(*(rows[c] for c in ("router", "size", "experts", "log_loss", "seeds")), strict=True)


def _open(runs: AdviceRuns, cells: dict[tuple[str, str, int], tuple[float, int]], place: tuple[str, str, int]) -> int:
    """Comparisons of this model with others of its size that there are, and that it would take part in undecided."""
    router, size, experts = place
    if router == DENSE:
        others = [cell for cell in cells if cell[0] != DENSE and cell[1] == size]
    else:
        others = [(other, size, experts) for other in runs.ordered if other != router] + [(DENSE, size, 1)]
    there = [other for other in others if other in cells]
    return sum(not _decided(runs, cells, place, other) for other in there)


def _decided(runs: AdviceRuns, cells: dict[Any, tuple[float, int]], one: Any, other: Any) -> bool:
    if one not in cells or other not in cells:
        return False
    noise = runs.noise(one[1])
    if noise is None:
        return False
    (first, seeds), (second, other_seeds) = cells[one], cells[other]
    return stands_out(abs(first - second), seeds, other_seeds, noise, runs.level)


def _remarks(runs: AdviceRuns) -> list[str]:
    sentences = []
    if runs.routed.empty:
        return sentences
    if not runs.matched.seeded_sizes:
        smallest = next(iter(runs.sizes))
        sentences.append(
            f"No model was trained with two seeds: a second seed of a few models (of {smallest}, say) would say how "
            "much is chance."
        )
    else:
        bare = [size for size in runs.sizes if size not in runs.matched.seeded_sizes]
        if bare:
            sentences.append(
                f"No seeds at {listed(bare)}: those of the next smaller size, or the smallest with any, stand in."
            )
    if others := [size for size in runs.sizes if size not in grid_sizes(runs)]:
        sentences.append(f"Not counted, because trained at one E only: {listed(others)}.")
    without = [size for size in runs.sizes if size not in runs.dense.index]
    if without:
        sentences.append(f"No dense run at {listed(without)}.")
    return sentences
