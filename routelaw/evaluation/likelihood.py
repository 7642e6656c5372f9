"""How well a model predicts a text: nats per token, bits per byte, perplexity, and how its experts were used.

Evaluation is greedy, never drops and is causal: a token's loss depends on what stands before it and on nothing else.
Sums are float64 whatever the model computes in.

Shapes: B batch, S sequence, T tokens.

How a corpus uses the experts is counted on the way: the share of its tokens that each expert took, block by block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from routelaw.distributed.groups import SINGLE, Group
from routelaw.evaluation.texts import Masked
from routelaw.model.transformer import Output, RoutedLayer, StepContext, Transformer


@dataclass(frozen=True)
class Likelihood:
    nats: float
    """Total −log p of the tokens that count."""
    tokens: int
    load: dict[int, list[float]]
    """Share of the tokens each expert took, by block."""

    @property
    def nats_per_token(self) -> float:
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """e to the nats per token; infinite where that is beyond floating point."""
        return math.exp(self.nats_per_token) if self.nats_per_token < 709 else math.inf

    def bits_per_byte(self, text_bytes: int) -> float:
        """Comparable between tokenizers. The nats of the ends of documents count, though they stand for no byte."""
        return self.nats / text_bytes / math.log(2)


def evaluation_context(model: Transformer, ids_BS: Tensor) -> StepContext:
    T = ids_BS.numel()
    index_T = torch.arange(T, device=ids_BS.device)
    return StepContext(
        seed=model.spec.train.seed,
        step=0,
        # Numbered within their own sequence: what is decided for a token must not depend on what shares its batch.
        token_T=index_T % ids_BS.shape[1],
        members_GM=index_T[None],
        valid_T=torch.ones(T, dtype=torch.bool, device=ids_BS.device),
        training=False,
    )


@torch.no_grad()
def forward(model: Transformer, ids_BS: Tensor) -> Output:
    model.eval()
    return model(ids_BS, evaluation_context(model, ids_BS))


@torch.no_grad()
def token_losses(model: Transformer, tokens_BS: Tensor) -> tuple[Tensor, Output]:
    """−log p of each successor, (B, S), from rows with one token more."""
    ids_BS, target_BS = tokens_BS[:, :-1], tokens_BS[:, 1:]
    output = forward(model, ids_BS)
    return model.token_nll(output.hidden_TD, target_BS.flatten()).view_as(target_BS), output


def likelihood(model: Transformer, batches: Iterable[np.ndarray], device: torch.device | str) -> Likelihood:
    """Over batches (B, S+1) in which every successor counts."""
    return masked_likelihood(model, ((b, np.ones((b.shape[0], b.shape[1] - 1), bool)) for b in batches), device)


def masked_likelihood(model: Transformer, batches: Iterable[Masked], device: torch.device | str) -> Likelihood:
    """Over batches (B, S+1), each with a mask (B, S) of the successors that count."""
    batch = model.parallel.batch
    nats, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
    load = ExpertLoad(model.spec.router.experts, batch)
    for tokens_BS, mask_BS in batches:
        own_BS, wanted = _own_rows(tokens_BS, mask_BS, batch)
        nll_BS, output = token_losses(model, torch.from_numpy(own_BS).to(device))
        wanted_BS = torch.from_numpy(wanted).to(device)
        nats += torch.where(wanted_BS, nll_BS.double(), 0.0).sum()
        tokens += int(mask_BS.sum())
        load.add(output.layers, wanted_BS.flatten())
    return Likelihood(float(batch.all_sum(nats)), tokens, load.shares)


def _own_rows(tokens_BS: np.ndarray, mask_BS: np.ndarray, batch: Group) -> tuple[np.ndarray, np.ndarray]:
    """This process's share of the rows. All processes have equally many, since experts are asked together: where they
    do not come out even, some rows are there twice and count once."""
    if batch.size == 1:
        return tokens_BS, mask_BS
    share = -(-len(tokens_BS) // batch.size)
    row_B = np.arange(batch.rank * share, (batch.rank + 1) * share)
    there_B = row_B < len(tokens_BS)
    row_B = np.where(there_B, row_B, 0)
    return tokens_BS[row_B], mask_BS[row_B] & there_B[:, None]


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
