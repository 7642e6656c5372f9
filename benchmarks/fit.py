"""Speed and certainty of fits, and of reading a store, each against a named baseline measured in the same run.

    python -m benchmarks.fit [--data RUNS] [--record]

1. The six-parameter law: `fit_law` against the paper's procedure, the best of 500 L-BFGS-B starts.
2. Is the objective ever worse? 100 case resamples, against the best of 20 L-BFGS-B starts polished by
   scipy.optimize.least_squares to full precision.
3. Cross-validation and 1,000 size-bootstrap fits of one router; and, as six sizes allow only 462 different resamples
   and equal ones are fitted once, also 1,000 case-bootstrap fits, all different; against as many single fits.
4. `routelaw --help` against a bare `python -c 'import typer, rich'`.
5. A store of 1,000 runs with 100 evaluations, read as a table, against json.loads alone on the same lines.

Times are CPU seconds of one thread: on an idle machine the same as wall-clock, on a busy one still comparable.
"""

from __future__ import annotations

import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from benchmarks.script import DATA, run, use_one_thread
from routelaw.bench.analysis import write_losses, write_store
from routelaw.bench.results import Row, row
from routelaw.fitting import Fit, Points, fit_law, select_points
from routelaw.fitting.intervals import bootstrap
from routelaw.fitting.published import fit_lbfgsb
from routelaw.fitting.validation import validate
from routelaw.runs.fetch import find_released
from routelaw.runs.files import read_runs

LAW = "saturated"
WORSE = 1e-9
"""Relative excess of the squared error that counts as a worse objective: above rounding, far below a printed digit."""
WANTED = {
    "speedup": (100, math.inf), "worse": (0, 0), "with_size_bootstrap_s": (0, 5), "with_case_bootstrap_s": (0, 5),
    "help_ratio": (0, 3),
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    data: Path | None = None
    """A run table; by default the released one, beside the repository or cached."""
    starts: int = 500
    """L-BFGS-B starts of the baseline."""
    resamples: int = 100
    runs: int = 1000
    evaluations: int = 100


def find_points(data: Path | None) -> tuple[Points, str]:
    """The points of S-BASE, and in words where they are from: a path, the user's cache, or a simulation."""
    beside = DATA / "routing_curves.csv.gz"
    path = data or (beside if beside.is_file() else find_released())
    if path is not None:
        return select_points(read_runs(path), "s-base"), f"s-base of {path.name}"
    with tempfile.TemporaryDirectory() as folder:
        points = select_points(read_runs(write_losses(Path(folder) / "runs.csv", 60)), "s-base")
    return points, "simulated from the paper's law (no released table found; `routelaw data fetch`)"


def seconds(action: Callable[[], object], repeats: int = 1) -> float:
    """Median CPU time of this process and of those it starts."""

    def spent() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + children.ru_utime + children.ru_stime

    times = []
    for _ in range(repeats):
        began = spent()
        action()
        times.append(spent() - began)
    return statistics.median(times)


def squared_error(fit: Fit) -> float:
    return float(fit.points.weight @ fit.residual_N**2)


def fit_time(points: Points, starts: int) -> Row:
    fit_law(LAW, points)
    before = seconds(lambda: fit_law(LAW, points), 20)
    found: list[Fit] = []
    published = seconds(lambda: found.append(fit_lbfgsb(LAW, points, starts)))
    ours = statistics.median([before, seconds(lambda: fit_law(LAW, points), 20)])
    excess = squared_error(found[0]) / squared_error(fit_law(LAW, points)) - 1
    figures = {"fit_s": ours, "lbfgsb_s": published, "speedup": published / ours, "lbfgsb_excess_error": excess}
    return row("six-parameter fit", figures)


def never_worse(points: Points, resamples: int, starts: int = 20) -> Row:
    rng = np.random.default_rng(0)
    excesses, gains = [], []
    for seed in range(resamples):
        weight_N = rng.multinomial(len(points), np.full(len(points), 1 / len(points))).astype(float)
        drawn = replace(points, weight=weight_N).where(weight_N > 0)
        ours, rough = fit_law(LAW, drawn), fit_lbfgsb(LAW, drawn, starts, seed)
        excesses.append(squared_error(ours) / polished_error(rough) - 1)
        gains.append(squared_error(rough) / squared_error(ours) - 1)
    figures = {"resamples": resamples, "worse": sum(excess > WORSE for excess in excesses)}
    figures |= {"largest_excess": max(excesses), "lbfgsb_median_excess": statistics.median(gains)}
    return row("objective of case resamples", figures)


def polished_error(rough: Fit) -> float:
    """Squared error after SciPy's own least squares, to full precision, from where a rough fit ended."""
    law, points = rough.law, rough.points
    scale = 1 / rough.rmsle

    def residuals(search_P: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            residual_N = law.log_loss(law.from_search(search_P[None]), points.x)[0] - points.log_loss
        return scale * np.sqrt(points.weight) * np.where(np.isfinite(residual_N), residual_N, 1.0)

    low_P, high_P = law.search_bounds()
    polished = least_squares(
        residuals, np.clip(rough.search_P, low_P, high_P), jac="3-point", bounds=(low_P, high_P), x_scale="jac",
        ftol=1e-15, xtol=1e-15, gtol=1e-15, max_nfev=2000,
    )  # fmt: skip
    return min(float(2 * polished.cost / scale**2), squared_error(rough))


def validation_time(points: Points) -> Row:
    fit = fit_law(LAW, points)
    crossed = seconds(lambda: validate(fit), 3)
    single = seconds(lambda: fit_law(LAW, points), 10)
    figures = {"cross_validation_s": crossed, "single_fits_s": (len(points) + len(points.sizes) + 1000) * single}
    for method in ("size", "case"):
        spent = seconds(lambda m=method: bootstrap(fit, f"{m}-bootstrap", 1000), 3)
        figures |= {f"{method}_bootstrap_s": spent, f"with_{method}_bootstrap_s": crossed + spent}
    return row("cross-validation and 1,000 bootstrap fits", figures)


def help_time(repeats: int = 9) -> Row:
    def command(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    pairs = [
        (seconds(command("-m", "routelaw", "--help")), seconds(command("-c", "import typer, rich")))
        for _ in range(repeats + 1)
    ][1:]  # the first pair fills the caches
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    return row("routelaw --help", {"help_s": ours, "bare_import_s": bare, "help_ratio": ours / bare})


def store_time(runs: int, evaluations: int) -> Row:
    with tempfile.TemporaryDirectory() as name:
        store = write_store(Path(name), runs, evaluations, 1)

        def parse() -> None:
            for file in store.glob("*/evaluations.jsonl"):
                for line in file.read_bytes().splitlines():
                    json.loads(line)

        ours, plain = seconds(lambda: read_runs(store), 3), seconds(parse, 3)
    return row("reading a store", {"seconds": ours, "over_json_loads": ours / plain})


def rows(options: Options) -> Iterator[Row]:
    points, _ = find_points(options.data)
    yield fit_time(points, options.starts)
    yield never_worse(points, options.resamples)
    yield validation_time(points)
    yield help_time()
    yield store_time(options.runs, options.evaluations)


if __name__ == "__main__":
    use_one_thread()
    run("fit", __doc__, Options, rows, lambda options: find_points(options.data)[1], wanted=WANTED)
