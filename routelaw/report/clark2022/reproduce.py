"""Recompute and redraw the paper from its released losses: tables, figures, one page, one summary.

Tables and figures are independent tasks. Two worker processes share them, the slow ones begun first; results are put in
the order of the page, so how the work was split cannot be seen in what is written.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from routelaw.errors import InputError
from routelaw.figures import all_figures
from routelaw.figures.figure import CannotDraw, Figure
from routelaw.report.clark2022 import BUILDERS, TOGETHER
from routelaw.report.clark2022.counts import RELEASED_RUNS
from routelaw.report.clark2022.pages import build_page, findings, totals
from routelaw.report.clark2022.printed import CORRECTIONS, MISSING
from routelaw.report.clark2022.verdict import ResultTable
from routelaw.report.page import Picture, ReportProgress, embedded, report_folder
from routelaw.runs.fetch import find_released
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable

WORKERS = 2
Result = ResultTable | str | None
"""A table; for a figure None, or why it could not be drawn."""
FIELDS = ("table", "row", "column", "printed", "ours", "difference", "verdict", "convention", "low", "high", "note")


@dataclass(frozen=True)
class BuildTask:
    kind: str
    """"table" or "figure"."""
    name: str


def released_runs(data: Path | None) -> RunTable:
    """The released table at `data` or in the cache; anything else is refused."""
    path = data or find_released()
    if path is None:
        raise InputError("no released losses found: run `routelaw data fetch` once, or give the file with --data.")
    runs = read_runs(path)
    if not is_released(runs):
        found = runs.frame["run_id"].nunique()
        raise InputError(
            f"{path}: this is not the table that the paper's authors released ({RELEASED_RUNS} runs; here are "
            f"{found}); "
            "get it with `routelaw data fetch`."
        )
    return runs


def is_released(runs: RunTable) -> bool:
    return "hyper_id" in runs.frame and runs.frame["run_id"].nunique() == RELEASED_RUNS


def reproduce(data: Path | None, out: Path, *, force: bool = False, workers: int = WORKERS) -> Iterator[ReportProgress]:
    """Write everything to `out`, telling after each table and figure how far it is. A failure leaves nothing behind."""
    with report_folder(out, force=force) as folder:
        runs = released_runs(data)
        for sub in ("tables", "figures"):
            (folder / sub).mkdir()
        groups = _groups()
        total = sum(map(len, groups)) + 1
        tables: dict[str, ResultTable] = {}
        not_drawn: dict[str, str] = {}
        for done, (task, result) in enumerate(_results(groups, runs, folder, workers), start=1):
            if isinstance(result, ResultTable):
                tables[task.name] = result
            elif result:
                not_drawn[task.name] = result
            yield ReportProgress(done, total, f"{task.kind} {task.name}")
        summary = _write(folder, runs, {name: tables[name] for name in BUILDERS}, not_drawn)
    yield ReportProgress(total, total, "page", {**summary, "page": str(Path(out) / "index.html")})


def _figures() -> list[Figure]:
    """Those of runs that were released; what was not is listed on the page by itself."""
    return [figure for figure in all_figures() if figure.released]


def _groups() -> list[tuple[BuildTask, ...]]:
    """What one process does in one go: the groups that share work first, then every other task by itself."""
    figures = {figure.name: BuildTask("figure", figure.name) for figure in _figures()}
    tasks = {**figures, **{name: BuildTask("table", name) for name in BUILDERS}}
    groups = [tuple(tasks.pop(name) for name in names if name in tasks) for names in TOGETHER]
    return [*groups, *((task,) for task in tasks.values())]


def _results(
    groups: list[tuple[BuildTask, ...]], runs: RunTable, folder: Path, workers: int
) -> Iterator[tuple[BuildTask, Result]]:
    """Each task with its table, or with why a figure could not be drawn, as they finish."""
    if workers <= 1:
        for group in groups:
            yield from zip(group, _perform_group(group, runs, folder), strict=True)
        return
    with (
        _one_thread_each(),
        ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        futures = {pool.submit(_perform_from_file, group, runs.source, folder): group for group in groups}
        try:
            for future in as_completed(futures):
                yield from zip(futures[future], future.result(), strict=True)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _perform_from_file(group: tuple[BuildTask, ...], source: str, folder: Path) -> list[Result]:
    return _perform_group(group, _read_once(source), folder)


@cache
def _read_once(source: str) -> RunTable:
    return read_runs(source)


def _perform_group(group: tuple[BuildTask, ...], runs: RunTable, folder: Path) -> list[Result]:
    return [_perform(task, runs, folder) for task in group]


def _perform(task: BuildTask, runs: RunTable, folder: Path) -> Result:
    if task.kind == "table":
        return BUILDERS[task.name](runs)
    figure = next(figure for figure in all_figures() if figure.name == task.name)
    try:
        figure.save(runs, folder / "figures")
    except (CannotDraw, InputError) as error:
        return str(error)
    return None


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers that each start a thread per core in BLAS are slower than workers that do not."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _write(folder: Path, runs: RunTable, tables: dict[str, ResultTable], not_drawn: dict[str, str]) -> dict:
    for table in tables.values():
        write_csv(table, folder / "tables")
    figures = [figure for figure in _figures() if figure.name not in not_drawn]
    undrawn = [(f.title, not_drawn[f.name]) for f in _figures() if f.name in not_drawn]
    pictures = [_picture(folder, figure) for figure in figures]
    (folder / "index.html").write_text(build_page(runs, tables, pictures, undrawn), encoding="utf-8")
    summary = {
        "source": runs.source,
        "verdicts": dict(totals(tables)),
        "tables": {name: table_summary(table) for name, table in tables.items()},
        "figures": {f.name: {"title": f.title, "paper": f.paper, "files": _files(f.name)} for f in figures},
        "not_drawn": dict(undrawn),
        "findings": findings(tables),
        "not_in_the_release": [{"what": m.what, "paper": m.paper, "why": m.why} for m in MISSING],
        "corrections": list(CORRECTIONS),
        "notes": list(runs.notes),
    }
    (folder / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return summary


def _files(name: str) -> list[str]:
    return [f"figures/{name}.{kind}" for kind in ("svg", "png")]


def _picture(folder: Path, figure) -> Picture:
    files = _files(figure.name)
    return Picture(
        name=f"figure-{figure.name}",
        title=figure.title,
        caption=f"{figure.caption} {figure.on_release}".strip(),
        image=embedded([folder / file for file in files]),
        source=figure.paper,
        links=[(file.rpartition(".")[2].upper(), file) for file in files],
    )


def write_csv(table: ResultTable, folder: Path) -> Path:
    path = folder / f"{table.name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(FIELDS)
        for cell in table.cells:
            numbers = map(_number, (cell.printed_value, cell.ours, cell.difference))
            verdict = (cell.verdict, cell.convention or table.convention)
            ends = map(_number, (cell.low, cell.high))
            writer.writerow([table.name, cell.row, cell.column, *numbers, *verdict, *ends, cell.note])
    return path


def _number(value: float | None) -> str:
    """Twelve digits: what differs beyond them between machines is rounding."""
    return "" if value is None else f"{value:.12g}"


def table_summary(table: ResultTable) -> dict[str, object]:
    return {
        "title": table.title,
        "paper": table.paper,
        "cells": len(table.cells),
        "verdicts": table.counts(),
        "convention": table.convention,
        "tolerance": table.tolerance,
        "file": f"tables/{table.name}.csv",
    }
