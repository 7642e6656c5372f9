"""Loss curves with and without a fast path, and whether they differ by more than seeds do.

Shapes: S seeds, N steps, B batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from proof_paths import Way

from routelaw.bench.clock import DEVICE
from routelaw.corpus import batch, open_corpus
from routelaw.specs.run import RunSpec
from routelaw.training.device import release
from routelaw.training.loop import on_device

SMOOTH = 20
"""Steps that a point of a smoothed curve is the mean of."""
SUCCESSORS = 8
Batches = Callable[[int, int], np.ndarray]
"""(seed, step) -> tokens (B, S+1)."""


@dataclass(frozen=True)
class Verdict:
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


def verdict(reference_SN: np.ndarray, other_SN: np.ndarray) -> Verdict:
    """Seeds are paired: the same start and the same batches in both."""
    if reference_SN.shape != other_SN.shape or len(reference_SN) < 2:
        raise ValueError(f"curves of the same two seeds or more are compared, not {reference_SN.shape, other_SN.shape}")
    reference, other = smoothed(reference_SN), smoothed(other_SN)
    if not (np.isfinite(reference).all() and np.isfinite(other).all()):
        return Verdict(float("inf"), float("nan"))
    spread = np.sqrt(reference.var(0, ddof=1).mean())
    return Verdict(float(np.abs(reference.mean(0) - other.mean(0)).max()), float(spread))


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
