"""The table of what the analysis costs, and the store that it is measured on."""

from __future__ import annotations

from pathlib import Path

import pytest

from routelaw.bench import analysis, measured
from routelaw.bench.analysis import write_store
from routelaw.fitting import fit_law, select_points
from routelaw.runs.listing import list_runs
from routelaw.runs.store import Store


def test_a_store_as_training_leaves_it(tmp_path: Path) -> None:
    store = Store(write_store(tmp_path / "store", 120, evaluations=4, logged=5))
    said: list[str] = []
    rows = list_runs(store, said.append)
    assert (len(rows), said) == (120, [])
    assert set(rows["status"]) == {"finished", "diverged", "stopped"}
    assert all(run.spec.run_id == run.run_id for run in store.runs())
    assert {len(run.log()) for run in store.runs()} == {5}
    fit = fit_law("bilinear", select_points(store.table(), "s-base"))
    assert fit.params["a"] == pytest.approx(-0.083, abs=0.01)


def test_rows_of_the_table() -> None:
    table = measured("analysis", analysis.QUICK)
    assert table.failures == ()
    assert list(table.rows) == ["runs list, 20 runs", "fit, 20 runs", "validate, 30 points"]
    assert all(row[analysis.SECONDS] > 0 for row in table.rows.values())


def test_growth_is_against_the_row_before(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([1.0, 10.0, 200.0])
    monkeypatch.setattr(analysis, "processor_seconds", lambda _: next(seconds))
    options = analysis.Options(runs=(), reported=(), compare=False, points=(50, 500, 5000), repeats=1)
    rows = list(analysis.rows(options))
    assert [row.figures.get(analysis.GROWTH) for row in rows] == [None, 1.0, 2.0]


def test_a_command_that_fails_is_in_the_table() -> None:
    with pytest.raises(RuntimeError, match="ended with 2"):
        analysis.processor_seconds(("runs", "list", "/nowhere"))
