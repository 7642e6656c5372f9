"""One optimiser step: forward and backward over the micro-batches, then clip and update.

The loss is the mean negative log-likelihood of the batch plus the routers' auxiliary losses, each averaged over its
own count (tokens or groups) and over the routed layers that decide. All averages are of the whole batch, so splitting
it changes nothing. A step whose loss or gradient is not finite updates nothing.

Nothing in `take_step` asks a GPU for a value, so the host runs ahead of it; whoever wants figures reads them.

Shapes: B batch, S sequence, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from routelaw.distributed.groups import SINGLE, Group
from routelaw.model.transformer import Output, StepContext, Transformer
from routelaw.routers.router import Router
from routelaw.specs.run import RunSpec
from routelaw.training.optimizer import Optimizer, learning_rate
from routelaw.training.routing_log import LayerLog, RoutingTally


@dataclass(frozen=True)
class StepInfo:
    step: int
    """Steps taken so far, this one included."""
    loss: float
    """Mean negative log-likelihood of the batch, in nats per token."""
    gradient_norm: float
    """Before clipping."""
    learning_rate: float
    skipped: bool
    """True when the loss or a gradient was not finite: nothing was updated."""
    layers: list[LayerLog]
    earlier: tuple[bool, ...] = ()
    """Whether each of the steps since the last one that was read was skipped."""

    @property
    def dropped(self) -> float:
        """Share of assignments dropped, averaged over the routed layers."""
        return sum(layer.dropped for layer in self.layers) / max(len(self.layers), 1)


@dataclass(frozen=True)
class StepResult:
    """A step as it left the device: figures that nobody has asked for yet."""

    step: int
    learning_rate: float
    loss: Tensor
    gradient_norm: Tensor
    finite: Tensor
    tally: RoutingTally

    def read(self, earlier: Sequence[Tensor] = ()) -> StepInfo:
        """Waits for the device. Of the steps before, `earlier` says which were finite."""
        loss, norm = torch.stack([self.loss, self.gradient_norm.to(self.loss.dtype)]).tolist()
        *before, finite = torch.stack([*earlier, self.finite]).tolist()
        layers = self.tally.read()
        return StepInfo(self.step, loss, norm, self.learning_rate, not finite, layers, tuple(not f for f in before))


def train_step(
    model: Transformer, optimizer: Optimizer, tokens_BS: Tensor, spec: RunSpec, step: int, micro_batches: int = 1
) -> StepInfo:
    """A step, and what came of it."""
    return take_step(model, optimizer, tokens_BS, spec, step, micro_batches).read()


def take_step(
    model: Transformer, optimizer: Optimizer, tokens_BS: Tensor, spec: RunSpec, step: int, micro_batches: int = 1
) -> StepResult:
    """tokens_BS is the whole batch, with one token more than the sequence length: inputs and their successors. Of
    every micro-batch a process takes its part. `step` counts from 0."""
    # A tensor, filled on the device: as a number it would be a new constant to a compiler at every step.
    number = torch.full((), step, dtype=torch.int64, device=tokens_BS.device)
    rate = learning_rate(spec.train, step)
    outcome = step_on_device(model, optimizer, tokens_BS, spec, number, rate, micro_batches)
    return replace(outcome, step=step + 1, learning_rate=rate)


def step_on_device(
    model: Transformer,
    optimizer: Optimizer,
    tokens_BS: Tensor,
    spec: RunSpec,
    number: Tensor,
    rate: float | Tensor,
    micro_batches: int,
) -> StepResult:
    """The work of a step, the same for every number and rate: it may be recorded once and repeated."""
    model.train()
    optimizer.clear()
    batch = model.parallel.batch
    size = tokens_BS.shape[0] // (micro_batches * batch.size)
    # float64: the sum over micro-batches must not depend on how many there are, as far as anyone can see.
    loss = torch.zeros((), dtype=torch.float64, device=tokens_BS.device)
    tally = RoutingTally(spec.router.experts, batch)
    for piece in range(micro_batches):
        # Every process has read the whole batch and takes its own rows of each micro-batch: nothing is sent.
        first = (piece * batch.size + batch.rank) * size
        piece_BS = tokens_BS[first : first + size]
        ids_BS, target_T = piece_BS[:, :-1], piece_BS[:, 1:].flatten()
        output = model(ids_BS, step_context(spec, number, ids_BS, first, batch))
        nll_T = model.token_nll(output.hidden_TD, target_T)
        losses = layer_losses(model, output, nll_T.detach())
        likelihood = nll_T.sum() / (nll_T.numel() * batch.size)  # a sum's gradient is cheap: model/token_loss.py
        ((likelihood + weighted_sum(model, losses, nll_T)) / micro_batches).backward()
        optimizer.accumulate_gradients()
        loss += likelihood.detach().double() / micro_batches
        tally.add(output, losses)
    batch.all_sum(loss)  # tensor-parallel processes have computed the same loss, and are not asked
    norm = optimizer.gradient_norm()
    finite = torch.isfinite(norm) & torch.isfinite(loss)
    if optimizer.skips_on_device:
        optimizer.step(rate, norm, finite)
    elif bool(finite):
        optimizer.step(rate, norm)
    optimizer.clear()
    return StepResult(0, 0.0, loss, norm, finite, tally)


def step_context(
    spec: RunSpec, step: int | Tensor, ids_BS: Tensor, first_sequence: int, batch: Group = SINGLE
) -> StepContext:
    """The routing context of some sequences of a step, numbered as in the whole batch."""
    B, S = ids_BS.shape
    index_T = torch.arange(B * S, device=ids_BS.device)
    token_T = index_T + first_sequence * S
    members_GM, shuffle_groups, span = index_T[None], 1, 1
    if spec.routed_blocks and B * S % spec.group_tokens == 0:  # a smaller piece is one whose groups do not matter
        members_GM, shuffle_groups = index_T.view(-1, spec.group_tokens), spec.router.shuffle_groups
        span = max(1, spec.block_tokens // (B * S))
    valid_T = torch.ones_like(token_T, dtype=torch.bool)
    return StepContext(spec.train.seed, step, token_T, members_GM, valid_T, True, shuffle_groups, batch, span)


def layer_losses(model: Transformer, output: Output, nll_T: Tensor) -> dict[int, dict[str, Tensor]]:
    """By routed block that decides, each of its router's losses averaged over its own count: this process's share of
    the average over all."""
    losses = {}
    for layer in output.layers:
        if router := router_of(model, layer.block):
            own_T = nll_T if layer.shuffle is None else layer.shuffle.send(nll_T)
            sums = router.losses(layer.routing, layer.kept_N, own_T)
            all_sum = model.parallel.batch.all_sum
            losses[layer.block] = {name: total / all_sum(count.clone()) for name, (total, count) in sums.items()}
    return losses


def weighted_sum(model: Transformer, losses: dict[int, dict[str, Tensor]], nll_T: Tensor) -> Tensor:
    """What the routers add to the loss: weighted as they say, averaged over layers."""
    total = nll_T.new_zeros(())
    for block, means in losses.items():
        router = router_of(model, block)
        assert router is not None
        for name, mean in means.items():
            total = total + router.loss_weights[name] * mean / len(losses)
    return total


def router_of(model: Transformer, block: int) -> Router | None:
    return model.blocks[block - 1].router  # pyrefly: ignore
