"""What follows from how a run went: ended, held by another, failed, lost again and again, or a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from routelaw.errors import DiskFull
from routelaw.runs.store import Store
from routelaw.sweeps import task as schedule_module
from routelaw.sweeps.progress import Lost, RunEnded, RunFailed, Waiting
from routelaw.sweeps.task import BUSY, ENDED, FAILED, FULL, MOST_DEATHS, STOPPED, Outcome, Schedule, Task


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def tasks(*names: str) -> list[Task]:
    return [Task(name, "store", {}, {}, "corpus") for name in names]


def logged(store: Store, run_id: str, step: int) -> Path:
    folder = store.path / "unfinished" / f"{run_id}.1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.jsonl").write_text(json.dumps({"step": step}) + "\n")
    return folder


def test_in_order_until_all_are_settled(store: Store) -> None:
    schedule = Schedule(tasks("a", "b"), store)
    assert (schedule.next_task().run_id, schedule.next_task().run_id, schedule.next_task()) == ("a", "b", None)
    assert not schedule.over
    assert list(schedule.settle(Outcome("b", ENDED))) == [RunEnded("b")]
    assert list(schedule.settle(Outcome("a", FAILED, "why"))) == [RunFailed("a", "why")]
    assert schedule.over


@pytest.mark.parametrize("kind", [BUSY, STOPPED])
def test_what_another_has_comes_back_later(store: Store, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(schedule_module.time, "monotonic", lambda: now[0])
    schedule = Schedule(tasks("a", "b"), store)
    schedule.next_task()
    said = [Waiting("a", "host x")] if kind == BUSY else []  # once, however often it is asked for
    assert list(schedule.settle(Outcome("a", kind, "host x"))) == said
    assert schedule.next_task().run_id == "b"
    assert schedule.next_task() is None
    assert not schedule.over
    now[0] += 60
    assert schedule.next_task().run_id == "a"
    assert list(schedule.settle(Outcome("a", kind, "host x"))) == []


def test_a_full_disk_ends_the_sweep(store: Store) -> None:
    schedule = Schedule(tasks("a"), store)
    schedule.next_task()
    with pytest.raises(DiskFull, match=r"no room\. The sweep has stopped; the same command continues it"):
        list(schedule.settle(Outcome("a", FULL, "no room.")))


def test_a_run_that_takes_its_process_down_fails_in_the_end(store: Store) -> None:
    schedule = Schedule(tasks("a", "b"), store)
    folder = logged(store, "a", 5)
    for _ in range(MOST_DEATHS - 1):
        assert schedule.next_task().run_id == "a", "first in line again"
        assert list(schedule.settle_death("a", "killed")) == [Lost("a", "killed")]
    schedule.next_task()
    [failed] = schedule.settle_death("a", "killed")
    assert isinstance(failed, RunFailed)
    assert "3 times without a step forward" in failed.reason
    assert json.loads((folder / "failure.json").read_text())["reason"] == failed.reason
    assert schedule.next_task().run_id == "b"


def test_deaths_between_which_it_moves_are_not_its_fault(store: Store) -> None:
    schedule = Schedule(tasks("a"), store)
    for step in range(1, 3 * MOST_DEATHS):
        logged(store, "a", step)
        schedule.next_task()
        assert list(schedule.settle_death("a", "killed")) == [Lost("a", "killed")]
