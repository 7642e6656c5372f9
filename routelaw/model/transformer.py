"""The routed transformer: blocks of attention and feed-forward, of which every so-many-th feed-forward is routed.

Pre-LayerNorm, GELU, no linear biases, tied embeddings (Clark et al. 2022, appendix A). Initialisation is ours: normal
with deviation 0.02, outputs into the residual stream divided by √(2L), every tensor (and every expert in it) drawn
from a seed of its own name, so that the same part of two models starts equal whatever else differs: E = 1 starts as
the dense model does.

Shapes: B batch, S sequence, T = B·S tokens, D width, V vocabulary, N assignments.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from routelaw.distributed.exchange import Shuffle, plan_shuffle
from routelaw.distributed.groups import ALONE, SINGLE, Group, Parallel
from routelaw.distributed.tensor_shards import TensorShard, tensor_shards
from routelaw.model.attention import Attention, position_table
from routelaw.model.experts import Experts, within_capacity
from routelaw.model.token_loss import token_nll
from routelaw.routers.router import Randomness, RouteContext, Router, Routing, router_class
from routelaw.specs.run import RunSpec

INIT_DEVIATION = 0.02
SHUFFLE_PURPOSE = 102
"""Distinguishes the shuffle from other uses of a layer's random numbers."""


@dataclass
class RoutedLayer:
    """What one routed block decided, for losses and the log."""

    routing: Routing
    kept_N: Tensor
    ctx: RouteContext
    """The tokens it is about and their groups."""
    shuffle: Shuffle | None = None
    """Where those tokens are from, if a shuffle exchanged them between processes."""
    block: int = 0
    """Its number, from 1, which the model knows."""


@dataclass
class Output:
    hidden_TD: Tensor
    """After the final LayerNorm."""
    layers: list[RoutedLayer] = field(default_factory=list)


# FSDP must find the tensors in what the model returns: without them it never hears of the backward pass (torch 2.11).
torch.utils._pytree.register_dataclass(RoutedLayer)
torch.utils._pytree.register_dataclass(Output)


@dataclass(frozen=True)
class StepContext:
    """Where a forward pass stands in training, and which tokens route together."""

    seed: int
    step: int | Tensor
    token_T: Tensor
    """Global number of each token in the step."""
    members_GM: Tensor
    """Tokens of each routing group in order, before the shuffle."""
    valid_T: Tensor
    training: bool
    shuffle_groups: int = 1
    """Neighbouring groups that exchange tokens, in each layer differently; 1 is no shuffle."""
    batch: Group = SINGLE
    """The processes that each hold a part of the batch."""
    span: int = 1
    """Processes over which a block of such groups extends."""

    def of_layer(self, layer: int | Tensor, sequence_length: int, shuffle: Shuffle | None = None) -> RouteContext:
        random = self._random(layer)
        token_T, members_GM = self.token_T, self.members_of(layer)
        if shuffle is not None:
            token_T = shuffle.token_T
            members_GM = torch.arange(len(token_T), device=token_T.device).view_as(self.members_GM)
        return RouteContext(token_T, members_GM, self.valid_T, random, self.training, sequence_length)

    def shuffle_of(self, layer: int | Tensor) -> Shuffle | None:
        """How a layer's tokens are exchanged between processes, where a shuffle block spans several."""
        if self.span == 1:
            return None
        first = self.token_T[0] - self.batch.rank % self.span * len(self.token_T)
        numbers_B = first + torch.arange(self.span * len(self.token_T), device=self.token_T.device)
        return plan_shuffle(self._random(layer).bits(SHUFFLE_PURPOSE, numbers_B)[:, 0], first, self.span, self.batch)

    def members_of(self, layer: int | Tensor) -> Tensor:
        """(G, M): the groups of a layer, after the paper's shuffle by (seed, step, layer, block of groups).

        It keeps a token's neighbours from learning about it through the assignment.
        """
        if self.shuffle_groups == 1 or self.span > 1:
            return self.members_GM
        block = self.shuffle_groups * self.members_GM.shape[1]
        key_BT = self._random(layer).bits(SHUFFLE_PURPOSE, self.token_T)[:, 0][self.members_GM].view(-1, block)
        order_BT = torch.argsort(key_BT, dim=1, stable=True)
        return self.members_GM.reshape(-1, block).gather(1, order_BT).view_as(self.members_GM)

    def _random(self, layer: int | Tensor) -> Randomness:
        return Randomness.of(self.seed, self.step, layer, self.token_T.device)


class Block(nn.Module):
    number: Tensor

    def __init__(self, spec: RunSpec, number: int, has_router: bool, parallel: Parallel) -> None:
        super().__init__()
        architecture, router = spec.model.architecture, spec.router
        width = architecture.d_model
        routed = number in spec.routed_blocks
        self.routed, self.spec = routed, router
        # A tensor: as a number it would make every block a graph of its own to a compiler.
        self.register_buffer("number", torch.tensor(number), persistent=False)
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(architecture, spec.model.positions, parallel.tensor)
        self.ffw_norm = nn.LayerNorm(width)
        group = parallel.expert if routed else SINGLE
        count, ffws = (router.experts, router.ffws_per_expert) if routed else (1, 1)
        self.experts = Experts(width, count, ffws, group, parallel.tensor)
        self.router: Router | None = None
        if has_router:
            settled = replace(router, group_tokens=spec.group_tokens)  # so that a router can refuse it before any step
            self.router = router_class(router.name)(width, spec.model.vocabulary, number, settled)

    def forward(
        self, x_BSD: Tensor, ids_T: Tensor, positions: Tensor, step: StepContext, shared: RoutedLayer | None
    ) -> tuple[Tensor, RoutedLayer | None]:
        x_BSD = x_BSD + self.attention(self.attention_norm(x_BSD), positions)
        residual_TD = x_BSD.flatten(0, 1)
        normed_TD = self.ffw_norm(residual_TD)
        if not self.routed:
            return x_BSD + self.experts.dense(normed_TD).view_as(x_BSD), None
        shuffle = shared.shuffle if shared is not None else step.shuffle_of(self.number)
        if shuffle is not None:
            normed_TD, ids_T = shuffle.send(normed_TD), shuffle.send(ids_T)
            residual_TD = shuffle.send(residual_TD) if self.experts.ffws > 1 else residual_TD
        ctx = step.of_layer(self.number, x_BSD.shape[1], shuffle) if shared is None else shared.ctx
        routing, kept_N = self._decide(normed_TD, ids_T, ctx, shared)
        added_TD = self.experts(normed_TD, residual_TD, routing, kept_N)
        added_TD = added_TD if shuffle is None else shuffle.restore(added_TD)
        return x_BSD + added_TD.view_as(x_BSD), RoutedLayer(routing, kept_N, ctx, shuffle)

    def _decide(
        self, normed_TD: Tensor, ids_T: Tensor, ctx: RouteContext, shared: RoutedLayer | None
    ) -> tuple[Routing, Tensor]:
        """Where tokens go and which of them find room. A shared decision includes its drops: they fall alike in every
        layer, so that a policy hears of the one action it took."""
        if self.router is None:
            assert shared is not None
            return shared.routing, shared.kept_N
        routing = self.router(normed_TD, ids_T, ctx)
        spec = self.spec
        return routing, within_capacity(routing, ctx, spec.experts, spec.k, spec.capacity_factor, spec.shared_slots)


class Transformer(nn.Module):
    def __init__(self, spec: RunSpec, parallel: Parallel = ALONE) -> None:
        """With `parallel`, this process's share of the model."""
        super().__init__()
        architecture = spec.model.architecture
        self.spec, self.parallel = spec, parallel
        self.recompute = False
        """Whether blocks keep only their input in training and recompute the rest in the backward pass."""
        self.embedding = nn.Parameter(torch.empty(spec.model.vocabulary, architecture.d_model))
        routed = spec.routed_blocks
        deciding = routed[:1] if spec.router.shared_decisions else routed
        self.blocks = nn.ModuleList(
            Block(spec, number, number in deciding, parallel) for number in range(1, architecture.blocks + 1)
        )
        self.final_norm = nn.LayerNorm(architecture.d_model)
        self.shards = tensor_shards(self, parallel, spec.routed_blocks)
        """Which part of every parameter is here, before anything shards it further."""
        self.initialise(spec.train.seed)

    def forward(self, ids_BS: Tensor, step: StepContext) -> Output:
        x_BSD = F.embedding(ids_BS, self.embedding)
        positions = position_table(self.spec.model, ids_BS.shape[1], x_BSD)
        layers: list[RoutedLayer] = []
        for number, block in enumerate(self.blocks, 1):
            shared = layers[0] if self.spec.router.shared_decisions and layers else None
            given = (x_BSD, ids_BS.flatten(), positions, step, shared)
            if self.recompute and torch.is_grad_enabled():
                # Nothing is drawn from torch's generators, and every decision comes out as it did.
                x_BSD, layer = checkpoint(block, *given, use_reentrant=False, preserve_rng_state=False)
            else:
                x_BSD, layer = block(*given)
            if layer is not None:
                layer.block = number
                layers.append(layer)
        return Output(self.final_norm(x_BSD.flatten(0, 1)), layers)

    def token_nll(self, hidden_TD: Tensor, target_T: Tensor) -> Tensor:
        """−log p(target) of each token in at least float32. Divide its sum, not its mean: see token_loss.py."""
        return token_nll(hidden_TD, self.embedding, target_T)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Every tensor from a seed of its own name; matrices into the residual stream are smaller."""
        blocks = self.spec.model.architecture.blocks
        for name, parameter in self.named_parameters():
            if "norm" in name:
                parameter.fill_(0.0 if name.endswith(("bias", "offset")) or "norm_offset" in name else 1.0)
            elif name.endswith("router.bias"):
                parameter.zero_()
            else:
                into_residual = ".down." in name or name.endswith("attention.out.weight")
                deviation = INIT_DEVIATION / (math.sqrt(2 * blocks) if into_residual else 1.0)
                _draw(parameter, self.shards[name], name, seed, deviation)


def _draw(parameter: Tensor, shard: TensorShard, name: str, seed: int, deviation: float) -> None:
    """This process's part of what a single process would draw; experts one by one, each from a seed of its own."""
    if ".experts." not in name:
        parameter.copy_(_drawn(shard.global_shape, f"{seed}/{name}/0", deviation)[shard.slices])
        return
    for index, expert in enumerate(parameter):
        whole = _drawn(shard.global_shape[1:], f"{seed}/{name}/{shard.offset[0] + index}", deviation)
        expert.copy_(whole[shard.slices[1:]])


def _drawn(shape: tuple[int, ...], key: str, deviation: float) -> Tensor:
    digest = hashlib.sha256(key.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.randn(shape, generator=generator, dtype=torch.float32) * deviation
