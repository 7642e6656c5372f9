"""The loop, as prose: take a batch, step, hand the outcome to whoever iterates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from routelaw.corpus.batches import batch
from routelaw.corpus.shards import Corpus
from routelaw.model.transformer import Transformer
from routelaw.specs.run import RunSpec
from routelaw.training.compiling import GraphedStep
from routelaw.training.optimizer import Optimizer
from routelaw.training.step import StepInfo, take_step


def train_steps(
    model: Transformer,
    optimizer: Optimizer,
    corpus: Corpus,
    spec: RunSpec,
    *,
    first: int = 0,
    micro_batches: int = 1,
    device: torch.device | str = "cpu",
    look: Callable[[int], bool] = lambda _: True,
    graphed: bool = False,
) -> Iterator[StepInfo]:
    """Steps from `first` to the end of the spec. Stop iterating to stop training.

    One StepInfo for each step that `look` asks for, by the number of steps taken, and for the last one. In between a
    GPU is not waited for. `graphed`: as CUDA graphs (compiling.py).
    """
    unseen: list[Tensor] = []
    graph = GraphedStep(model, optimizer, spec, micro_batches) if graphed else None
    for step in range(first, spec.train.steps):
        tokens = batch(corpus, "train", spec.train.seed, step, spec.train.batch, spec.model.sequence_length)
        tokens_BS = on_device(tokens, device)
        outcome = graph(tokens_BS, step) if graph else take_step(model, optimizer, tokens_BS, spec, step, micro_batches)
        if look(step + 1) or step + 1 == spec.train.steps:
            yield outcome.read(unseen)
            unseen = []
        else:
            unseen.append(outcome.finite)


def on_device(tokens: np.ndarray, device: torch.device | str) -> Tensor:
    """To a GPU by way of pinned memory, which need not be waited for."""
    tokens_BS = torch.from_numpy(tokens)
    if torch.device(device).type != "cuda":
        return tokens_BS.to(device)
    return tokens_BS.pin_memory().to(device, non_blocking=True)
