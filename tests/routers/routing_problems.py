"""Small routing problems: contexts of any grouping, routers with drawn parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from routelaw.routers.router import Randomness, RouteContext, Router, router_class
from routelaw.specs.run import RouterSpec

VOCABULARY, WIDTH = 100, 16


def build(name: str, experts: int = 4, k: int = 1, layer: int = 2, width: int = WIDTH, **options: Any) -> Router:
    router = router_class(name)(width, VOCABULARY, layer, RouterSpec(name=name, experts=experts, k=k, options=options))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in router.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return router.double()


def context(
    tokens: int,
    groups: int = 1,
    *,
    training: bool = True,
    first: int = 0,
    step: int = 3,
    seed: int = 7,
    members_GM: Tensor | None = None,
    valid_T: Tensor | None = None,
    sequence_length: int = 0,
) -> RouteContext:
    return RouteContext(
        token_T=torch.arange(first, first + tokens),
        members_GM=torch.arange(tokens).view(groups, -1) if members_GM is None else members_GM,
        valid_T=torch.ones(tokens, dtype=torch.bool) if valid_T is None else valid_T,
        random=Randomness.of(seed, step, layer=2),
        training=training,
        sequence_length=sequence_length,
    )


def inputs(tokens: int, width: int = WIDTH, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x_TD = torch.randn(tokens, width, generator=generator, dtype=torch.float64)
    return x_TD, torch.randint(VOCABULARY, (tokens,), generator=generator)
