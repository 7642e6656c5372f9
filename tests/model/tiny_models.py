"""Models of a few thousand parameters, what a pass over them needs, and their loss written out once more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from routelaw.model.transformer import StepContext, Transformer
from routelaw.routers.router import all_routers
from routelaw.specs.counting import Architecture
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec

SMALL = Architecture(d_model=16, blocks=4, heads=2, kv_size=8)
NAMES = sorted(all_routers())
VOCABULARY, SEQUENCE, BATCH = 50, 8, 4


def spec_of(
    name: str = "dense", experts: int = 1, *, architecture: Architecture = SMALL, positions: str = "xl", **router: Any
) -> RunSpec:
    return RunSpec(
        ModelSpec(architecture, VOCABULARY, SEQUENCE, positions),
        RouterSpec(name, experts, **router),
        TrainSpec(steps=10, batch=BATCH, seed=3),
        corpus="none",
    )


def model_of(spec: RunSpec, dtype: torch.dtype = torch.float64, spread: float = 40.0) -> Transformer:
    """Routers are drawn `spread` times wider than at the start of a run, so that loads are uneven and drops occur."""
    model = Transformer(spec).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".router." in name:
                parameter.mul_(spread)
    return model


def tokens(batch: int = BATCH, length: int = SEQUENCE + 1, vocabulary: int = VOCABULARY, seed: int = 0) -> Tensor:
    """Low numbers are the frequent ones, as in text."""
    uniform = torch.rand(batch, length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (uniform**2 * vocabulary).long()


def training_context(spec: RunSpec, ids_BS: Tensor, first_sequence: int = 0, step: int = 5) -> StepContext:
    index_T = torch.arange(ids_BS.numel())
    token_T = index_T + first_sequence * ids_BS.shape[1]
    whole = spec.routed_blocks and ids_BS.numel() % spec.group_tokens == 0
    members_GM = index_T.view(-1, spec.group_tokens) if whole else index_T[None]
    valid_T = torch.ones_like(token_T, dtype=torch.bool)
    shuffle_groups = spec.router.shuffle_groups if whole else 1
    return StepContext(spec.train.seed, step, token_T, members_GM, valid_T, True, shuffle_groups)


def evaluating(context: StepContext) -> StepContext:
    return replace(context, training=False)


def loss_of(model: Transformer, tokens_BS: Tensor, first_sequence: int = 0) -> tuple[Tensor, Tensor]:
    """(language modelling + auxiliary, language modelling) of a training pass: means over the tokens given."""
    ids_BS = tokens_BS[:, :-1]
    output = model(ids_BS, training_context(model.spec, ids_BS, first_sequence))
    nll_T = model.token_nll(output.hidden_TD, tokens_BS[:, 1:].flatten())
    total, deciding = nll_T.mean(), [layer for layer in output.layers if model.blocks[layer.block - 1].router]
    for layer in deciding:
        router = model.blocks[layer.block - 1].router
        for name, (value, count) in router.losses(layer.routing, layer.kept_N, nll_T.detach()).items():
            total = total + router.loss_weights[name] * value / count / len(deciding)
    return total, nll_T.mean()


def gradients(model: Transformer, tokens_BS: Tensor, pieces: int = 1) -> dict[str, Tensor]:
    """Gradients of the whole loss, the batch taken in so many pieces."""
    model.zero_grad(set_to_none=True)
    size = len(tokens_BS) // pieces
    for first in range(0, len(tokens_BS), size):
        (loss_of(model, tokens_BS[first : first + size], first)[0] / pieces).backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
