"""HASH: the expert is a fixed function of the token id (Roller et al. 2021; Clark et al. 2022, appendix B.4).

No parameters, no weights, no losses. Schemes: `modulo` (the paper's: token id mod E, even because tokenizers number
tokens roughly by frequency), `random`, and `greedy` (the most frequent token first, each to the emptiest expert), which
must be told the corpus's token counts once; its table is a buffer, so a trained model carries it. `permuted` gives
every layer its own permutation of token ids, so that tokens which share an expert in one layer part in the next.

K > 1: the first expert is as above, further ones are the next hashes among the experts not yet taken, counted from the
first one on; so they are distinct and as even as the first.

Shapes: T tokens, V vocabulary, E experts, K choices.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import torch
from torch import Tensor

from routelaw.errors import InputError
from routelaw.routers.router import RouteContext, Router, Routing, mix, one_of, register, token_major
from routelaw.specs.run import RouterSpec

SCHEMES = ("modulo", "random", "greedy")
PERMUTE_SALT, RANDOM_SALT = 1 << 40, 1 << 41
"""Fixed: a hash means the same in every run, whatever its seed."""


def numbered_experts(digits_VK: Tensor, experts: int) -> Tensor:
    """table_VK of distinct experts from digits with 0 ≤ digit k < E − k, each counting the experts still free."""
    distances = torch.zeros_like(digits_VK[:, :1])
    for k in range(1, digits_VK.shape[1]):
        distance_V = digits_VK[:, k].clone()
        for taken_V in distances.sort(1).values.unbind(1):
            distance_V += distance_V >= taken_V
        distances = torch.cat([distances, distance_V[:, None]], 1)
    return torch.remainder(digits_VK[:, :1] + distances, experts)


def modulo_table(ids_V: Tensor, experts: int, k: int) -> Tensor:
    """The digits of the id in the mixed base E, E−1, E−2, …"""
    digits = []
    for taken in range(k):
        digits.append(torch.remainder(ids_V, experts - taken))
        ids_V = torch.div(ids_V, experts - taken, rounding_mode="floor")
    return numbered_experts(torch.stack(digits, 1), experts)


def random_table(ids_V: Tensor, experts: int, k: int) -> Tensor:
    digits = [torch.remainder(mix(mix(ids_V + RANDOM_SALT) ^ i), experts - i) for i in range(k)]
    return numbered_experts(torch.stack(digits, 1), experts)


def greedy_table(counts_V: Tensor, experts: int, k: int) -> Tensor:
    """Tokens in falling frequency, each to the k experts that hold least; one that never occurred counts as once."""
    table = [[0] * k] * len(counts_V)
    load = [(0, expert) for expert in range(experts)]
    counts = counts_V.clamp(min=1).tolist()
    for token in torch.argsort(counts_V, descending=True, stable=True).tolist():
        lightest = [heapq.heappop(load) for _ in range(k)]
        table[token] = [expert for _, expert in lightest]
        for weight, expert in lightest:
            heapq.heappush(load, (weight + counts[token], expert))
    return torch.tensor(table)


@register("hash")
class Hash(Router):
    source = "Roller et al. 2021 (arXiv 2106.04426); Clark et al. 2022 (arXiv 2202.01169), appendix B.4"
    sync_free = True
    uses_groups = False
    table_VK: Tensor

    @dataclass(frozen=True)
    class Options(Router.Options):
        scheme: str = "modulo"
        """Which expert a token has. modulo: its id mod E; random: a hash of it; greedy: the most frequent token first,
        each to the emptiest expert."""
        permuted: bool = False
        """Every layer has its own permutation of token ids before the hash."""

    def __init__(self, width: int, vocabulary: int, layer: int, spec: RouterSpec) -> None:
        super().__init__(width, vocabulary, layer, spec)
        one_of(self.options.scheme, SCHEMES, "option scheme of router hash")
        if self.options.scheme == "greedy" and self.options.permuted:
            raise InputError("router hash: permuted token ids would undo the balance of scheme greedy; choose one.")
        ids_V = torch.arange(vocabulary)
        if self.options.permuted:
            ids_V = torch.argsort(mix(mix(ids_V) ^ (PERMUTE_SALT + layer)))
        table_of = {"modulo": modulo_table, "random": random_table}.get(self.options.scheme)
        unknown_VK = torch.full((vocabulary, self.k), -1, dtype=torch.int64)
        self.register_buffer("table_VK", unknown_VK if table_of is None else table_of(ids_V, self.experts, self.k))
        self._checked = table_of is not None

    def set_token_counts(self, counts_V: Tensor) -> None:
        """How often each token occurs in the training corpus; only scheme greedy has a use for it."""
        if self.options.scheme != "greedy":
            return
        if counts_V.shape != (self.vocabulary,):
            raise InputError(
                f"router hash: {tuple(counts_V.shape)} token counts do not fit a vocabulary of {self.vocabulary}."
            )
        self.table_VK.copy_(greedy_table(counts_V.cpu().to(torch.int64), self.experts, self.k))
        self._checked = True

    def route(self, x_TD: Tensor, token_ids_T: Tensor, ctx: RouteContext) -> Routing:
        if not self._checked:  # once, since asking waits for the device; a loaded checkpoint has brought the table
            if bool((self.table_VK < 0).any()):
                raise InputError("router hash: scheme greedy needs the corpus's token counts (set_token_counts) first.")
            self._checked = True
        expert_TK = self.table_VK[token_ids_T]
        return Routing(
            token_N=token_major(len(expert_TK), expert_TK.shape[1], expert_TK.device),
            expert_N=expert_TK.flatten(),
            weight_N=None,
            metrics={"entropy": torch.zeros((), device=x_TD.device)},  # a fixed table has no doubt
        )
