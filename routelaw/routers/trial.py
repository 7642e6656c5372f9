"""A plugin's router is tried on a few tokens before anything is trained or written.

What it returns goes into indexing and matrix products, where a mistake would be an error of another file, or none at
all. Here it is one sentence that names the router. Routers of the package have the contract tests instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from routelaw.errors import InputError
from routelaw.plugins import fault_in_plugin
from routelaw.routers.router import Randomness, RouteContext, Router, Routing

MOST_TOKENS, MOST_ELEMENTS = 4096, 10**8


def try_router(kind: type[Router], given: tuple[int, int, int, Any]) -> None:
    """Build it as a model would and let it route a group of tokens, as in training and as in evaluation."""
    width, vocabulary, _, spec = given
    if spec.experts * max(width, MOST_TOKENS) > MOST_ELEMENTS:
        return  # as large as a model: whether there is memory for it is looked at elsewhere
    tokens = spec.group_tokens if spec.group_tokens <= MOST_TOKENS else MOST_TOKENS // spec.experts * spec.experts
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            router = kind(*given)
            for training in (True, False):
                router.train(training)
                index_T = torch.arange(max(tokens, spec.experts))
                ctx = RouteContext(index_T, index_T[None], index_T >= 0, Randomness.of(0, 0, 1), training, len(index_T))
                routing = router(torch.randn(len(index_T), width), index_T % vocabulary, ctx)
                _check(routing, len(index_T), spec.experts, spec.k)
                kept_N = torch.ones_like(routing.token_N, dtype=torch.bool)
                _check_losses(router.losses(routing, kept_N, torch.rand(len(index_T))), router)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        first = str(error).strip().partition("\n")[0]
        where = fault_in_plugin(error) or f"{type(error).__name__}: {first}"
        raise InputError(f"router {kind.name} of a plugin fails on a few tokens: {where:.300}.") from error


def _check(routing: Any, tokens: int, experts: int, k: int) -> None:
    if not isinstance(routing, Routing):
        raise InputError(f"what route returns must be a Routing, not {type(routing).__name__}.")
    count = tokens * k
    for name, values, bound in (("token_N", routing.token_N, tokens), ("expert_N", routing.expert_N, experts)):
        if not isinstance(values, Tensor) or values.dtype != torch.int64 or values.shape != (count,):
            raise InputError(f"Routing.{name} must be {count} int64 (K for each token), not {_described(values)}.")
        if values.min() < 0 or values.max() >= bound:
            raise InputError(f"Routing.{name} must lie between 0 and {bound - 1}, and does not.")
    weight_N = routing.weight_N
    floats = isinstance(weight_N, Tensor) and weight_N.is_floating_point() and weight_N.shape == (count,)
    if weight_N is not None and not floats:
        raise InputError(f"Routing.weight_N must be None or {count} floats, not {_described(weight_N)}.")
    for name, values in (("aux", routing.aux), ("metrics", routing.metrics)):
        if not isinstance(values, dict) or not all(isinstance(value, Tensor) for value in values.values()):
            raise InputError(f"Routing.{name} must be a dict of tensors.")
    if any(value.numel() != 1 for value in routing.metrics.values()):
        raise InputError("Routing.metrics must be scalars.")


def _check_losses(losses: Any, router: Router) -> None:
    pairs = isinstance(losses, dict) and all(
        isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(value, Tensor) for value in pair)
        for pair in losses.values()
    )
    if not pairs:
        raise InputError("what losses returns must be a dict of (sum, count), two tensors each.")
    for name in losses:
        if not isinstance(router.loss_weights.get(name), int | float):
            raise InputError(f"loss {name!r} has no weight in loss_weights.")


def _described(value: Any) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
