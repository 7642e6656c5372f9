"""Speed and certainty of fits, each against a named baseline measured in the same run.

    python benchmarks/fit.py [--data RUNS]

1. The six-parameter law: `fit_law` against the paper's procedure, the best of 500 L-BFGS-B starts.
2. Is the objective ever worse? 100 case resamples, against the best of 20 L-BFGS-B starts polished by
   scipy.optimize.least_squares to full precision.
3. Cross-validation and 1,000 size-bootstrap fits of one router; and, as six sizes allow only 462 different resamples
   and equal ones are fitted once, also 1,000 case-bootstrap fits, all different.
4. `routelaw --help` against a bare `python -c 'import typer, rich'`.

Times are CPU seconds of one thread: on an idle machine the same as wall-clock, on a busy one still comparable.
Appends one line to results.jsonl.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import ledger
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import least_squares

from routelaw.fitting import Fit, Points, fit_law
from routelaw.fitting.intervals import bootstrap
from routelaw.fitting.published import fit_lbfgsb
from routelaw.fitting.validation import validate

LAW = "saturated"
WORSE = 1e-9
"""Relative excess of the squared error that counts as a worse objective: above rounding, far below a printed digit."""


@dataclass(frozen=True)
class Line:
    what: str
    ours: str
    baseline: str
    ratio: str
    wanted: str
    passed: bool


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


def fit_time(points: Points, starts: int) -> tuple[list[Line], dict[str, float]]:
    fit_law(LAW, points)
    before = seconds(lambda: fit_law(LAW, points), 20)
    found: list[Fit] = []
    published = seconds(lambda: found.append(fit_lbfgsb(LAW, points, starts)))
    ours = statistics.median([before, seconds(lambda: fit_law(LAW, points), 20)])
    excess = squared_error(found[0]) / squared_error(fit_law(LAW, points)) - 1
    ratio = published / ours
    line = Line(
        "six-parameter fit",
        f"{1e3 * ours:.1f} ms",
        f"{published:.1f} s (best of {starts} L-BFGS-B; error {excess:+.2%})",
        f"{ratio:.0f}× faster",
        "≥ 100×",
        ratio >= 100,
    )
    return [line], {"fit_s": ours, "lbfgsb_s": published, "speedup": ratio, "lbfgsb_excess_error": excess}


def never_worse(points: Points, resamples: int, starts: int) -> tuple[list[Line], dict[str, float]]:
    rng = np.random.default_rng(0)
    worse, largest, gains = 0, -np.inf, []
    for seed in range(resamples):
        weight_N = rng.multinomial(len(points), np.full(len(points), 1 / len(points))).astype(float)
        drawn = replace(points, weight=weight_N).where(weight_N > 0)
        ours, rough = fit_law(LAW, drawn), fit_lbfgsb(LAW, drawn, starts, seed)
        excess = squared_error(ours) / polished_error(rough) - 1
        worse, largest = worse + (excess > WORSE), max(largest, excess)
        gains.append(squared_error(rough) / squared_error(ours) - 1)
    line = Line(
        f"objective, {resamples} case resamples",
        f"worse {worse} times (at most {largest:+.0e})",
        f"best of {starts} L-BFGS-B, polished by least_squares",
        f"L-BFGS-B itself: {statistics.median(gains):+.1%}",
        "never worse",
        worse == 0,
    )
    return [line], {
        "resamples": resamples,
        "worse": worse,
        "largest_excess": largest,
        "lbfgsb_median_excess": statistics.median(gains),
    }


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


def judgement_time(points: Points) -> tuple[list[Line], dict[str, float]]:
    fit = fit_law(LAW, points)
    crossed = seconds(lambda: validate(fit), 3)
    by_size = seconds(lambda: bootstrap(fit, "size-bootstrap", 1000), 3)
    by_case = seconds(lambda: bootstrap(fit, "case-bootstrap", 1000), 3)
    single = seconds(lambda: fit_law(LAW, points), 10)
    refits = len(points) + len(points.sizes) + 1000
    lines = [
        Line(
            f"cross-validation + 1,000 {name} fits",
            f"{crossed + spent:.2f} s",
            f"{refits * single:.1f} s ({refits} × fit_law)",
            f"{refits * single / (crossed + spent):.0f}× faster",
            "≤ 5 s",
            crossed + spent <= 5,
        )
        for name, spent in (("size-bootstrap", by_size), ("case-bootstrap (all different)", by_case))
    ]
    return lines, {"cross_validation_s": crossed, "size_bootstrap_s": by_size, "case_bootstrap_s": by_case}


def help_time(repeats: int) -> tuple[list[Line], dict[str, float]]:
    def command(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)

    pairs = [
        (seconds(command("-m", "routelaw", "--help")), seconds(command("-c", "import typer, rich")))
        for _ in range(repeats + 1)
    ][1:]  # the first pair fills the caches
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    line = Line(
        "routelaw --help",
        f"{1e3 * ours:.0f} ms",
        f"{1e3 * bare:.0f} ms (python -c 'import typer, rich')",
        f"{ours / bare:.2f}× as long",
        "≤ 3×",
        ours <= 3 * bare,
    )
    return [line], {"help_s": ours, "bare_import_s": bare, "help_ratio": ours / bare}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--data", type=Path, help="a run table; by default the released one beside the repository or cached"
    )
    parser.add_argument("--starts", type=int, default=500, help="L-BFGS-B starts of the baseline")
    parser.add_argument("--resamples", type=int, default=100)
    options = parser.parse_args()
    ledger.use_one_thread()
    points, data = ledger.find_points(options.data)
    console = Console() if sys.stdout.isatty() else Console(width=170)
    table = Table("what", "ours", "baseline", "ratio", "wanted", "", title=f"Fits of law {LAW} to {data}")
    figures: dict[str, float] = {}
    passed = True
    with console.status("measuring …"):
        for measure in (
            lambda: fit_time(points, options.starts),
            lambda: never_worse(points, options.resamples, starts=20),
            lambda: judgement_time(points),
            lambda: help_time(repeats=9),
        ):
            lines, measured = measure()
            figures |= {name: float(f"{value:.4g}") for name, value in measured.items()}
            for line in lines:
                passed &= line.passed
                table.add_row(line.what, line.ours, line.baseline, line.ratio, line.wanted, "✓" if line.passed else "✗")
    console.print(table)
    ledger.append("fit", data, figures)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
