"""A store as training would leave it, written without training: what reading and analysing many runs is measured on.

Every run is a folder with spec.json, evaluations.jsonl, log.jsonl and result.json under the id of its spec; a few have
diverged, and a few have only begun. Losses follow the paper's bilinear law with noise, so that laws can be fitted.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import Any

from routelaw.runs.columns import columns_of
from routelaw.runs.folders import EVALUATIONS, LOG, RESULT, SPEC
from routelaw.runs.store import DIVERGED, FINISHED, RUNNING, UNFINISHED
from routelaw.specs.files import to_mapping
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size

SIZES = ("0.05M", "0.12M", "0.2M", "0.5M", "0.8M", "2M", "3M")
ROUTERS = ("s-base", "hash", "switch")
EXPERTS = (2, 4, 8, 16, 32)
STEPS, BATCH, LENGTH = 1000, 32, 64
DIVERGES, BEGINS = 97, 41
"""One run in so many diverged, and one in so many has not ended."""


def specs() -> Iterator[RunSpec]:
    """Dense and routed models of every size and E, with one seed after the other."""
    cells = [RouterSpec(), *(RouterSpec(router, experts) for router in ROUTERS for experts in EXPERTS)]
    for seed in count():
        for size in SIZES:
            model = ModelSpec(get_size(size), vocabulary=2048, sequence_length=LENGTH)
            for router in cells:
                yield RunSpec(model, router, TrainSpec(STEPS, BATCH, seed=seed), "c0ffee" * 10)


def write_store(store: Path, runs: int, evaluations: int, logged: int) -> Path:
    """Write so many runs, each with so many evaluations and rows of its log."""
    for number, spec in enumerate(islice(specs(), runs)):
        _write_run(store, spec, number, evaluations, logged)
    return store


def _write_run(store: Path, spec: RunSpec, number: int, evaluations: int, logged: int) -> None:
    status = DIVERGED if number % DIVERGES == 5 else RUNNING if number % BEGINS == 7 else FINISHED
    draw, run_id = random.Random(number), spec.run_id
    folder = store / UNFINISHED / f"{run_id}.1" if status == RUNNING else store / run_id
    folder.mkdir(parents=True)
    last = STEPS if status == FINISHED else STEPS // 2
    final = loss_of(spec) * 10 ** draw.gauss(0, 1e-3)
    identity = {"run_id": run_id, "spec": to_mapping(spec), "tokenizer": "0" * 64}
    (folder / SPEC).write_text(json.dumps(identity, indent=2))
    same = json.dumps(columns_of(spec))[:-1]
    lines = []
    for step in _steps(last, evaluations):
        ends = step == last and status != RUNNING
        loss = "null" if ends and status == DIVERGED else repr(final * (STEPS / step) ** 0.1)
        said, tokens = status if ends else RUNNING, spec.tokens_after(step)
        lines.append(f'{same}, "step": {step}, "tokens": {tokens}, "status": "{said}", "loss_validation": {loss}}}\n')
    (folder / EVALUATIONS).write_text("".join(lines))
    layers = json.dumps([_layer(block, spec.router.experts, draw) for block in spec.routed_blocks])
    rows = (
        f'{{"step": {step}, "loss": {final * (STEPS / step) ** 0.1!r}, "gradient_norm": 1.0, "learning_rate": 0.0002, '
        f'"skipped": false, "layers": {layers}, "tokens_per_second": 1000.0, "seconds": {step / 10}}}\n'
        for step in _steps(last, logged)
    )
    (folder / LOG).write_text("".join(rows))
    if status != RUNNING:
        loss = None if status == DIVERGED else final
        result = {"run_id": run_id, "status": status, "step": last, "loss_validation": loss, "seconds": last / 10}
        (folder / RESULT).write_text(json.dumps(result | asdict(spec.counts)))


def loss_of(spec: RunSpec) -> float:
    """The bilinear law of the paper with its own coefficients, and a little for each router."""
    u, v = math.log10(spec.counts.active_params), math.log10(spec.router.experts)
    behind = {"hash": 0.012, "switch": 0.004}.get(spec.router.name, 0.0)
    return 10 ** (1.117 - 0.083 * u - 0.12 * v + 0.0101 * u * v + behind * v)


def _steps(last: int, rows: int) -> list[int]:
    return sorted({max(1, round(last * (n + 1) / rows)) for n in range(rows)})


def _layer(block: int, experts: int, draw: random.Random) -> dict[str, Any]:
    drawn = [draw.uniform(0.5, 1.5) for _ in range(experts)]
    measured = {"load_entropy": 0.97, "dropped": 0.02, "oversubscribed": 0.1}
    return {
        "block": block,
        "load": [share / sum(drawn) for share in drawn],
        **measured,
        "losses": {"balance": 1.1},
        "metrics": {},
    }
