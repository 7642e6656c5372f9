"""Tables of the reproduction, each computed at most once."""

from collections.abc import Callable

import pytest

from routelaw.figures import cutoff_by_law
from routelaw.report.clark2022 import BUILDERS
from routelaw.report.clark2022.verdict import ResultTable


@pytest.fixture(scope="session")
def built(released) -> Callable[[str], ResultTable]:
    known: dict[str, ResultTable] = {}

    def build(name: str) -> ResultTable:
        if name not in known:
            with pytest.MonkeyPatch.context() as patch:
                # Intervals of every law are slow; their width is tested where they are made.
                patch.setattr(cutoff_by_law, "DRAWS", 20)
                known[name] = BUILDERS[name](released)
        return known[name]

    return build
