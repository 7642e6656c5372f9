"""A store: one folder per run, written by many processes on many hosts, read by anyone at any time.

    STORE/<run_id>/                a run that ended (finished or diverged), as `routelaw train` writes it:
                                   spec.json, log.jsonl, evaluations.jsonl, result.json, checkpoints/
    STORE/unfinished/<run_id>.<n>/ its n-th attempt until then, in the same form, with whose it is (runs/claims.py)
                                   and, where it failed, failure.json and output.log
    STORE/imported/<name>.parquet  tables of other people's runs

An ended run appears by one rename, whole; nothing here is ever rewritten, and only `remove` takes away.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from routelaw.errors import InputError, unwritable
from routelaw.runs.folders import EVALUATIONS, LOG, RESULT, SPEC, last_row, read_lines, table_of
from routelaw.runs.leases import is_held
from routelaw.runs.table import RunTable
from routelaw.specs.files import from_stored
from routelaw.specs.nearest import nearest_hint
from routelaw.specs.run import RunSpec

UNFINISHED, IMPORTED, FAILURE, OUTPUT = "unfinished", "imported", "failure.json", "output.log"
RUNNING, STOPPED, FAILED = "running", "stopped", "failed"


@dataclass(frozen=True)
class StoredRun:
    run_id: str
    folder: Path
    """Where it lies: its own folder once it has ended, its newest attempt until then."""

    @cached_property
    def spec(self) -> RunSpec:
        return from_stored(self._json(SPEC).get("spec", {}), str(self.folder / SPEC))

    @property
    def result(self) -> dict[str, Any]:
        """How it ended; empty while it has not."""
        return self._json(RESULT) if (self.folder / RESULT).is_file() else {}

    @property
    def failure(self) -> dict[str, Any]:
        """Why its last attempt failed; empty if it did not."""
        return self._json(FAILURE) if (self.folder / FAILURE).is_file() else {}

    @property
    def ended(self) -> bool:
        return self.folder.parent.name != UNFINISHED and (self.folder / RESULT).is_file()

    @property
    def status(self) -> str:
        """finished, diverged; failed, running or stopped while it has not ended."""
        if self.ended:
            return str(self.result.get("status", "finished"))
        if is_held(self.folder):
            return RUNNING
        return FAILED if self.failure else STOPPED

    def log(self) -> list[dict[str, Any]]:
        """What was logged every few steps: loss, learning rate, and each routed layer's load, drops and losses."""
        return read_lines(self.folder / LOG)

    def last_logged(self) -> dict[str, Any]:
        """The newest whole row of the log, without reading the rest; empty if there is none."""
        return last_row(self.folder / LOG)

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / name).read_bytes()))
        except FileNotFoundError:
            raise InputError(f"{self.folder} is not the folder of a run: it has no {name}.") from None
        except (OSError, ValueError, TypeError):
            raise InputError(f"{self.folder / name} is damaged.") from None


class Store:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check_writable(self) -> None:
        """Make the folder, and learn now what each run of a sweep would otherwise fail of in turn."""
        try:
            (self.path / UNFINISHED).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path / UNFINISHED):
                pass
        except OSError as error:
            raise unwritable(self.path, error) from None

    def runs(self) -> list[StoredRun]:
        """Every run that ended or began, by id: once, as it now stands."""
        ended = {run.run_id: run for run in self._folders()}
        newest = {run_id: StoredRun(run_id, folder) for run_id, _, folder in sorted(self._attempts())}
        return [run for _, run in sorted({**newest, **ended}.items())]

    def ended(self, run_id: str) -> bool:
        return (self.path / run_id / RESULT).is_file()

    def attempts(self, run_id: str) -> list[tuple[int, Path]]:
        """Number and folder of each attempt not published, oldest first."""
        return [(n, folder) for of, n, folder in sorted(self._attempts()) if of == run_id]

    def leftovers(self, run_id: str) -> list[Path]:
        """All that lies unfinished of a run: attempts, and copies that a process was killed over."""
        return [*(folder for _, folder in self.attempts(run_id)), *(self.path / UNFINISHED).glob(f".{run_id}.*")]

    def find(self, run_id: str) -> StoredRun:
        """A run by its id, or by the beginning of one."""
        runs = {run.run_id: run for run in self.runs()}
        found = [run_id] if run_id in runs else [name for name in runs if run_id and name.startswith(run_id)]
        if len(found) == 1:
            return runs[found[0]]
        if found:
            raise InputError(f"{self.path}: {run_id} may be any of {', '.join(found[:5])}; give more of the id.")
        raise InputError(
            f"{self.path} has no run {run_id!r} of its own{nearest_hint(run_id, runs)}; `runs list` shows them."
        )

    def table(self) -> RunTable:
        """The run table of the store's own runs, those still going on included. Imported tables stay apart: they have
        another corpus and another recipe, and no law holds for both."""
        folders = [run.folder for run in self.runs() if (run.folder / EVALUATIONS).is_file()]
        if not folders:
            raise InputError(f"{self.path}: {self._without_runs()}")
        return table_of(folders, str(self.path))

    def imported(self) -> dict[str, Path]:
        """Name -> file of each imported table."""
        return {file.name.partition(".")[0]: file for file in sorted((self.path / IMPORTED).glob("*.parquet"))}

    def remove(self, run_id: str) -> None:
        """The run, all attempts at it included, or the imported table of that name, for good."""
        if run_id in self.imported():
            self.imported()[run_id].unlink()
        for folder in (self.path / run_id, *self.leftovers(run_id)):
            if folder.exists():
                gone = folder.with_name(f".{folder.name}.removed")
                shutil.rmtree(gone, ignore_errors=True)
                folder.rename(gone)
                shutil.rmtree(gone)

    def _folders(self) -> Iterator[StoredRun]:
        for file in sorted(self.path.glob(f"*/{EVALUATIONS}")):
            if not file.parent.name.startswith("."):
                yield StoredRun(file.parent.name, file.parent)

    def _attempts(self) -> Iterator[tuple[str, int, Path]]:
        for folder in (self.path / UNFINISHED).glob("*.*"):
            run_id, _, number = folder.name.rpartition(".")
            if run_id and not run_id.startswith(".") and number.isdigit():
                yield run_id, int(number), folder

    def _without_runs(self) -> str:
        imported = self.imported()
        if imported:
            return f"the store has no runs of its own; imported tables are files: {next(iter(imported.values()))}."
        return (
            f"this is a directory without runs (no {EVALUATIONS} in it or one below); "
            "give a run's folder, a folder of them, or a CSV or Parquet file."
        )
