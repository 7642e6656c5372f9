"""What the analysis costs as it grows: processor seconds of whole commands on more and more runs and points.

Each is a process of its own, as a user starts it, on a store or table made here; its user and system time are counted,
so neither other programs nor the number of processors matter much. `over linear` is by how much more the time grew
than the work since the row before; what a command takes to begin is in both rows, so it may lie far below 1.

Rows: `runs list`, `fit` and `report` of stores, `compare` of the losses released with the paper (where they have been
fetched, else of a table of their shape), and the cross validation of a law on many points.

The store is one as training would leave it, written without training: every run is a folder with spec.json,
evaluations.jsonl, log.jsonl and result.json under the id of its spec; a few have diverged, and a few have only begun.
Losses follow the paper's bilinear law with noise, so that laws can be fitted.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from routelaw.bench.clock import attempt
from routelaw.bench.results import Description, Row, row
from routelaw.runs.fetch import find_released
from routelaw.runs.folders import EVALUATIONS, LOG, RESULT, SPEC, columns_of
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


SECONDS, PER_THOUSAND, GROWTH = "processor (s)", "per 1,000 (s)", "over linear"
VALIDATE = """
import sys
from routelaw.fitting import fit_law, select_points
from routelaw.fitting.validation import validate
from routelaw.runs.files import read_runs
validate(fit_law("saturated", select_points(read_runs(sys.argv[1]), "s-base")))
"""


@dataclass(frozen=True)
class Options:
    runs: tuple[int, ...] = (100, 1000, 10_000)
    """Runs of the stores that are listed and fitted."""
    reported: tuple[int, ...] = (100, 1000)
    points: tuple[int, ...] = (50, 500, 5000)
    evaluations: int = 5
    report_evaluations: int = 15
    logged: int = 200
    """Rows of the logs that a report reads."""
    compare: bool = True
    repeats: int = 2
    """The least of so many counts: a processor is shared."""


FULL = ON_CPU = Options()
QUICK = Options(runs=(20,), reported=(), points=(30,), compare=False, repeats=1)


def rows(options: Options) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for count in options.runs:
            write_store(place / f"listed-{count}", count, options.evaluations, 3)
        for count in options.reported:
            write_store(place / f"reported-{count}", count, options.report_evaluations, options.logged)
        yield from _grown(
            "runs list", "runs", {n: ("runs", "list", f"{place}/listed-{n}") for n in options.runs}, options
        )
        fits = {n: ("fit", f"{place}/listed-{n}", "--router", "s-base") for n in options.runs}
        yield from _grown("fit", "runs", fits, options)
        reports = {
            n: ("report", f"{place}/reported-{n}", "--out", f"{place}/page-{n}", "--force") for n in options.reported
        }
        yield from _grown("report", "runs", reports, options)
        if options.compare:
            released = find_released()
            table = released or write_losses(place / "table.csv", 60, ("s-base", "rl-r", "hash"))
            name = "compare, released losses" if released else "compare, made-up losses of the released shape"
            yield attempt(name, lambda: row(name, {SECONDS: _least(("compare", str(table)), options.repeats)}))
        points = {n: ("-c", VALIDATE, str(write_losses(place / f"points-{n}.csv", n))) for n in options.points}
        yield from _grown("validate", "points", points, options)


def _grown(name: str, what: str, commands: Mapping[int, Sequence[str]], options: Options) -> Iterator[Row]:
    before: tuple[int, float] | None = None
    for amount, command in commands.items():
        made = attempt(
            f"{name}, {amount:,} {what}", partial(_measured, name, what, amount, command, before, options.repeats)
        )
        yield made
        before = (amount, made.figures[SECONDS]) if SECONDS in made.figures else None


def _measured(
    name: str, what: str, amount: int, command: Sequence[str], before: tuple[int, float] | None, repeats: int
) -> Row:
    seconds = _least(command, repeats)
    figures = {SECONDS: seconds, PER_THOUSAND: 1000 * seconds / amount}
    if before is not None:
        figures[GROWTH] = (seconds / before[1]) / (amount / before[0])
    return row(f"{name}, {amount:,} {what}", figures)


def _least(command: Sequence[str], repeats: int) -> float:
    return min(processor_seconds(command) for _ in range(repeats))


def processor_seconds(command: Sequence[str]) -> float:
    """User and system time of a command of ours, or of Python where it begins with -c; its failure is an error."""
    own = [] if command[0] == "-c" else ["-m", "routelaw"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *own, *command], capture_output=True, text=True, env=environment, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} ended with {done.returncode}: {done.stderr.strip()[-150:]}")
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def write_losses(path: Path, points: int, routers: Sequence[str] = ("s-base",)) -> Path:
    """Losses of so many models of each router at ten sizes, that follow the paper's law with noise of half a percent.
    Dense ones are every router's E = 1."""
    lines = ["run_id,router,experts,active_params,total_params,flops_per_token,size,loss_validation"]
    for router in routers:
        lines += _models(router, points, dense=router == routers[0])
    path.write_text("\n".join(lines) + "\n")
    return path


def _models(router: str, points: int, *, dense: bool) -> Iterator[str]:
    draw, sizes = random.Random(router), 10
    for number in range(0 if dense else sizes, points):
        size, experts = number % sizes, 1 + number // sizes
        active = round(10 ** (7.2 + 1.9 * size / (sizes - 1)))
        effective = 1 / (1 / (experts - 1 + 1 / (1 / 2.2 - 1 / 230)) + 1 / 230)
        u, v = math.log10(active), math.log10(effective)
        loss = 10 ** (1.117 - 0.083 * u - 0.12 * v + 0.0101 * u * v + draw.gauss(0, 2e-3))
        named = "dense" if experts == 1 else router
        total = active + round(active * (experts - 1) / 3)
        cells = (f"{named}-{number}", named, experts, active, total, 2 * active, f"{active / 1e6:.0f}M", repr(loss))
        yield ",".join(map(str, cells))


def describe(options: Options) -> Description:
    columns = {
        SECONDS: f"user and system time of the whole command, least of {options.repeats}",
        PER_THOUSAND: "for every thousand runs or points",
        GROWTH: "growth of the time over growth of the work since the row before: at most 1 is linear",
    }
    setting = (
        f"Stores of synthetic runs ({options.evaluations} evaluations each; {options.report_evaluations} and "
        f"{options.logged} rows of log for reports), one thread of BLAS"
    )
    return Description(setting, "the row before, were the time linear", columns)
