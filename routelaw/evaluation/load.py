"""How a corpus uses the experts: the share of its tokens that each expert took, block by block."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from routelaw.distributed.groups import SINGLE, Group
from routelaw.model.transformer import RoutedLayer


class ExpertLoad:
    """Adds up over batches. Counts stay on the device until they are asked for."""

    def __init__(self, experts: int, batch: Group = SINGLE) -> None:
        self.experts, self.batch = experts, batch
        self._taken: dict[int, Tensor] = {}

    def add(self, layers: Sequence[RoutedLayer], wanted_T: Tensor) -> None:
        """Only the tokens wanted count: neither padding nor context that an earlier window has counted."""
        for layer in layers:
            routing = layer.routing
            counts_E = torch.bincount(routing.expert_N[wanted_T[routing.token_N]], minlength=self.experts)
            self._taken[layer.block] = self._taken.get(layer.block, torch.zeros_like(counts_E)) + counts_E

    @property
    def shares(self) -> dict[int, list[float]]:
        """By block, one share per expert; they add up to 1. Over all processes, which must ask together."""
        summed = {block: self.batch.all_sum(counts_E.clone()) for block, counts_E in self._taken.items()}
        return {block: (counts_E.double() / counts_E.sum()).tolist() for block, counts_E in summed.items()}
