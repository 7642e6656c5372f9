"""How far apart two ways to train are: their loss curves, and the gradients of one step.

Curves: whether those with and without a fast path differ by more than seeds do.

Gradients, against float64: of the fast paths, and of plain eager arithmetic in the same precision. All have the same
parameters (rounded to the precision under test) and the same routing decisions: those that the fast model took, since a
token between two experts may go either way. Only the choice is forced; weights, drops and losses are computed anew.
(The balance loss counts first choices anew, too: a token or two of thousands.)

Shapes: S seeds (curves) or sequence length (tokens), N steps (curves) or assignments, B batch, V vocabulary, K choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import routelaw.routers.reinforce as reinforce_module
import routelaw.routers.sinkhorn as sinkhorn_module
import routelaw.routers.switch as switch_module
from benchmarks.proof_paths import FAST, PLAIN, Way, replaced
from routelaw.bench.clock import DEVICE
from routelaw.bench.models import training_loss
from routelaw.corpus import batch, open_corpus
from routelaw.model.transformer import Transformer
from routelaw.specs.run import RunSpec
from routelaw.training.device import release
from routelaw.training.loop import on_device

LIMIT = 1e-2
"""Relative: what gradients may be off by."""
CHOOSERS = {"s-base": sinkhorn_module, "switch": switch_module, "rl-r": reinforce_module}
SMOOTH = 20
"""Steps that a point of a smoothed curve is the mean of."""
SUCCESSORS = 8
Batches = Callable[[int, int], np.ndarray]
"""(seed, step) -> tokens (B, S+1)."""


@dataclass(frozen=True)
class CurveDifference:
    difference: float
    """The largest between the smoothed mean curves, in nats."""
    spread: float
    """Standard deviation over the reference's seeds, pooled over the points of its smoothed curves."""

    @property
    def ratio(self) -> float:
        return self.difference / self.spread if self.spread else float("inf" if self.difference else 0)

    @property
    def within(self) -> bool:
        return self.ratio <= 1


def smoothed(curve_SN: np.ndarray, over: int = SMOOTH) -> np.ndarray:
    """Moving means; a curve shorter than that is its one mean."""
    over = min(over, curve_SN.shape[1])
    sums = np.cumsum(np.pad(curve_SN, ((0, 0), (1, 0))), axis=1)
    return (sums[:, over:] - sums[:, :-over]) / over


def curve_difference(reference_SN: np.ndarray, other_SN: np.ndarray) -> CurveDifference:
    """Seeds are paired: the same start and the same batches in both."""
    if reference_SN.shape != other_SN.shape or len(reference_SN) < 2:
        raise ValueError(f"curves of the same two seeds or more are compared, not {reference_SN.shape, other_SN.shape}")
    reference, other = smoothed(reference_SN), smoothed(other_SN)
    if not (np.isfinite(reference).all() and np.isfinite(other).all()):
        return CurveDifference(float("inf"), float("nan"))
    spread = np.sqrt(reference.var(0, ddof=1).mean())
    return CurveDifference(float(np.abs(reference.mean(0) - other.mean(0)).max()), float(spread))


def signed_most(reference_SN: np.ndarray, other_SN: np.ndarray) -> float:
    """How far the other's smoothed mean curve is from the reference's where it is farthest, with its sign."""
    apart = (smoothed(other_SN) - smoothed(reference_SN)).mean(0)
    return float(apart[np.abs(apart).argmax()])


def text_batches(folder: Path | None, sequences: int, length: int, vocabulary: int) -> tuple[Batches, int, str]:
    """From a corpus, or from a Markov chain where none is given; with its vocabulary and its name. Kept once drawn:
    all ways train on the same."""
    if folder is None:
        return cache(chain_batches(sequences, length, vocabulary)), vocabulary, f"Markov chain of {vocabulary} tokens"
    corpus = open_corpus(folder)
    return (
        cache(lambda seed, step: batch(corpus, "train", seed, step, sequences, length)),
        corpus.vocabulary,
        f"corpus {corpus.id[:12]}",
    )


def chain_batches(sequences: int, length: int, vocabulary: int) -> Batches:
    """Every token has a few successors, the first of them the likeliest; the same chain for all seeds."""
    fixed = np.random.default_rng(0)
    successor_VK = fixed.integers(vocabulary, size=(vocabulary, SUCCESSORS))
    edges_K = np.cumsum(1 / np.arange(1, SUCCESSORS + 1))
    edges_K /= edges_K[-1]

    def draw(seed: int, step: int) -> np.ndarray:
        random = np.random.default_rng((seed, step))
        choice_BS = np.searchsorted(edges_K, random.random((sequences, length + 1)), side="right").clip(
            max=SUCCESSORS - 1
        )
        tokens_BS = np.empty((sequences, length + 1), np.int64)
        tokens_BS[:, 0] = random.integers(vocabulary, size=sequences)
        for place in range(length):
            tokens_BS[:, place + 1] = successor_VK[tokens_BS[:, place], choice_BS[:, place]]
        return tokens_BS

    return draw


def curve(way: Way, spec: RunSpec, batches: Batches, seed: int) -> np.ndarray:
    """Training losses of a run, read once at its end."""
    with way.patched():
        model = way.model(spec, seed)
        take = way.taker(model, way.optimizer(model))
        losses = [take(on_device(batches(seed, step), DEVICE), step).loss.clone() for step in range(spec.train.steps)]
        return torch.stack(losses).double().cpu().numpy()


def curves(way: Way, spec: RunSpec, batches: Batches, seeds: int) -> np.ndarray:
    torch._dynamo.reset()
    found = []
    for seed in range(seeds):
        found.append(curve(way, spec, batches, seed))
        release()  # what one leaves is not of the next one's memory
    return np.stack(found)


@dataclass(frozen=True)
class GradientErrors:
    """Relative: ‖g − g*‖/‖g*‖."""

    whole: float
    by_name: dict[str, float]

    @property
    def share_within(self) -> float:
        return sum(error <= LIMIT for error in self.by_name.values()) / max(len(self.by_name), 1)


def relative_errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> GradientErrors:
    """A parameter whose exact gradient is zero has no relative error and is left out."""
    if found.keys() != exact.keys():
        raise ValueError(f"gradients of different parameters: {sorted(found.keys() ^ exact.keys())}")
    gap = {name: torch.linalg.vector_norm(found[name] - exact[name]).item() for name in exact}
    size = {name: torch.linalg.vector_norm(exact[name]).item() for name in exact}
    whole = sum(g * g for g in gap.values()) ** 0.5 / sum(s * s for s in size.values()) ** 0.5
    return GradientErrors(whole, {name: gap[name] / size[name] for name in exact if size[name]})


def most_over(one: GradientErrors, other: GradientErrors) -> float:
    """The largest error of a parameter over the other's: what precision alone costs divides out."""
    return max(error / other.by_name[name] for name, error in one.by_name.items() if other.by_name[name])


def gradients(model: Transformer, tokens_BS: Tensor, step: int) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Gradients of the loss of a training step, in float64, and the experts chosen in each routed layer."""
    number = torch.full((), step, dtype=torch.int64, device=tokens_BS.device)
    loss, output = training_loss(model, tokens_BS, number)
    loss.backward()
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


def compared(trained: Transformer, tokens_BS: Tensor, step: int) -> tuple[GradientErrors, GradientErrors]:
    """(fast, plain eager) of the trained model's parameters, in its precision, on these tokens."""
    spec, values = trained.spec, trained.state_dict()
    dtype = next(trained.parameters()).dtype

    def of(
        way: Way, as_type: torch.dtype, chosen: list[Tensor] | None = None
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        decided = nullcontext() if chosen is None else forced(spec.router.name, chosen)
        with way.patched(), decided:
            model = replace(way, dtype=as_type).model(spec, 0)
            model.load_state_dict(values)
            return gradients(model, tokens_BS, step)

    fast, chosen = of(FAST, dtype)
    exact, _ = of(PLAIN, torch.float64, chosen)
    plain, _ = of(PLAIN, dtype, chosen)
    return relative_errors(fast, exact), relative_errors(plain, exact)
