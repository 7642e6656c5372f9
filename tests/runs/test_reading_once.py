"""What listing a store reads: every file of a run once, whatever is asked of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from routelaw import files
from routelaw.bench.analysis import write_store
from routelaw.runs import folders
from routelaw.runs.listing import list_runs
from routelaw.runs.store import Store


@pytest.mark.parametrize("runs", [30, 90])
@pytest.mark.parametrize("read", [list_runs, Store.table], ids=["listed", "table"])
def test_each_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int, read) -> None:
    store = write_store(tmp_path / "store", runs, evaluations=3, logged=2)
    reads: Counter[str] = Counter()
    plain = files.open_regular

    def counted(path):
        reads[str(path)] += 1
        return plain(path)

    monkeypatch.setattr(files, "open_regular", counted)
    monkeypatch.setattr(folders, "open_regular", counted)
    read(Store(store))
    assert max(reads.values()) == 1
    assert {Path(path).name for path in reads} <= {"evaluations.jsonl", "result.json", "lease.json"}
    assert len(reads) <= 2 * runs
    assert sum(Path(path).name == "evaluations.jsonl" for path in reads) == runs


def test_a_damaged_result_is_said_and_the_others_are_listed(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 12, evaluations=3, logged=2)
    damaged = next(file for file in sorted(store.glob("*/result.json")))
    damaged.write_text('{"run_id": "another"}')
    said: list[str] = []
    assert len(list_runs(Store(store), said.append)) == 12
    assert len(said) == 1
    assert "is of another run" in said[0]
