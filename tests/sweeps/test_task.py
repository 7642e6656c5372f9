"""One run of a sweep, from the store's point of view: claimed, trained, published; failures with their reason."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tiny_runs import EXECUTION, make_spec

from routelaw.corpus import Corpus
from routelaw.runs.claims import claimed
from routelaw.runs.store import Store
from routelaw.specs.files import to_mapping
from routelaw.sweeps import task as task_module
from routelaw.sweeps.sweep import PlannedRun
from routelaw.sweeps.task import Outcome, Task, carry_out


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def make_task(corpus: Corpus, store: Store, **train) -> Task:
    spec = make_spec(corpus, **train)
    return Task.of(PlannedRun(spec, EXECUTION, corpus.path, {}), EXECUTION, store, ())


def test_a_run_is_trained_once(tiny_corpus: Corpus, store: Store) -> None:
    task = make_task(tiny_corpus, store)
    assert carry_out(Task(**json.loads(json.dumps(asdict(task))))) == Outcome(task.run_id, "ended")
    [run] = store.runs()
    assert (run.run_id, run.status, run.ended) == (task.run_id, "finished", True)
    assert to_mapping(run.spec) == task.spec
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")}
    assert carry_out(task) == Outcome(task.run_id, "ended")
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*")} == before


def test_another_process_has_it(tiny_corpus: Corpus, store: Store) -> None:
    task = make_task(tiny_corpus, store)
    with claimed(store, task.run_id):
        assert carry_out(task) == Outcome(task.run_id, "busy", "another process of this machine")


def test_told_to_stop_it_leaves_a_checkpoint_and_goes_on(tiny_corpus: Corpus, store: Store, tmp_path: Path) -> None:
    task = make_task(tiny_corpus, store, steps=9)
    asked = iter([False] * 4 + [True])
    assert carry_out(task, lambda: next(asked)) == Outcome(task.run_id, "stopped")
    [run] = store.runs()
    assert (run.status, run.last_logged()["step"]) == ("stopped", 5)
    assert (run.folder / "checkpoints" / "step-00000005").is_dir()
    assert carry_out(task).kind == "ended"
    assert "continuing after step 5" in (store.path / task.run_id / "output.log").read_text()
    whole = Store(tmp_path / "whole")
    assert carry_out(replace(task, store=str(whole.path))).kind == "ended"
    assert store.table().frame.equals(whole.table().frame)


def test_a_crash_is_kept_with_its_reason_and_tried_again(
    tiny_corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tiny_corpus, store)

    def broken(*_args, **_known):
        raise ZeroDivisionError("of all things\nand more")

    with monkeypatch.context() as patched:
        patched.setattr(task_module, "run", broken)
        assert carry_out(task) == Outcome(task.run_id, "failed", "ZeroDivisionError: of all things")
    [run] = store.runs()
    assert (run.status, run.failure["reason"]) == ("failed", "ZeroDivisionError: of all things")
    assert "Traceback" in (run.folder / "output.log").read_text()
    assert carry_out(task).kind == "ended"
    assert store.runs()[0].failure == {}


def test_a_corpus_that_changed_is_a_failure_in_words(tiny_corpus: Corpus, store: Store, tmp_path: Path) -> None:
    task = replace(make_task(tiny_corpus, store), corpus=str(tmp_path / "gone"))
    outcome = carry_out(task)
    assert outcome.kind == "failed"
    assert "not a corpus" in outcome.reason


def test_a_full_disk_is_no_fault_of_the_run(tiny_corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(tiny_corpus, store)

    def full(*_args, **_known):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(task_module, "run", full)
    assert carry_out(task).kind == "full"
    assert store.runs()[0].failure == {}


def test_an_error_of_the_system_is_kept_with_its_reason_too(
    tiny_corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tiny_corpus, store)

    def refused(*_args, **_known):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(task_module, "run", refused)
    assert carry_out(task).kind == "failed"
    [run] = store.runs()
    assert (run.status, "Permission denied" in run.failure["reason"]) == ("failed", True)
    assert "Traceback" in (run.folder / "output.log").read_text()


def test_ended_elsewhere_while_it_failed_here(
    tiny_corpus: Corpus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was taken for lost finds its folder gone: the run has ended, and that is what counts."""
    task = make_task(tiny_corpus, store)

    def overtaken(*_args, **_known):
        import shutil

        shutil.rmtree(store.path / "unfinished")
        (store.path / task.run_id).mkdir()
        (store.path / task.run_id / "result.json").write_text("{}")
        raise RuntimeError("the folder is gone")

    monkeypatch.setattr(task_module, "run", overtaken)
    assert carry_out(task).kind == "ended"
