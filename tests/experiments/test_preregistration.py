"""Whether predictions came before the runs: what an allocation asks for, and what the report reads off the runs."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from drawn_runs import World, true_frame

from experiments.miniature.analysis.preregistration import (
    FILE,
    Preregistration,
    check_before_training,
    committed_here,
    hash_of,
    preregistration,
)
from experiments.miniature.analysis.study import Study, plain
from routelaw.errors import InputError
from routelaw.runs.table import RunTable

SIZE, OTHER = "8M", "2M"
MADE, LATER, EARLIER = "2026-01-02T10:00:00+00:00", "2026-01-02T11:00:00+00:00", "2026-01-02T09:00:00+00:00"


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / FILE
    path.write_text(json.dumps({"size": SIZE, "date": MADE}))
    return path


@pytest.fixture(scope="module")
def table() -> RunTable:
    frame = true_frame(World(studies=False, seeds=False), (OTHER, SIZE))
    return plain(RunTable.from_frame(frame, "drawn"))


def told(table: RunTable, file: Path, *, checked: bool = True, **last: str | None) -> Preregistration:
    """All runs of the size began later, with the file in place, where it was committed if that was checked; the last of
    them as told. The other size's did not."""
    finals = Study(table).finals
    costs = pd.DataFrame({"run_id": finals["run_id"], "began": EARLIER, "predictions": None, "committed": None})
    costs = costs.set_index("run_id")
    own = finals[finals["size"] == SIZE]["run_id"].tolist()
    committed = "yes" if checked else "cannot be checked"
    costs.loc[own, ["began", "predictions", "committed"]] = [LATER, hash_of(file), committed]
    for name, value in last.items():
        costs.loc[own[-1], name] = value
    return preregistration(Study(table, costs=costs.reset_index()), file)


def test_runs_that_began_later_with_the_file_in_place(table: RunTable, file: Path) -> None:
    found = told(table, file)
    assert found.shown
    assert "all 29 runs of 8M began with them in place" in found.words
    assert "cannot be told" in found.words


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({"began": EARLIER}, "Not blind: the first run began on 2026-01-02T09"),
        ({"predictions": "0" * 64}, "Not blind: 1 of 29 runs began without"),
        ({"predictions": None}, "Not blind: 1 of 29 runs began without"),
        ({"began": None}, "1 of 29 runs of 8M do not say"),
    ],
)
def test_one_run_that_did_not_is_enough(table: RunTable, file: Path, last: dict[str, str | None], words: str) -> None:
    found = told(table, file, **last)
    assert not found.shown
    assert words in found.words


def test_without_a_repository_a_commit_is_not_shown(table: RunTable, file: Path) -> None:
    """Neither where the runs began nor here."""
    for found, runs in ((told(table, file, checked=False), 29), (told(table, file, committed=None), 1)):
        assert not found.shown
        assert f"is not shown: {runs} of the runs began where that could not be checked" in found.words


def test_predictions_that_were_changed_since(table: RunTable, file: Path) -> None:
    before = told(table, file)
    costs = pd.DataFrame({"run_id": Study(table).finals["run_id"], "began": LATER, "predictions": hash_of(file)})
    file.write_text(json.dumps({"size": SIZE, "date": MADE, "loss": 2.0}))
    assert before.shown
    assert "changed since" in preregistration(Study(table, costs=costs), file).words


def test_without_costs_nothing_is_shown(table: RunTable, file: Path) -> None:
    assert preregistration(Study(table), file) == replace(
        told(table, file, began=None),
        words="That the predictions came first is not shown: 29 of 29 runs of 8M do not say when they began.",
    )


def test_a_commit_has_a_time_of_its_own(table: RunTable, file: Path) -> None:
    git(file.parent, "init")
    assert "cannot be told" in told(table, file).words, "not committed"
    git(file.parent, "add", FILE)
    git(file.parent, "commit", "-m", "x", "--date", "2026-01-02T10:30:00+00:00")
    for checked in (True, False):
        found = told(table, file, checked=checked)
        assert found.shown, "the repository that has them is enough"
        assert found.words.endswith("They were committed on 2026-01-02T10:30:00+00:00.")
    moved = file.parent / "later" / FILE
    moved.parent.mkdir()
    git(file.parent, "mv", FILE, f"later/{FILE}")
    git(file.parent, "commit", "-m", "y", "--date", "2026-01-04T10:30:00+00:00")
    assert told(table, moved) == told(table, moved, checked=False) == found, "to be moved is no change"
    git(file.parent, "reset", "--hard", "HEAD~1")
    moved = file.parent / "later" / FILE
    moved.parent.mkdir()
    git(file.parent, "mv", FILE, f"later/{FILE}")
    git(file.parent, "commit", "-m", "y", "--date", "2026-01-04T10:30:00+00:00")
    assert told(table, moved) == told(table, moved, checked=False) == found, "to be moved is no change"
    git(file.parent, "reset", "--hard", "HEAD~1")
    git(file.parent, "commit", "--amend", "-m", "x", "--date", "2026-01-03T10:30:00+00:00")
    late = told(table, file)
    assert not late.shown
    assert "committed only on 2026-01-03" in late.words


def test_an_allocation_asks_for_a_commit(file: Path) -> None:
    with pytest.raises(InputError, match="trained after it has been committed"):
        check_before_training(file.parent / "elsewhere" / FILE)
    assert committed_here(file.parent / "elsewhere" / FILE) is None
    assert "cannot be checked" in check_before_training(file)
    assert committed_here(file) == "cannot be checked"
    git(file.parent, "init")
    with pytest.raises(InputError, match="not committed as it is"):
        check_before_training(file)
    assert committed_here(file) == "no"
    git(file.parent, "add", FILE)
    git(file.parent, "commit", "-m", "x")
    assert check_before_training(file) == f"{FILE} is committed as it is."
    assert committed_here(file) == "yes"
    file.write_text("{}")
    with pytest.raises(InputError, match="not committed as it is"):
        check_before_training(file)
