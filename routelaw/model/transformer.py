"""The routed transformer: blocks of attention and feed-forward, of which every so-many-th feed-forward is routed.

Pre-LayerNorm, GELU, no linear biases, tied embeddings (Clark et al. 2022, appendix A). Initialisation is ours: normal
with deviation .02, outputs into the residual stream divided by √(2L), every tensor (and every expert in it) drawn
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

from routelaw.model.attention import Attention
from routelaw.model.capacity import within_capacity
from routelaw.model.experts import Experts
from routelaw.routers.randomness import Randomness
from routelaw.routers.router import RouteContext, Router, Routing, router_class
from routelaw.specs.run import RunSpec

INIT_DEVIATION = 0.02
SHUFFLE_PURPOSE = 102
"""Distinguishes the shuffle from other uses of a layer's random numbers."""


@dataclass
class RoutedLayer:
    """What one routed block decided, for losses and the log."""

    block: int
    routing: Routing
    kept_N: Tensor


@dataclass
class Output:
    hidden_TD: Tensor
    """After the final LayerNorm."""
    layers: list[RoutedLayer] = field(default_factory=list)


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
    """Neighbouring groups among which tokens are dealt anew, in each layer differently; 1 is no shuffle."""

    def of_layer(self, layer: int, sequence_length: int) -> RouteContext:
        random = self._random(layer)
        return RouteContext(self.token_T, self.members_of(layer), self.valid_T, random, self.training, sequence_length)

    def members_of(self, layer: int) -> Tensor:
        """(G, M): the groups of a layer, after the paper's shuffle by (seed, step, layer, block of groups).

        It keeps a token's neighbours from learning about it through the assignment.
        """
        if self.shuffle_groups == 1:
            return self.members_GM
        block = self.shuffle_groups * self.members_GM.shape[1]
        key_BT = self._random(layer).bits(SHUFFLE_PURPOSE, self.token_T)[:, 0][self.members_GM].view(-1, block)
        order_BT = torch.argsort(key_BT, dim=1, stable=True)
        return self.members_GM.reshape(-1, block).gather(1, order_BT).view_as(self.members_GM)

    def _random(self, layer: int) -> Randomness:
        return Randomness.of(self.seed, self.step, layer, self.token_T.device)


class Block(nn.Module):
    def __init__(self, spec: RunSpec, number: int, has_router: bool) -> None:
        super().__init__()
        architecture, router = spec.model.architecture, spec.router
        width = architecture.d_model
        routed = number in spec.routed_blocks
        self.number, self.routed, self.spec = number, routed, router
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(architecture, spec.model.positions)
        self.ffw_norm = nn.LayerNorm(width)
        self.experts = Experts(width, router.experts if routed else 1, router.ffws_per_expert if routed else 1)
        self.router: Router | None = None
        if has_router:
            settled = replace(router, group_tokens=spec.group_tokens)  # so that a router can refuse it before any step
            self.router = router_class(router.name)(width, spec.model.vocabulary, number, settled)

    def forward(
        self, x_BSD: Tensor, ids_T: Tensor, step: StepContext, shared: RoutedLayer | None
    ) -> tuple[Tensor, RoutedLayer | None]:
        x_BSD = x_BSD + self.attention(self.attention_norm(x_BSD))
        residual_TD = x_BSD.flatten(0, 1)
        normed_TD = self.ffw_norm(residual_TD)
        if not self.routed:
            return x_BSD + self.experts.dense(normed_TD).view_as(x_BSD), None
        routing, kept_N = self._decide(normed_TD, ids_T, step.of_layer(self.number, x_BSD.shape[1]), shared)
        added_TD = self.experts(normed_TD, residual_TD, routing, kept_N)
        return x_BSD + added_TD.view_as(x_BSD), RoutedLayer(self.number, routing, kept_N)

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
    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        architecture = spec.model.architecture
        self.spec = spec
        self.embedding = nn.Parameter(torch.empty(spec.model.vocabulary, architecture.d_model))
        routed = spec.routed_blocks
        deciding = routed[:1] if spec.router.shared_decisions else routed
        self.blocks = nn.ModuleList(
            Block(spec, number, has_router=number in deciding) for number in range(1, architecture.blocks + 1)
        )
        self.final_norm = nn.LayerNorm(architecture.d_model)
        self.initialise(spec.train.seed)

    def forward(self, ids_BS: Tensor, step: StepContext) -> Output:
        x_BSD = F.embedding(ids_BS, self.embedding)
        layers: list[RoutedLayer] = []
        for block in self.blocks:
            shared = layers[0] if self.spec.router.shared_decisions and layers else None
            x_BSD, layer = block(x_BSD, ids_BS.flatten(), step, shared)
            layers += [layer] if layer else []
        return Output(self.final_norm(x_BSD).flatten(0, 1), layers)

    def token_nll(self, hidden_TD: Tensor, target_T: Tensor) -> Tensor:
        """−log p(target) of each token in at least float32; logits of a piece of the tokens at a time."""
        pieces = []
        for rows_TD, targets in zip(hidden_TD.split(LOGIT_ROWS), target_T.split(LOGIT_ROWS), strict=True):
            logits = rows_TD @ self.embedding.T
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            pieces.append(F.cross_entropy(wide, targets, reduction="none"))
        return torch.cat(pieces)

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
                _draw(parameter, name, seed, deviation, per_expert=".experts." in name)


LOGIT_ROWS = 8192


def _draw(parameter: Tensor, name: str, seed: int, deviation: float, per_expert: bool) -> None:
    pieces = list(parameter) if per_expert else [parameter]
    for index, piece in enumerate(pieces):
        digest = hashlib.sha256(f"{seed}/{name}/{index}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        drawn = torch.randn(piece.shape, generator=generator, dtype=torch.float32) * deviation
        piece.copy_(drawn.to(piece.dtype))
