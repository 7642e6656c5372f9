"""Whose turn it is: one process at a time works on a run, and a run is published once.

On one host an attempt belongs to whoever holds the flock on its `.claim`, which dies with its process. Between hosts
an flock may mean nothing, so an attempt also carries a lease: `lease.json` names the host, and its owner touches it
every few seconds. An attempt of this host whose lock is free is continued where it lies. One of another host whose
lease has gone cold is left to itself, since its owner may only be slow: a new attempt begins beside it, from a copy
of its last checkpoints. So no two processes ever write to one folder.

An attempt comes into being by renaming a folder that is already locked, leased and filled, and is published by
renaming it to STORE/<run_id>. Renaming onto a folder that is not empty fails, so of two that try, one succeeds.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from routelaw.errors import InputError, unwritable
from routelaw.runs.folders import RESULT
from routelaw.runs.locks import (
    CLAIM,
    LEASE,
    LEASE_SECONDS,
    TRAINS,
    holder,
    host_of,
    is_fresh,
    lock,
    this_host,
    write_lease,
)
from routelaw.runs.store import UNFINISHED, Store

BEATS = 6
"""Signs of life within the time of a lease."""


class Busy(Exception):
    """Another process is at it, which the message names; ask again later."""


class AlreadyEnded(Exception):
    """The run has been published already."""


class Attempt:
    """A claimed folder to train in. Publish it when the run has ended."""

    def __init__(self, store: Store, run_id: str, folder: Path, claim: IO[bytes], lease_seconds: float) -> None:
        self.store, self.run_id, self.folder = store, run_id, folder
        self._claim, self._done = claim, threading.Event()
        self.lost = threading.Event()
        """Set when another host has taken over: what this process does is no longer wanted."""
        self._beat = threading.Thread(target=self._keep_alive, args=(lease_seconds / BEATS,), daemon=True)
        self._beat.start()

    def publish(self) -> bool:
        """Make this attempt the run. False where another was first; it is the same run, so nothing is lost."""
        self._stop_beating()  # a sign of life after the rename would make a lease in the published folder
        final = self.store.path / self.run_id
        try:
            self.folder.rename(final)  # the one step that counts: atomic, and it fails where a run lies already
            (final / LEASE).unlink(missing_ok=True)
            first = True
        except OSError as error:
            if not self.store.ended(self.run_id):
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise unwritable(final, error) from None
                raise InputError(
                    f"{final} holds the same run, unfinished: another process trains it there; the result is in "
                    f"{self.folder}."
                ) from None
            first = False
        for other in self.store.leftovers(self.run_id):
            shutil.rmtree(other, ignore_errors=True)  # superseded: what led here is in the published folder
        return first

    def release(self) -> None:
        self._stop_beating()
        self._claim.close()

    def _keep_alive(self, every: float) -> None:
        while not self._done.wait(every):
            with suppress(OSError):
                os.utime(self.folder / LEASE)
            with suppress(OSError):  # a hiccup of the file system must not end the signs of life
                # Another host that took this one for lost has begun a later attempt: its number is higher.
                newest = self.store.attempts(self.run_id)
                if self.store.ended(self.run_id) or (newest and newest[-1][1] != self.folder):
                    self.lost.set()

    def _stop_beating(self) -> None:
        self._done.set()
        self._beat.join()


@contextmanager
def claimed(
    store: Store, run_id: str, *, host: str | None = None, lease_seconds: float = LEASE_SECONDS
) -> Iterator[Attempt]:
    """The run, for this process alone. Raises Busy while another has it, AlreadyEnded once it is published."""
    host = host or this_host()
    try:
        (store.path / UNFINISHED).mkdir(parents=True, exist_ok=True)
        _adopt(store, run_id)
        folder, claim = _take(store, run_id, host, lease_seconds)
    except OSError as error:
        raise unwritable(store.path, error) from None
    attempt = Attempt(store, run_id, folder, claim, lease_seconds)
    try:
        yield attempt
    finally:
        attempt.release()


def _take(store: Store, run_id: str, host: str, lease_seconds: float) -> tuple[Path, IO[bytes]]:
    if store.ended(run_id):
        raise AlreadyEnded(run_id)
    attempts = store.attempts(run_id)
    if not attempts:
        return _begin(store, run_id, 1, None, host)
    number, newest = attempts[-1]
    if host_of(newest) == host:
        claim = _lock_in(newest)
        if claim is None:
            raise Busy(holder(newest))
        # The lock was taken on a file that may have been renamed away meanwhile: look again, now that nobody can.
        if not newest.is_dir() or store.ended(run_id):  # published between the look and the lock, or removed
            claim.close()
            raise AlreadyEnded(run_id) if store.ended(run_id) else Busy("another process")
        write_lease(newest, host)
        return newest, claim
    if is_fresh(newest, lease_seconds):
        raise Busy(holder(newest))
    # Cold, and on another host: its owner may still live and write. It keeps its folder; ours is a copy with a number.
    return _begin(store, run_id, number + 1, newest, host)


def _begin(store: Store, run_id: str, number: int, earlier: Path | None, host: str) -> tuple[Path, IO[bytes]]:
    """A new attempt: prepared aside, then renamed to its number, which only one can."""
    final = store.path / UNFINISHED / f"{run_id}.{number}"
    aside = final.with_name(f".{final.name}.{uuid.uuid4().hex}")
    claim = None
    try:
        if earlier is not None:
            shutil.copytree(earlier, aside, copy_function=_link_or_copy, ignore=shutil.ignore_patterns(".*", "lease*"))
        aside.mkdir(exist_ok=True)
        # Locked and leased before it has its name: there is no moment at which it could be taken for free.
        claim = lock(aside / CLAIM)
        write_lease(aside, host)
        aside.rename(final)
    except (OSError, InputError) as error:  # shutil.Error is an OSError
        shutil.rmtree(aside, ignore_errors=True)
        if claim is not None:
            claim.close()
        if final.exists() or store.ended(run_id) or isinstance(error, shutil.Error):
            raise Busy("another process") from None  # another was first, or the earlier attempt changed under the copy
        raise
    assert claim is not None, "nobody else knows this name"
    return final, claim


def _adopt(store: Store, run_id: str) -> None:
    """A run that `routelaw train` began in the store and left becomes an attempt."""
    folder = store.path / run_id
    if not folder.is_dir() or (folder / RESULT).is_file() or store.attempts(run_id):
        return
    try:
        trains = lock(folder / TRAINS)
    except FileNotFoundError:  # another adopts it in this instant
        raise Busy("another process") from None
    if trains is None:
        raise Busy("another process of this machine")
    with trains, suppress(FileNotFoundError):
        if not folder.is_dir() or (folder / RESULT).is_file():  # adopted or ended between the look and the lock
            return
        write_lease(folder, this_host())
        folder.rename(store.path / UNFINISHED / f"{run_id}.1")


def _lock_in(folder: Path) -> IO[bytes] | None:
    try:
        return lock(folder / CLAIM)
    except FileNotFoundError:  # published or removed in this instant
        return None


def _link_or_copy(source: str, target: str) -> None:
    """Checkpoints never change, so a link is a copy; what is appended to must be one.

    copytree keeps an OSError to itself until the end, and then without its number: only what is gone may pass so.
    """
    if Path(source).suffix == ".safetensors":
        with suppress(OSError):
            os.link(source, target)
            return
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unwritable(Path(target), error) from None
