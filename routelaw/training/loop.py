"""The loop, as prose: take a batch, step, hand the outcome to whoever iterates."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from routelaw.corpus.batches import batch
from routelaw.corpus.shards import Corpus
from routelaw.model.transformer import Transformer
from routelaw.specs.run import RunSpec
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import StepInfo, train_step


def train_steps(
    model: Transformer,
    optimizer: Optimizer,
    corpus: Corpus,
    spec: RunSpec,
    *,
    first: int = 0,
    micro_batches: int = 1,
    device: torch.device | str = "cpu",
) -> Iterator[StepInfo]:
    """One StepInfo per step from `first` to the end of the spec. Stop iterating to stop training."""
    for step in range(first, spec.train.steps):
        tokens = batch(corpus, "train", spec.train.seed, step, spec.train.batch, spec.model.sequence_length)
        tokens_BS = torch.from_numpy(tokens).to(device)
        yield train_step(model, optimizer, tokens_BS, spec, step, micro_batches)
