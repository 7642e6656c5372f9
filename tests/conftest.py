"""The paper's released table, which is not part of the project: tests that need it skip where it is absent."""

import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported: workers whose threads wait for each other took five times as long as with one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")
import pytest
import typer.main

from routelaw import laws, plugins
from routelaw.kernels.cpu_bfloat16 import make_safe
from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable

# Typer builds its tree of commands anew for each call, which takes longer than most commands that tests call.
typer.main.get_command = functools.cache(typer.main.get_command)

RELEASED = Path(__file__).parents[1] / ".." / "shared" / "data" / "routing_curves.csv.gz"


def pytest_configure() -> None:
    """On a CPU that advertises what it cannot run, a product in bfloat16 would end a worker; they inherit this."""
    make_safe()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first: at the end nobody waits for the last of them. Bad inputs are many, and short each."""
    items.sort(key=lambda item: (not {"slow", "long"} & set(item.keywords), "bad_input" in item.nodeid))


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look at it over and over."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where a browser or the interpreter is missing their tests skip: a log shows whether they were executed."""
    passed = [report.nodeid for report in terminalreporter.stats.get("passed", [])]
    for what, part in (("in Chromium", "in_browser.py"), ("in Triton's interpreter", "interpret")):
        if count := sum(part in name for name in passed):
            terminalreporter.write_line(f"{count} tests executed {what}")


@pytest.fixture(autouse=True)
def _own_plugins() -> Iterator[None]:
    """A law or router that a test loads as a plugin is gone after it: figures draw all laws there are."""
    before = dict(laws._plugins)
    yield
    laws._plugins.clear()
    laws._plugins.update(before)
    plugins._router_files.clear()
    routers = sys.modules.get("routelaw.routers.router")
    known = {} if routers is None else routers._registry
    for name in [name for name, kind in known.items() if kind.__module__.startswith(plugins.PREFIX)]:
        del known[name]


@pytest.fixture(scope="session")
def released_path() -> Path:
    if not RELEASED.is_file():
        pytest.skip("the paper's released losses are not beside the repository (shared/data/routing_curves.csv.gz)")
    return RELEASED


@pytest.fixture(scope="session")
def released(released_path: Path) -> RunTable:
    return read_runs(released_path)
