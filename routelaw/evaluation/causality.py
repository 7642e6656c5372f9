"""Does a model know what comes later? Change every token from t on, and see what changes before t.

In evaluation nothing may: decisions before t stay the same, and outputs too. (A product over other rows may differ
in its last bit, since the rows of an expert are multiplied together; `evaluation_change` holds that rounding.) In
training some routers balance a whole group at once, and so tell an earlier token something about later ones. The paper
shuffles tokens between groups for that reason; here the channel is measured.

Shapes: B batch, S sequence, T = B·S tokens, D width, K choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from routelaw.evaluation.likelihood import evaluation_context
from routelaw.model.transformer import Output, StepContext, Transformer

ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-3, torch.bfloat16: 0.1}
"""A change of outputs (which are of order 1 after the final LayerNorm) that needs no channel to explain it."""


@dataclass(frozen=True)
class Influence:
    """What changed before t, the worst over the cuts that were tried."""

    decisions: float
    """Largest share of the assignments before t that went to another expert or were dropped instead of kept."""
    outputs: float
    """Largest change of an output before t."""
    nats: float
    """Largest mean absolute change of the loss of the successors before t, in nats per token."""


@dataclass(frozen=True)
class Audit:
    router: str
    evaluation: Influence
    training: Influence
    """The side channel of training, under one and the same randomness."""
    causal: bool
    """In evaluation no decision changed, and no output by more than rounding."""


def audit(
    model: Transformer,
    tokens_BS: Tensor,
    cuts: Sequence[int] = (),
    training_context: Callable[[Tensor], StepContext] | None = None,
) -> Audit:
    """Audit a model on some text, (B, S). Everything from t on is replaced by the same sequence read backwards.

    `cuts` are values of t, by default a quarter, half and three quarters of the sequence. `training_context` gives the
    routing groups of a training pass; by default those of the spec without its shuffle, or one group if the text is no
    whole number of them.
    """
    length = tokens_BS.shape[1]
    cuts = cuts or sorted({max(1, length * quarter // 4) for quarter in (1, 2, 3)})
    training_context = training_context or (lambda ids_BS: _unshuffled(model, ids_BS))

    def influence(context_of: Callable[[Tensor], StepContext]) -> Influence:
        found = [_changes(model, tokens_BS, t, context_of) for t in cuts]
        return Influence(*(max(values) for values in zip(*found, strict=True)))

    was_training = model.training
    model.eval()
    try:
        evaluation = influence(lambda ids_BS: evaluation_context(model, ids_BS))
        model.train()
        training = influence(training_context)
    finally:
        model.train(was_training)
    rounding = ROUNDING.get(model.embedding.dtype, 1e-3)
    causal = evaluation.decisions == 0 and evaluation.outputs <= rounding
    return Audit(model.spec.router.name, evaluation, training, causal)


@torch.no_grad()
def _changes(
    model: Transformer, tokens_BS: Tensor, t: int, context_of: Callable[[Tensor], StepContext]
) -> tuple[float, float, float]:
    changed_BS = torch.cat([tokens_BS[:, :t], tokens_BS[:, t:].flip(1)], 1)
    changed_BS[:, t:] = torch.where(
        changed_BS[:, t:] == tokens_BS[:, t:], (changed_BS[:, t:] + 1) % model.spec.model.vocabulary, changed_BS[:, t:]
    )
    one, two = (model(ids_BS, context_of(ids_BS)) for ids_BS in (tokens_BS, changed_BS))
    B, S = tokens_BS.shape
    before = [output.hidden_TD.view(B, S, -1)[:, :t].flatten(0, 1) for output in (one, two)]
    target_T = tokens_BS[:, 1:t].flatten()
    nll = [model.token_nll(rows.view(B, t, -1)[:, :-1].flatten(0, 1), target_T) for rows in before] if t > 1 else []
    nats = float((nll[0] - nll[1]).abs().mean()) if nll else 0.0
    return _decisions_changed(one, two, B, t), float((before[0] - before[1]).abs().max()), nats


def _decisions_changed(one: Output, two: Output, batch: int, t: int) -> float:
    shares = [0.0]
    for a, b in zip(one.layers, two.layers, strict=True):
        other_N = (a.routing.expert_N != b.routing.expert_N) | (a.kept_N != b.kept_N)
        other_BSK = other_N.view(batch, len(one.hidden_TD) // batch, -1)
        shares.append(float(other_BSK[:, :t].double().mean()))
    return max(shares)


def _unshuffled(model: Transformer, ids_BS: Tensor) -> StepContext:
    group = model.spec.group_tokens
    index_T = torch.arange(ids_BS.numel(), device=ids_BS.device)
    members_GM = index_T.view(-1, group) if ids_BS.numel() % group == 0 else index_T[None]
    valid_T = torch.ones_like(index_T, dtype=torch.bool)
    return StepContext(model.spec.train.seed, 0, index_T, members_GM, valid_T, True)
