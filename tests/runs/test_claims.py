"""Who may work on a run: one process at a time on a host, takeover between hosts, published once."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from routelaw.errors import DiskFull, InputError
from routelaw.runs import claims
from routelaw.runs.claims import AlreadyEnded, Attempt, Busy, claimed
from routelaw.runs.locks import LEASE, dated_ahead, is_fresh, is_held, lock, this_host
from routelaw.runs.store import Store

RUN = "abc123"
OTHER_PROCESS = """
import sys, time
from routelaw.runs.claims import Busy, claimed
from routelaw.runs.store import Store
with claimed(Store(sys.argv[1]), "abc123") as attempt:
    print(attempt.folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def end(attempt: Attempt) -> None:
    (attempt.folder / "result.json").write_text('{"status": "finished"}')
    (attempt.folder / "evaluations.jsonl").write_text("{}\n")


def until_fresh(folder: Path) -> None:
    """Its owner is a thread of this process: on a busy machine it may take a while to get its turn."""
    deadline = time.monotonic() + 120
    while time.time() - (folder / LEASE).stat().st_mtime > 500:
        assert time.monotonic() < deadline, "the lease was not renewed"
        time.sleep(0.01)


def age(folder: Path, seconds: float) -> None:
    """As if its owner had not been heard of for so long."""
    then = time.time() - seconds
    os.utime(folder / LEASE, (then, then))


@contextmanager
def other_process(store: Store) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", OTHER_PROCESS, str(store.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_a_run_is_claimed_published_and_over(store: Store) -> None:
    with claimed(store, RUN) as attempt:
        assert attempt.folder == store.path / "unfinished" / f"{RUN}.1"
        assert is_held(attempt.folder)
        end(attempt)
        assert attempt.publish()
    assert sorted(p.name for p in (store.path / RUN).iterdir()) == [".claim", "evaluations.jsonl", "result.json"]
    assert store.attempts(RUN) == []
    with pytest.raises(AlreadyEnded), claimed(store, RUN):
        pass


def test_one_process_at_a_time_and_the_lock_dies_with_it(store: Store) -> None:
    with other_process(store) as process:
        with pytest.raises(Busy), claimed(store, RUN):
            pass
        assert [run.status for run in store.runs()] == ["running"]
        process.kill()
        process.wait()
        assert [run.status for run in store.runs()] == ["stopped"]
        with claimed(store, RUN) as attempt:
            assert attempt.folder.name == f"{RUN}.1", "on one host the folder is continued where it lies"


def test_within_one_process_too(store: Store) -> None:
    with claimed(store, RUN), pytest.raises(Busy), claimed(store, RUN):
        pass


def test_another_host_waits_for_the_lease(store: Store) -> None:
    with claimed(store, RUN, host="far") as attempt, pytest.raises(Busy), claimed(store, RUN, host="near"):
        pass
    with pytest.raises(Busy), claimed(store, RUN, host="near"):
        pass
    age(attempt.folder, 1000)
    with claimed(store, RUN, host="near") as taken:
        assert taken.folder.name == f"{RUN}.2"


def test_a_lease_from_the_future_holds_nothing_for_ever(store: Store) -> None:
    """A clock that was put back, or a file copied from elsewhere: a sweep once waited for its host without a word."""
    with claimed(store, RUN, host="far/1") as attempt:
        lease, now = attempt.folder / "lease.json", time.time()
        attempt._stop_beating()  # the host is lost
        for ahead, is_held in ((30, True), (3600, False), (10**9, False)):
            os.utime(lease, (now + ahead, now + ahead))
            assert is_fresh(attempt.folder) == is_held
            assert (dated_ahead(attempt.folder) > 0) == (not is_held)
        os.utime(lease, (now + 30, now + 30))
        with pytest.raises(Busy, match=r"host far, whose sign of life is dated \d+ s ahead"), claimed(store, RUN):
            pass
        os.utime(lease, (now + 3600, now + 3600))
        with claimed(store, RUN) as taken:
            assert taken.folder.name == f"{RUN}.2"


def test_a_lost_host_s_run_is_taken_over_with_what_it_had(store: Store) -> None:
    with claimed(store, RUN, host="far") as attempt:
        checkpoint = attempt.folder / "checkpoints" / "step-00000005"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(b"tensors")
        (attempt.folder / "log.jsonl").write_text('{"step": 5}\n')
        age(attempt.folder, 1000)
        with claimed(store, RUN, host="near") as taken:
            copied = taken.folder / "checkpoints" / "step-00000005" / "model.safetensors"
            assert copied.read_bytes() == b"tensors"
            (attempt.folder / "log.jsonl").write_text("the slow one goes on\n")
            assert (taken.folder / "log.jsonl").read_text() == '{"step": 5}\n', "no two processes write to one file"
            assert sorted(n for n, _ in store.attempts(RUN)) == [1, 2]


def test_of_two_that_were_at_it_one_publishes(store: Store) -> None:
    with claimed(store, RUN, host="far") as slow:
        age(slow.folder, 1000)
        with claimed(store, RUN, host="near") as quick:
            for attempt in (slow, quick):
                end(attempt)
            (slow.folder / "mark").write_text("slow")
            (quick.folder / "mark").write_text("quick")
            assert quick.publish()
        assert not slow.publish()
    assert (store.path / RUN / "mark").read_text() == "quick"
    assert store.attempts(RUN) == []


def test_an_owner_that_was_only_slow_learns_that_it_is_not_wanted(store: Store) -> None:
    with claimed(store, RUN, host="far", lease_seconds=0.3) as slow:
        slow._stop_beating()  # as if it were suspended
        time.sleep(0.4)
        with claimed(store, RUN, host="near", lease_seconds=0.3):
            again = Attempt(store, RUN, slow.folder, slow._claim, 0.3)
            assert again.lost.wait(120)
            again._stop_beating()


def test_a_living_owner_keeps_its_lease(store: Store) -> None:
    with claimed(store, RUN, host="far", lease_seconds=0.6) as owner:
        for _ in range(3):
            age(owner.folder, 1000)
            until_fresh(owner.folder)
        with pytest.raises(Busy), claimed(store, RUN, host="near", lease_seconds=120):
            pass


def test_an_attempt_half_prepared_is_none(store: Store) -> None:
    (store.path / "unfinished" / f".{RUN}.1.deadbeef").mkdir(parents=True)
    assert store.attempts(RUN) == []
    with claimed(store, RUN) as attempt:
        assert attempt.folder.name == f"{RUN}.1"


def test_what_train_began_in_the_store_is_adopted(store: Store) -> None:
    folder = store.path / RUN
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / "evaluations.jsonl").write_text("{}\n")
    with claimed(store, RUN) as attempt:
        assert attempt.folder.name == f"{RUN}.1"
        assert (attempt.folder / "evaluations.jsonl").read_text() == "{}\n"
        assert not folder.exists()


def test_the_result_is_not_put_over_a_folder_in_use(store: Store) -> None:
    with claimed(store, RUN) as attempt:
        (store.path / RUN).mkdir()
        (store.path / RUN / "spec.json").write_text("{}")
        end(attempt)
        with pytest.raises(InputError, match="another process trains it there"):
            attempt.publish()
        assert (attempt.folder / "result.json").is_file()


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"), claimed(Store(tmp_path / "file"), RUN):
        pass


def test_this_host_is_one(store: Store) -> None:
    assert this_host() == this_host()
    assert "/" in this_host()


def test_a_full_disk_during_a_takeover_is_said(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not taken for a copy that was overtaken, which would be tried again for ever."""
    with claimed(store, RUN, host="other") as attempt:
        (attempt.folder / "log.jsonl").write_text("{}\n")
    age(attempt.folder, 1000)

    def full(_source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", target)

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(DiskFull), claimed(store, RUN):
        pass
    assert [entry.name for entry in (store.path / "unfinished").iterdir()] == [f"{RUN}.1"]


def test_a_hiccup_of_the_file_system_does_not_end_the_signs_of_life(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with claimed(store, RUN, lease_seconds=0.3) as attempt:

        def stale(_run_id: str) -> list[tuple[int, Path]]:
            raise OSError(errno.ESTALE, "Stale file handle")

        with monkeypatch.context() as patched:
            patched.setattr(store, "attempts", stale)
            time.sleep(0.3)
        age(attempt.folder, 1000)
        until_fresh(attempt.folder)


def test_a_store_that_may_only_be_read_shows_what_another_host_trains(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with claimed(store, RUN, host="other") as attempt:
        pass

    def read_only(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "touch", read_only)
    assert is_held(attempt.folder)
    age(attempt.folder, 1000)
    assert not is_held(attempt.folder)


def test_a_run_removed_in_the_instant_it_is_claimed_has_not_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with claimed(store, RUN):
        pass

    def lock_what_goes(path: Path):
        locked = lock(path)
        shutil.rmtree(path.parent)
        return locked

    with monkeypatch.context() as patched:
        patched.setattr(claims, "lock", lock_what_goes)
        with pytest.raises(Busy), claimed(store, RUN):
            pass
    with claimed(store, RUN) as attempt:
        assert attempt.folder.is_dir()


def test_of_two_that_adopt_what_train_began_the_second_waits(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.path / RUN
    folder.mkdir(parents=True)

    def lock_too_late(path: Path):
        if path.parent == folder:
            folder.rename(store.path / "unfinished" / f"{RUN}.1")
        return lock(path)

    monkeypatch.setattr(claims, "lock", lock_too_late)
    with pytest.raises(Busy), claimed(store, RUN):
        pass
