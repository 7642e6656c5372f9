"""A store as training would leave it, written in seconds and without torch: losses follow a law that is known.

Every run is a folder of spec.json, evaluations.jsonl, log.jsonl and result.json, made from a real RunSpec, so ids,
counts and columns are those of real runs. A thousand runs of a hundred evaluations take a few seconds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from routelaw.specs.files import to_mapping
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size, size_label

CORPUS = "c0ffee" * 10
STEPS, BATCH, LENGTH = 1000, 32, 64
BEHIND = {"s-base": 0.0, "hash": 0.012, "switch": 0.004}
"""log10 of the loss over that of the best router at E = 8; grows with log E."""


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    status: str = "finished"
    """finished, diverged, failed or stopped."""
    reason: str = ""


def make_spec(
    size: str, router: str = "dense", experts: int = 1, seed: int = 0, steps: int = STEPS, **options: Any
) -> RunSpec:
    return RunSpec(
        ModelSpec(get_size(size), vocabulary=2048, sequence_length=LENGTH),
        RouterSpec(router, experts, **options) if router != "dense" else RouterSpec(),
        TrainSpec(steps, BATCH, seed=seed),
        CORPUS,
    )


def grid(
    sizes: Sequence[str] = ("0.2M", "0.5M", "0.8M"),
    routers: Sequence[str] = ("s-base", "hash"),
    experts: Sequence[int] = (2, 4, 8),
    seeds: Sequence[int] = (0,),
    **options: Any,
) -> list[RunSpec]:
    """Dense once for each size, every router with every E."""
    cells = [("dense", 1), *((router, e) for router in routers for e in experts)]
    return [make_spec(s, r, e, seed, **options) for s in sizes for r, e in cells for seed in seeds]


def true_loss(spec: RunSpec) -> float:
    """The bilinear law of the paper with its own coefficients, and what a router is behind."""
    u, v = math.log10(spec.counts.active_params), math.log10(spec.router.experts)
    behind = BEHIND.get(spec.router.name, 0.008) * v / math.log10(8)
    return 10 ** (1.117 - 0.083 * u - 0.12 * v + 0.0101 * u * v + behind)


def write_store(
    path: Path,
    specs: Sequence[RunSpec],
    *,
    evaluations: int = 10,
    logged: int = 20,
    noise: float = 1e-3,
    endings: dict[str, Ending] | None = None,
) -> Path:
    """Write the runs; `endings` by run id for those that did not end well. `noise` is of log10 L, by run."""
    endings = endings or {}
    for nth, spec in enumerate(specs):
        ending = endings.get(spec.run_id, Ending())
        ended = ending.status in ("finished", "diverged")
        folder = path / spec.run_id if ended else path / "unfinished" / f"{spec.run_id}.1"
        folder.mkdir(parents=True)
        rng = np.random.default_rng(nth)
        final = true_loss(spec) * 10 ** (noise * rng.standard_normal())
        reached = spec.train.steps if ending.status == "finished" else spec.train.steps // 2
        _write_run(folder, spec, ending, final, reached, evaluations, logged, rng)
    return path


def _write_run(
    folder: Path,
    spec: RunSpec,
    ending: Ending,
    final: float,
    reached: int,
    evaluations: int,
    logged: int,
    rng: np.random.Generator,
) -> None:
    identity = {"run_id": spec.run_id, "spec": to_mapping(spec), "tokenizer": "0" * 64}
    (folder / "spec.json").write_text(json.dumps(identity))
    steps = np.unique(np.linspace(0, reached, evaluations + 1).astype(int)[1:]) if evaluations else []
    (folder / "evaluations.jsonl").write_text("".join(evaluation_lines(spec, steps, ending.status, final)))
    every = np.unique(np.linspace(1, reached, logged).astype(int)) if logged else []
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log_rows(spec, every, final, rng)))
    if ending.status in ("finished", "diverged"):
        loss = None if ending.status == "diverged" else final
        result = {"run_id": spec.run_id, "status": ending.status, "step": reached, "loss_validation": loss}
        (folder / "result.json").write_text(
            json.dumps({**result, "skipped": 0, "seconds": 12.5, **asdict(spec.counts)})
        )
    elif ending.reason:
        (folder / "failure.json").write_text(json.dumps({"reason": ending.reason, "when": "", "host": ""}))


def evaluation_lines(spec: RunSpec, steps: Sequence[int], status: str, final: float) -> Iterator[str]:
    """Losses fall as a power of the step and arrive at `final` after the last planned one. What is the same in every
    row is turned into JSON once: a hundred thousand rows are a matter of seconds."""
    described = {
        "run_id": spec.run_id,
        "router": spec.router.name,
        "variant": spec.variant,
        "size": size_label(spec.counts.active_params),
        "experts": spec.router.experts,
        "k": spec.router.k,
        "routing_frequency": spec.routing_frequency,
        "seed": spec.train.seed,
        "tokens_planned": spec.train.steps * BATCH * LENGTH,
        **asdict(spec.counts),
    }
    same = json.dumps(described)[:-1]
    for step in map(int, steps):
        last = step == int(steps[-1])
        loss = "null" if last and status == "diverged" else repr(final * (spec.train.steps / step) ** 0.1)
        said = status if last and status != "failed" else "running"
        tokens = step * BATCH * LENGTH
        yield f'{same}, "step": {step}, "tokens": {tokens}, "loss_validation": {loss}, "status": "{said}"}}\n'


def log_rows(spec: RunSpec, steps: Sequence[int], final: float, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Loads that settle towards balance, expert 0 the busiest to the end."""
    for step in steps:
        layers = []
        for block in spec.routed_blocks:
            drawn = rng.dirichlet(np.full(spec.router.experts, 2.0 + 20 * step / spec.train.steps))
            drawn[0] *= 1.5
            load = (drawn / drawn.sum()).round(6).tolist()
            measured = {"load_entropy": 0.9, "dropped": 0.2 / math.sqrt(step), "oversubscribed": 0.1}
            layers.append({"block": block, "load": load, **measured, "losses": {"balance": 1.1}, "metrics": {}})
        yield {
            "step": int(step),
            "loss": final * (spec.train.steps / step) ** 0.1,
            "gradient_norm": 1.0,
            "learning_rate": 1e-3,
            "skipped": False,
            "layers": layers,
            "tokens_per_second": 1000.0,
            "seconds": step / 10,
        }


def seeded(specs: Sequence[RunSpec], seed: int) -> list[RunSpec]:
    """The same models with another seed."""
    return [replace(spec, train=replace(spec.train, seed=seed)) for spec in specs]
