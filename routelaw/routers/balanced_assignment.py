"""Exact balanced assignment: every token gets K distinct experts, every expert exactly T·K/E tokens, at the highest
total score.

Lewis et al. (2021) use an auction, which ends within T·ε of the optimum after a number of rounds that grows as ε
shrinks. With few experts and many tokens there is a direct way. For any prices g the K highest of L + g are the best
assignment among all with the same loads (linear programming duality). So: find prices that nearly balance, take the K
highest, and carry each surplus unit to an expert with room along the shortest path of the graph whose nodes are the E
experts and whose edge j → k costs what the cheapest token loses by moving. Every augmentation along a shortest path
keeps the assignment the best for its loads; when the last one is done it is the best of all. The potentials of the
paths are the prices.

Plain NumPy on the host: the work is sequential and small.

Shapes: T tokens, E experts, K choices.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from routelaw.routers.gating import choose

Array = NDArray[np.float64]
SLACK = 1e-12
"""Tokens whose costs of moving differ by less than this share of the largest score count as tied and move together.
The total is within T·K·SLACK·max|score| of the optimum, and of what rounding leaves."""
SAMPLE = 4096
"""The first price sweeps look at about so many tokens."""
SAMPLE_SWEEPS, SWEEPS = 12, 3
DAMPING = 0.9
COARSE_SHARE, COARSE_SLACK = 1 / 64, 1e-2
"""Where the prices leave more than this share misplaced (scores with many ties), a first repair moves tokens in bulk,
within this share of the scores' deviation, only for the better prices that come of it."""


@dataclass(frozen=True)
class Assignment:
    holds_TE: NDArray[np.bool_]
    prices_E: Array
    moved: int
    """Units carried along paths after the prices had done what they could."""


def balanced_assignment(scores_TE: Array, k: int, order_TE: Tensor) -> Assignment:
    """The best balanced assignment. E must divide T·K; among equal scores `order_TE` (lowest first) decides."""
    tokens, experts = scores_TE.shape
    room, left_over = divmod(tokens * k, experts)
    assert left_over == 0
    if experts == k:
        return Assignment(np.ones((tokens, experts), dtype=bool), np.zeros(experts), 0)
    prices_E = np.zeros(experts)
    stride = max(tokens // max(SAMPLE, 8 * experts), 1)
    if stride > 1:
        sample_TE = scores_TE[::stride]
        for _ in range(SAMPLE_SWEEPS):
            prices_E -= DAMPING * _overpricing(sample_TE + prices_E, k, len(sample_TE) * k / experts)
    for _ in range(SWEEPS if stride > 1 else SAMPLE_SWEEPS):
        prices_E -= DAMPING * _overpricing(scores_TE + prices_E, k, room)
    prices_E -= prices_E.mean()
    exact = SLACK * (1 + float(np.abs(scores_TE).max()))
    repair = _Repair(scores_TE, prices_E, k, room, order_TE)
    if repair.surplus > COARSE_SHARE * tokens * k:
        prices_E = repair.run(COARSE_SLACK * float(scores_TE.std()) + exact).prices_E
        repair = _Repair(scores_TE, prices_E, k, room, order_TE)
    return repair.run(exact)


def _overpricing(values_TE: Array, k: int, room: float) -> Array:
    """How much each expert's price must fall, the others' standing still, for `room` tokens to have it among their k.

    A token wants the expert while its value exceeds the k-th best of the others. One step of coordinate descent on the
    dual, all coordinates at once, hence the damping.
    """
    tokens, experts = values_TE.shape
    highest = np.partition(values_TE, experts - k - 1, axis=1)[:, experts - k - 1 :]
    next_T1, kth_T1 = highest[:, :1], highest[:, 1:].min(1, keepdims=True)
    margin_TE = values_TE - np.where(values_TE >= kth_T1, next_T1, kth_T1)
    rank = min(max(tokens - round(room), 1), tokens - 1)
    lowest_ET = np.partition(np.ascontiguousarray(margin_TE.T), (rank - 1, rank), axis=1)
    return (lowest_ET[:, rank - 1] + lowest_ET[:, rank]) / 2


class _Repair:
    """Carries surplus units to experts with room, each along a shortest path."""

    def __init__(self, scores_TE: Array, prices_E: Array, k: int, room: int, order_TE: Tensor) -> None:
        experts = scores_TE.shape[1]
        self.scores_TE, self.prices_E, self.k = scores_TE, prices_E, k
        self.holds_TE = np.zeros(scores_TE.shape, dtype=bool)
        highest_TK = choose(torch.from_numpy(scores_TE + prices_E), k, order_TE).numpy()
        np.put_along_axis(self.holds_TE, highest_TK, True, axis=1)
        self.holds_ET = np.ascontiguousarray(self.holds_TE.T)
        self.surplus_E = self.holds_TE.sum(0) - room
        self.cost_EE = np.full((experts, experts), np.inf)
        for expert in range(experts):
            self._price_moves(expert)

    @property
    def surplus(self) -> int:
        return int(np.maximum(self.surplus_E, 0).sum())

    def run(self, slack: float) -> Assignment:
        """Tokens whose losses differ by no more than `slack` move together."""
        moved = 0
        while (self.surplus_E > 0).any():
            moved += self._carry(self._shortest_path(), slack)
        return Assignment(self.holds_TE, self.prices_E, moved)

    def _price_moves(self, expert: int) -> None:
        """What the cheapest of an expert's tokens loses by moving to each other expert it does not hold already."""
        members = np.flatnonzero(self.holds_ET[expert])
        values = self.scores_TE[members]
        loss = values[:, expert, None] - values
        loss[self.holds_TE[members]] = np.inf
        self.cost_EE[expert] = loss.min(0, initial=np.inf)

    def _shortest_path(self) -> list[int]:
        """From any expert with a surplus to the nearest with room (Bellman–Ford on costs that prices keep ≥ 0)."""
        reduced_EE = np.maximum(self.cost_EE + (self.prices_E[:, None] - self.prices_E), 0.0)
        distance_E = np.where(self.surplus_E > 0, 0.0, np.inf)
        before_E = np.full(len(distance_E), -1)
        news = np.flatnonzero(self.surplus_E > 0)
        while len(news):
            through_NE = distance_E[news, None] + reduced_EE[news]
            row_E = through_NE.argmin(0)
            nearer_E = through_NE[row_E, np.arange(len(row_E))]
            better_E = nearer_E < distance_E
            before_E[better_E] = news[row_E[better_E]]
            distance_E[better_E] = nearer_E[better_E]
            news = np.flatnonzero(better_E)
        end = int(np.where(self.surplus_E < 0, distance_E, np.inf).argmin())
        self.prices_E = self.prices_E + np.minimum(distance_E, distance_E[end])
        path = [end]
        while before_E[path[-1]] >= 0:
            path.append(int(before_E[path[-1]]))
        return path[::-1]

    def _carry(self, path: list[int], slack: float) -> int:
        """Move a unit, or as many as are tied, along every edge of the path.

        A token with several experts may move on two edges at once: it held neither end, and the ends differ.
        """
        edges = list(pairwise(path))
        tied = [self._tied(j, k, slack) for j, k in edges]
        units = min(self.surplus_E[path[0]], -self.surplus_E[path[-1]], *(len(tokens) for tokens in tied))
        changed = set(path)
        for (j, k), tokens in zip(edges, tied, strict=True):
            movers = tokens[:units]
            self.holds_TE[movers, j] = self.holds_ET[j, movers] = False
            self.holds_TE[movers, k] = self.holds_ET[k, movers] = True
            if self.k > 1:
                changed |= set(np.flatnonzero(self.holds_TE[movers].any(0)).tolist())
        self.surplus_E[path[0]] -= units
        self.surplus_E[path[-1]] += units
        for expert in changed:
            self._price_moves(expert)
        return int(units)

    def _tied(self, j: int, k: int, slack: float) -> NDArray[np.int64]:
        """Tokens of expert j, not of k, that lose least by moving to k."""
        members = np.flatnonzero(self.holds_ET[j] & ~self.holds_ET[k])
        loss = self.scores_TE[members, j] - self.scores_TE[members, k]
        return members[loss <= loss.min() + slack]
