"""The paper's released table, which is not part of the project: tests that need it skip where it is absent."""

from pathlib import Path

import pytest

from routelaw.runs.files import read_runs
from routelaw.runs.table import RunTable

RELEASED = Path(__file__).parents[1] / ".." / "shared" / "data" / "routing_curves.csv.gz"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first: at the end nobody waits for the last of them."""
    items.sort(key=lambda item: "slow" not in item.keywords)


@pytest.fixture(scope="session")
def released_path() -> Path:
    if not RELEASED.is_file():
        pytest.skip("the paper's released losses are not beside the repository (shared/data/routing_curves.csv.gz)")
    return RELEASED


@pytest.fixture(scope="session")
def released(released_path: Path) -> RunTable:
    return read_runs(released_path)
