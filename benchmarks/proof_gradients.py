"""Gradients of one step against float64: of the fast paths, and of plain eager arithmetic in the same precision.

All have the same parameters (rounded to the precision under test) and the same routing decisions: those that the fast
model took, since a token between two experts may go either way. Only the choice is forced; weights, drops and losses
are computed anew. (The balance loss counts first choices anew, too: a token or two of thousands.)

Shapes: N assignments, K choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from proof_paths import FAST, PLAIN, Way, replaced
from torch import Tensor

import routelaw.routers.reinforce as reinforce_module
import routelaw.routers.sinkhorn as sinkhorn_module
import routelaw.routers.switch as switch_module
from routelaw.model.transformer import Transformer
from routelaw.training.step import layer_losses, step_context, weighted_sum

LIMIT = 1e-2
CHOOSERS = {"s-base": sinkhorn_module, "switch": switch_module, "rl-r": reinforce_module}


@dataclass(frozen=True)
class Errors:
    """Relative: ‖g − g*‖/‖g*‖."""

    whole: float
    by_name: dict[str, float]

    @property
    def share_within(self) -> float:
        return sum(error <= LIMIT for error in self.by_name.values()) / max(len(self.by_name), 1)


def relative_errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> Errors:
    """A parameter whose exact gradient is zero has no relative error and is left out."""
    if found.keys() != exact.keys():
        raise ValueError(f"gradients of different parameters: {sorted(found.keys() ^ exact.keys())}")
    gap = {name: torch.linalg.vector_norm(found[name] - exact[name]).item() for name in exact}
    size = {name: torch.linalg.vector_norm(exact[name]).item() for name in exact}
    whole = sum(g * g for g in gap.values()) ** 0.5 / sum(s * s for s in size.values()) ** 0.5
    return Errors(whole, {name: gap[name] / size[name] for name in exact if size[name]})


def most_over(one: Errors, other: Errors) -> float:
    """The largest error of a parameter over the other's: what precision alone costs divides out."""
    return max(error / other.by_name[name] for name, error in one.by_name.items() if other.by_name[name])


def gradients(model: Transformer, tokens_BS: Tensor, step: int) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Gradients of the loss of a training step, in float64, and the experts chosen in each routed layer."""
    number = torch.full((), step, dtype=torch.int64, device=tokens_BS.device)
    ids_BS, target_T = tokens_BS[:, :-1], tokens_BS[:, 1:].flatten()
    output = model(ids_BS, step_context(model.spec, number, ids_BS, 0))
    nll_T = model.token_nll(output.hidden_TD, target_T)
    losses = layer_losses(model, output, nll_T.detach())
    (nll_T.sum() / nll_T.numel() + weighted_sum(model, losses, nll_T)).backward()
    found = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    return found, [layer.routing.expert_N for layer in output.layers]


@contextmanager
def forced(router: str, chosen: Iterable[Tensor]) -> Iterator[None]:
    """The decisions of one pass, layer after layer; a router of fixed decisions needs no force."""
    if router not in CHOOSERS:
        yield
        return
    rest = iter(list(chosen))
    with replaced(CHOOSERS[router], "choose", lambda scores_TE, k, order_TE: next(rest).view(-1, k)):
        yield
    if next(rest, None) is not None:
        raise RuntimeError(f"router {router} did not ask for all of its decisions: it chooses in another way now")


def compared(trained: Transformer, tokens_BS: Tensor, step: int) -> tuple[Errors, Errors]:
    """(fast, plain eager) of the trained model's parameters, in its precision, on these tokens."""
    spec, values = trained.spec, trained.state_dict()
    dtype = next(trained.parameters()).dtype

    def of(
        way: Way, as_type: torch.dtype, chosen: list[Tensor] | None = None
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        with ExitStack() as stack:
            stack.enter_context(way.patched())
            if chosen is not None:
                stack.enter_context(forced(spec.router.name, chosen))
            model = replace(way, dtype=as_type).model(spec, 0)
            model.load_state_dict(values)
            return gradients(model, tokens_BS, step)

    fast, chosen = of(FAST, dtype)
    exact, _ = of(PLAIN, torch.float64, chosen)
    plain, _ = of(PLAIN, dtype, chosen)
    return relative_errors(fast, exact), relative_errors(plain, exact)
