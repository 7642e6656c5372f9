from collections.abc import Iterator

import pytest
from calling import command

from routelaw.figures import all_figures
from routelaw.report.runs import paper_figures

__all__ = ["command"]


@pytest.fixture(scope="session", autouse=True)
def _two_figures_of_the_paper() -> Iterator[None]:
    """Where these are not the point, two are enough: one that most tables allow, and one that few do."""
    few = [figure for figure in all_figures() if figure.name in ("three_panels_hash", "shared_decisions")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper_figures, "all_figures", lambda: few)
        yield
