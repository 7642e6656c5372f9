"""What the benchmarks share: which data they run on, and the line each leaves in results.jsonl."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from routelaw.bench.table import Table
from routelaw.fitting import Points, select_points
from routelaw.laws import get_law
from routelaw.runs.fetch import find_released
from routelaw.runs.files import read_runs
from routelaw.specs.counting import dense_params
from routelaw.specs.sizes import get_size

HERE = Path(__file__).parent
BESIDE = HERE.parent / ".." / "shared" / "data" / "routing_curves.csv.gz"
RESULTS = HERE / "results.jsonl"
S_BASE = {"a": -0.0833, "b": -0.1202, "c": 0.01013, "d": 1.1168, "e_start": 2.204, "e_max": 229.6}
"""Optimum of the paper's law on its S-BASE runs, for simulated points where those runs are not at hand."""
NEVER_RECORDED = ("__pycache__",)
SIZES = ("15M", "25M", "55M", "130M", "370M", "1.3B")


def use_one_thread() -> None:
    """Start over with one thread for matrix products: they are small here, and threads only add noise to the times."""
    wanted = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if not wanted.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def find_points(data: Path | None, router: str = "s-base") -> tuple[Points, str]:
    """The points of one router, and in words where they are from: a path, the user's cache, or a simulation."""
    path = data or (BESIDE if BESIDE.is_file() else find_released())
    if path is None:
        return simulated_points(), "simulated from the paper's law (no released table found; `routelaw data fetch`)"
    return select_points(read_runs(path), router), f"{router} of {path.name}"


def simulated_points(seed: int = 0, noise: float = 3e-3) -> Points:
    """Six sizes × ten expert counts from the paper's law, with independent noise of about its residuals."""
    experts_N = np.tile(2.0 ** np.arange(10), len(SIZES))
    active_N = np.repeat([float(dense_params(get_size(name))) for name in SIZES], 10)
    x = {"active_params": active_N, "experts": experts_N}
    log_loss_N = get_law("saturated").log_loss(get_law("saturated").row(S_BASE), x)[0]
    log_loss_N = log_loss_N + noise * np.random.default_rng(seed).standard_normal(log_loss_N.size)
    return Points(
        router="simulated",
        target="loss_validation",
        x=x,
        loss=10.0**log_loss_N,
        weight=np.ones(log_loss_N.size),
        size=np.repeat(np.array(SIZES, dtype=object), 10),
        dense=experts_N == 1,
    )


def append(benchmark: str, data: str, figures: dict[str, Any], device: str = "") -> None:
    """One JSON line: what was measured, when, of which commit and code, on what; `device` where it was not the
    CPU. None where nothing was measured."""
    if not figures:
        return
    line = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": COMMIT,
        "package": PACKAGE,
        "device": device or f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}",
        "data": data,
        "figures": figures,
    }
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def rounded(value: float) -> float:
    """To four digits."""
    return float(f"{value:.4g}")


def append_table(benchmark: str, table: Table) -> None:
    """A table of `routelaw.bench` as such a line."""
    append(benchmark, table.setting, table.figures(), str(table.machine))


def lines(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Every line there is, oldest first as they were appended."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def tree(folder: Path) -> str:
    """The name that git has for a folder with such files: `git rev-parse COMMIT:FOLDER`, if git has it at all."""
    entries = []
    for path in folder.iterdir():
        if path.name in NEVER_RECORDED:
            continue
        if path.is_dir():
            mode, order, name = b"40000", f"{path.name}/", tree(path)
        else:
            mode = b"100755" if os.access(path, os.X_OK) else b"100644"
            order, name = path.name, _named(b"blob", path.read_bytes())
        entries.append((order.encode(), mode + b" " + path.name.encode() + b"\0" + bytes.fromhex(name)))
    return _named(b"tree", b"".join(entry for _, entry in sorted(entries)))


def _named(kind: bytes, content: bytes) -> str:
    return hashlib.sha1(kind + b" %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def commit() -> str:
    def git(*arguments: str) -> str:
        try:
            done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return ""
        return done.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "none") + ("+changes" if git("status", "--porcelain") else "")


COMMIT, PACKAGE = commit(), tree(HERE.parent / "routelaw")[:7]
"""When a benchmark began: what is on the disk may change before it ends."""
