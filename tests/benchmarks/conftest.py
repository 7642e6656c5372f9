"""Scripts of benchmarks/ as modules; they import each other by name."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def benchmarks() -> Path:
    return Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(benchmarks: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(benchmarks)
    return import_module
