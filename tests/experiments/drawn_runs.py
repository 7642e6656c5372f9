"""A run table drawn from a law that is known, with noise that is known: every study of the miniature, in a second.

`World` says what is true; its defaults are the paper's claims. Tests turn an effect round or take it away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from experiments.miniature.analysis.study import Study, plain
from routelaw.laws import get_law
from routelaw.runs.table import RunTable
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size, size_label
from routelaw.studies.study_runs import BALANCE_DEFAULTS

SIZES = ("0.2M", "0.8M", "2M", "5M", "8M")
EXPERTS = (2, 4, 8, 16, 32, 64, 128)
MIDDLE, SMALL = "2M", "0.8M"
STEPS = 1000
WEIGHTS, CROSSED = (0.0, 1e-3, 1e-2, 1e-1, 1.0), (0.0, 1e-2, 1.0)
"""Balance weights: of every router, and those with all entropy weights of RL-R."""
DENSE_SLOPE, DENSE_LEVEL = -0.083, 1.05
"""log L = slope·log N + level of dense models: every router's law starts there."""


def law_of(b: float, c: float, e_start: float, e_max: float) -> dict[str, float]:
    """The paper's law with the dense models of all others: a and d follow."""
    a, d = DENSE_SLOPE - c * np.log10(e_start), DENSE_LEVEL - b * np.log10(e_start)
    return {"a": a, "b": b, "c": c, "d": d, "e_start": e_start, "e_max": e_max}


LAWS = {
    "s-base": law_of(-0.115, 0.010, 1.8, 70.0),
    "rl-r": law_of(-0.140, 0.017, 1.8, 400.0),
    "hash": law_of(-0.145, 0.017, 5.0, 400.0),
    "switch": law_of(-0.105, 0.010, 1.8, 80.0),
}


@dataclass(frozen=True)
class World:
    noise: float = 3e-4
    """Standard deviation of log10 L."""
    laws: dict[str, dict[str, float]] = field(default_factory=lambda: LAWS)
    routing: float = 1.0
    """1: as the laws say; 0: experts change nothing; −1: they harm as much."""
    k_gain: float = 0.002
    """log10 L that doubling K takes off."""
    frequency_gain: dict[str, float] = field(default_factory=lambda: {"s-base": 0.012, "hash": 0.0})
    """log10 L that doubling R takes off."""
    one_layer: float = 0.02
    """S-BASE over HASH at the lowest R."""
    balance: dict[str, float] = field(default_factory=lambda: {"switch": 0.010, "s-base": 0.0005, "rl-r": 0.004})
    """log10 L for each decade away from the best weight."""
    excess: dict[str, float] = field(default_factory=lambda: {"switch": 0.3, "s-base": 0.05, "rl-r": 0.2, "hash": 0.2})
    """Over-subscription at a balance weight of 0.01; a decade more takes a third off."""
    excess_noise: float = 0.005
    entropy: float = 0.3
    """What the highest entropy weight adds to it, with a balance weight below 1."""
    exact: float = 0.0
    """S-BASE over BASE, log10 L."""
    shared: float = 0.01
    permuted: float = 0.0
    stacked: float = 0.02
    variants: float = 0.004
    """G and S over B."""
    transfer: float = -0.03
    """Slope in log N of loss_c4 beyond that of validation."""
    schedule: float = 0.5
    """How much of b a run has only at the end of its schedule."""
    speed: float = 1.8
    seeds: bool = True
    studies: bool = True


def true_log_loss(world: World, spec: RunSpec) -> float:
    router, law = spec.router, get_law("saturated")
    active = spec.counts.active_params
    dense = DENSE_SLOPE * float(np.log10(active)) + DENSE_LEVEL
    if router.name == "dense":
        return dense
    own = world.laws["s-base" if router.name == "base" else router.name]
    routed = float(np.log10(law.predict(own, active_params=active, experts=router.experts)[0]))
    log_loss = dense + world.routing * (routed - dense)
    log_loss -= world.k_gain * np.log2(router.k)
    log_loss -= world.frequency_gain.get(router.name, 0.0) * np.log2(router.routing_frequency / 0.5)
    log_loss += _of_variant(world, spec) - world.exact * (router.name == "base")
    return float(log_loss)


def _of_variant(world: World, spec: RunSpec) -> float:
    router = spec.router
    extra = world.shared * router.shared_decisions + world.permuted * bool(router.options.get("permuted"))
    extra += world.stacked * (router.ffws_per_expert > 1)
    extra += world.variants * ("variant" in router.options)
    if router.name == "s-base" and router.routing_frequency < 0.45 and router.placement == "even":
        extra += world.one_layer
    if router.balance_weight is not None:
        decades = abs(np.log10(max(router.balance_weight, 1e-4)) + 2)
        extra += world.balance.get(router.name, 0.0) * decades
    return float(extra)


def specs(world: World, sizes: tuple[str, ...] = SIZES) -> Iterator[RunSpec]:
    def run(size: str, name: str = "dense", experts: int = 1, *, seed: int = 0, steps: int = STEPS, **router: Any):
        model = ModelSpec(get_size(size), vocabulary=2048, sequence_length=128)
        own = RouterSpec(name, experts, **router) if name != "dense" else RouterSpec()
        return RunSpec(model, own, TrainSpec(steps, 32, seed=seed), "c0ffee")

    for size in sizes:
        yield run(size)
        yield from (run(size, name, e) for name in world.laws for e in EXPERTS)
    if world.seeds:
        cells = [("dense", 1), *((r, e) for r in ("s-base", "rl-r", "hash") for e in (8, 64))]
        yield from (run(MIDDLE, name, e, seed=seed) for name, e in cells for seed in (1, 2))
    if not world.studies:
        return
    for size in (SMALL, MIDDLE):
        for e in (8, 64):
            yield from (run(size, "s-base", e, k=k) for k in (2, 4))
            yield from (run(size, n, e, routing_frequency=r) for n in ("s-base", "hash") for r in (0.25, 1.0))
            yield from (run(size, "rl-r", e, options={"variant": v}) for v in "GS")
        yield run(size, "s-base", 64, shared_decisions=True)
        yield run(size, "hash", 64, options={"permuted": True})
        for name in ("s-base", "hash"):
            yield run(size, name, 32, placement="interior", ffws_per_expert=2, routing_frequency=0.25)
            yield run(size, name, 32, placement="interior", routing_frequency=0.5)
    yield from (run(SMALL, n, e, steps=300) for n in ("base", "s-base") for e in (4, 8))
    for name in ("switch", "s-base"):
        yield from (run(MIDDLE, name, 64, balance_weight=w) for w in WEIGHTS)
    for entropy, weights in ((0.0, CROSSED), (5e-4, WEIGHTS), (5e-3, CROSSED)):
        options = {"entropy_weight": entropy}
        yield from (run(MIDDLE, "rl-r", 64, balance_weight=w, options=options) for w in weights)
    yield from (run(SMALL, n, e, steps=s) for s in (300, 4000) for n, e in (("dense", 1), ("hash", 8), ("hash", 64)))
    yield from (run(SMALL, "hash", e, steps=s) for s in (300, 4000) for e in (32,))


def true_excess(world: World, spec: RunSpec) -> float:
    """The share of assignments beyond an even load."""
    router = spec.router
    weight = BALANCE_DEFAULTS.get(router.name, 1e-2) if router.balance_weight is None else router.balance_weight
    share = world.excess.get(router.name, 0.0) * 1.5 ** -(np.log10(max(weight, 1e-4)) + 2)
    entropy = float(router.options.get("entropy_weight", 5e-4)) / 5e-3  # pyrefly: ignore
    return float(min(share + (world.entropy * entropy if router.name == "rl-r" and weight < 1 else 0.0), 1.0))


def drawn_routing(world: World, sizes: tuple[str, ...] = SIZES, seed: int = 0) -> pd.DataFrame:
    """Two blocks, ten rows of each routed run; the spread evens out as it is trained."""
    rng = np.random.default_rng(seed)
    rows = []
    for spec in specs(world, sizes):
        if spec.router.name != "dense":
            final = max(true_excess(world, spec) + world.excess_noise * rng.standard_normal(), 0.0)
            run_id = spec.run_id
            rows += [
                {"run_id": run_id, "step": spec.train.steps * tenth // 10, "block": block,
                 "oversubscribed": final if tenth > 8 else (1 + final) / 2, "dropped": final / 2}
                for tenth in range(1, 11) for block in (1, 3)
            ]  # fmt: skip
    return pd.DataFrame(rows)


def true_frame(world: World, sizes: tuple[str, ...] = SIZES) -> pd.DataFrame:
    """Ten evaluations of every run, without noise; the loss falls with tokens as a power."""
    rows = []
    for spec in specs(world, sizes):
        final, counts = true_log_loss(world, spec), spec.counts
        dense = true_log_loss(world, replace(spec, router=RouterSpec()))
        transfer = world.transfer * (np.log10(counts.active_params) - 6) + 0.05
        of_run = {
            "run_id": spec.run_id, "router": spec.router.name, "variant": spec.variant,
            "size": size_label(counts.active_params), "experts": spec.router.experts, "k": spec.router.k,
            "routing_frequency": spec.routing_frequency, "seed": spec.train.seed,
            "tokens_planned": spec.tokens_after(spec.train.steps), "active_params": counts.active_params,
            "total_params": counts.total_params, "flops_per_token": counts.flops_per_token,
        }  # fmt: skip
        for tenth in range(1, 11):
            step = spec.train.steps * tenth // 10
            unfinished = 1 - world.schedule * (1 - tenth / 10)
            log_loss = dense + (final - dense) * unfinished - 0.05 * np.log10(step / STEPS)
            rows.append({
                **of_run, "step": step, "tokens": spec.tokens_after(step),
                "status": "finished" if tenth == 10 else "running", "loss_validation": 10**log_loss,
                "loss_c4": 10 ** (log_loss + transfer), "loss_wikitext103": 10 ** (log_loss + 0.08),
            })  # fmt: skip
    return pd.DataFrame(rows)


def with_noise(truth: pd.DataFrame, noise: float, seed: int) -> pd.DataFrame:
    """A run is off by the same share at all of its evaluations; a zero-shot loss by something of its own besides."""
    rng = np.random.default_rng(seed)
    runs = truth["run_id"].unique()
    shift = pd.Series(10 ** (noise * rng.standard_normal(len(runs))), runs)
    moved = {}
    for loss in ("loss_validation", "loss_c4", "loss_wikitext103"):
        own = 0.0 if loss == "loss_validation" else noise * rng.standard_normal(len(truth))
        moved[loss] = truth[loss] * truth["run_id"].map(shift) * 10**own
    return truth.assign(**moved)


def drawn_costs(frame: pd.DataFrame, world: World) -> pd.DataFrame:
    last = frame.groupby("run_id").tail(1)
    rng = np.random.default_rng(5)
    speed = 1e6 / world.speed ** np.log2(last["k"]) * (1 + 0.02 * rng.standard_normal(len(last)))
    return pd.DataFrame({
        "run_id": last["run_id"], "seconds": last["tokens_planned"] / speed, "tokens_per_second": speed,
        "device": "one GPU", "date": "2026-01-01", "drop_share": 0.01,
    })  # fmt: skip


def drawn_studies(
    world: World | None = None, seeds: Sequence[int] = (0,), sizes: tuple[str, ...] = SIZES
) -> list[Study]:
    world = world or World()
    truth = true_frame(world, sizes)
    costs = drawn_costs(truth, world)
    frames = (with_noise(truth, world.noise, seed) for seed in seeds)
    routing = [drawn_routing(world, sizes, seed) for seed in seeds]
    return [
        Study(plain(RunTable.from_frame(frame, "drawn")), costs=costs, routing=own)
        for frame, own in zip(frames, routing, strict=True)
    ]


def drawn_study(world: World | None = None, seed: int = 0, sizes: tuple[str, ...] = SIZES) -> Study:
    return drawn_studies(world, [seed], sizes)[0]
