"""A store: one folder per run, written by many processes on many hosts, read by anyone at any time.

    STORE/<run_id>/                a run that ended (finished or diverged), as `routelaw train` writes it:
                                   spec.json, log.jsonl, evaluations.jsonl, result.json, checkpoints/
    STORE/unfinished/<run_id>.<n>/ its n-th attempt until then, in the same form, with whose it is (runs/claims.py)
                                   and, where it failed, failure.json and output.log
    STORE/imported/<name>.parquet  tables of other people's runs
    STORE/studies/<name>.json      studies of the paper that a sweep here said it was

An ended run appears by one rename, whole; nothing here is ever rewritten, and only `remove` takes away.

A run that `routelaw train --out STORE/NAME` put there under a name of its own is the run that its spec says it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from routelaw.errors import InputError, unwritable
from routelaw.files import read_json, write_atomically
from routelaw.runs.folders import EVALUATIONS, LOG, RESULT, SPEC, last_row, read_evaluations, read_lines, table_of_lines
from routelaw.runs.locks import CLAIM, TRAINS, is_held, lock
from routelaw.specs.files import from_stored
from routelaw.specs.names import STUDIES, nearest_hint
from routelaw.specs.run import RunSpec

if TYPE_CHECKING:
    from routelaw.runs.table import RunTable

UNFINISHED, IMPORTED, FAILURE, OUTPUT = "unfinished", "imported", "failure.json", "output.log"
OF_STUDIES = "studies"
RUNNING, STOPPED, FAILED = "running", "stopped", "failed"
FINISHED, DIVERGED = "finished", "diverged"
VALIDATION_LOSS = "loss_validation"
RUN_ID = re.compile(r"[0-9a-f]{12}")
"""What a run is called by the hash of what it means (specs/run.py)."""
ATTEMPT = re.compile(r"(?P<run>[^.].*)\.(?P<number>[0-9]{1,9})", re.ASCII)


@dataclass(frozen=True)
class StoredRun:
    run_id: str
    folder: Path
    """Where it lies: its own folder once it has ended, its newest attempt until then."""

    @cached_property
    def spec(self) -> RunSpec:
        spec = from_stored(self._json(SPEC).get("spec", {}), str(self.folder / SPEC))
        if spec.run_id != self.run_id:
            raise InputError(f"{self.folder / SPEC} is damaged: it is the spec of run {spec.run_id}.")
        return spec

    @property
    def result(self) -> dict[str, Any]:
        """How it ended; empty while it has not."""
        if not os.path.lexists(f"{self.folder}/{RESULT}"):
            return {}
        result = self._json(RESULT)
        if result.get("run_id", self.run_id) != self.run_id:
            raise InputError(f"{self.folder / RESULT} is damaged: it is of another run.")
        loss, numbers = result.get("loss_validation"), (result.get("step", 0), result.get("seconds", 0.0))
        sound = all(isinstance(n, int | float) for n in (*numbers, 0.0 if loss is None else loss))
        if result.get("status") not in (FINISHED, DIVERGED) or not sound:
            raise InputError(f"{self.folder / RESULT} is damaged: it does not say how the run ended.")
        return result

    @property
    def failure(self) -> dict[str, Any]:
        """Why its last attempt failed; empty if it did not."""
        return self._json(FAILURE) if _is_there(self.folder / FAILURE) else {}

    @property
    def ended(self) -> bool:
        return self.is_published and os.path.lexists(f"{self.folder}/{RESULT}")

    @property
    def is_published(self) -> bool:
        """Whether it lies where runs lie that have ended, and not among the attempts."""
        return self.folder.parent.name != UNFINISHED

    @property
    def status(self) -> str:
        """finished, diverged; failed, running or stopped while it has not ended."""
        if self.ended:
            return str(self.result["status"])
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
            content = read_json(f"{self.folder}/{name}")
        except InputError:
            if not (self.folder / name).exists():
                raise InputError(f"{self.folder} is not the folder of a run: it has no {name}.") from None
            raise
        if not isinstance(content, dict):
            raise InputError(f"{self.folder / name} is damaged: it holds no table of names and values.")
        return content


class Store:
    """A folder of runs: of one process or of many, written by sweeps, read by anyone at any time.

    >>> store = rl.Store("runs")
    >>> [(run.spec.router.name, run.status) for run in store.runs()]
    [(..., 'finished'), (..., 'finished')]
    >>> store.find(store.runs()[0].run_id[:6]).result["step"]
    2
    >>> store.table().losses
    ['loss_validation']
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def check_writable(self) -> None:
        """Make the folder, and learn now what each run of a sweep would otherwise fail of in turn."""
        for name, what in ((EVALUATIONS, "of one run"), (SPEC, "of one run"), ("manifest.json", "of a corpus")):
            if _is_there(self.path / name):
                raise InputError(f"{self.path} is the folder {what}, and no store: name another.")
        try:
            (self.path / UNFINISHED).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path / UNFINISHED):
                pass  # a folder may be there and not be writable: a read-only file system, a quota
        except OSError as error:
            raise unwritable(self.path, error) from None

    def runs(self) -> list[StoredRun]:
        """Every run that ended or began, by name: once, as it now stands."""
        found = list(self._folders())
        known = {run.run_id for run in found}
        # Sorted by number, so that of several attempts at a run the last one stays in the dictionary.
        newest = {run_id: StoredRun(run_id, folder) for run_id, _, folder in sorted(self._attempts())}
        found += [run for run_id, run in newest.items() if run_id not in known]
        return sorted(found, key=lambda run: run.folder.name)

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
        runs = self.runs()
        evaluations = read_evaluations(run.folder for run in runs)
        if not (
            evaluations
            or any(_is_there(run.folder / EVALUATIONS) for run in runs)
            or any(run.ended for run in runs)
        ):  # fmt: skip
            raise InputError(f"{self.path}: {self._without_runs()}")
        table = table_of_lines(evaluations, str(self.path))
        for sentence in self.damage(runs, table):  # points that a fit would lose without a word
            raise InputError(sentence)
        return table

    def damage(self, runs: Sequence[StoredRun], table: RunTable | None) -> list[str]:
        """Runs that have ended, and whose evaluations do not reach that far or say otherwise: a sentence for each."""
        last: dict[str, Mapping[Any, Any]] = {}
        if table is not None:
            ended = table.frame[table.frame["status"].isin((FINISHED, DIVERGED))]
            known = [name for name in ("run_id", "status", "step", VALIDATION_LOSS) if name in ended]
            last = {row["run_id"]: row for row in ended[known].to_dict("records")}
        found = []
        for run in runs:
            if run.is_published and (problem := _disagreement(run, last.get(run.run_id))):
                advice = f"`routelaw runs remove {run.run_id}` and train it again"
                found.append(f"{run.folder} is damaged: {problem}; {advice}.")
        return found

    def imported(self) -> dict[str, Path]:
        """Name -> file of each imported table."""
        return {file.name.partition(".")[0]: file for file in sorted((self.path / IMPORTED).glob("*.parquet"))}

    def studies(self) -> list[str]:
        """The paper's studies whose sweep files were trained here, in the paper's order."""
        found = {file.stem for file in (self.path / OF_STUDIES).glob("*.json")}
        return [study for study in STUDIES if study in found]

    def record_study(self, study: str, sweep: str) -> None:
        """Remember that a sweep file of this study is trained here; once is enough."""
        if study in self.studies():
            return
        try:
            (self.path / OF_STUDIES).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self.path, error) from None
        content = json.dumps({"study": study, "sweep": sweep}, ensure_ascii=False)
        write_atomically(f"{content}\n".encode(), self.path / OF_STUDIES / f"{study}.json", force=True)

    def remove(self, name: str) -> None:
        """The run of that id, all attempts at it included, or the imported table of that name, for good.

        Nothing else: whatever the name, only what `runs` and `imported` know by it is touched. A run that is being
        trained stays.
        """
        runs, table = self.check_removable(name)
        if table is not None:
            try:
                table.unlink()
            except OSError as error:
                raise unwritable(table, error) from None
        else:
            self._remove_folders(name, dict.fromkeys((*(run.folder for run in runs), *self.leftovers(name))))

    def check_removable(self, name: str) -> tuple[list[StoredRun], Path | None]:
        """The folders of a run of that id, or the file of an imported table of that name; an error if it is neither,
        or being trained."""
        runs = [run for run in self.runs() if run.run_id == name]
        table = self.imported().get(name)
        if not runs and table is None:
            raise InputError(f"{self.path} has no run or imported table {name!r}; to remove takes the whole id.")
        if runs and table is not None:
            raise InputError(f"{self.path}: {name!r} is a run and an imported table; rename {table} first.")
        for run in runs:
            if run.folder.is_symlink():
                raise InputError(f"{run.folder} is a link, and may lead to what others use: remove it by hand.")
            if is_held(run.folder):
                raise InputError(f"run {name} is being trained in {run.folder}; stop it first.")
        return runs, table

    def _remove_folders(self, run_id: str, folders: Iterable[Path]) -> None:
        """All are locked before the first is taken away, so that nobody begins to train in one meanwhile."""
        with ExitStack() as locks:
            for folder in folders:
                try:
                    held = is_held(folder)
                    for name in (CLAIM, TRAINS):
                        own = None if held else lock(folder / name, timeout=0.0)
                        held = own is None
                        if own is not None:
                            locks.enter_context(own)
                except OSError as error:
                    raise unwritable(folder, error) from None
                if held:
                    raise InputError(f"run {run_id} is being trained in {folder}; stop it first.")
            for folder in folders:
                # Out of sight by one rename first: a removal that is killed half-way leaves no half a run.
                gone = folder.with_name(f".{folder.name}.removed")
                try:
                    shutil.rmtree(gone, ignore_errors=True)
                    folder.rename(gone)
                    shutil.rmtree(gone)
                except OSError as error:
                    left = f"; what is left of it is in {gone}" if gone.exists() else ""
                    raise InputError(f"{folder} cannot be removed ({error.strerror}){left}.") from None

    def _folders(self) -> Iterator[StoredRun]:
        """Folders that hold a run, whatever they are called: by its files, damaged or not."""
        if not self.path.is_dir():
            return
        for folder in sorted(self.path.iterdir()):
            hidden = folder.name.startswith(".") or folder.name in (UNFINISHED, IMPORTED, OF_STUDIES)
            if not hidden and any(os.path.lexists(f"{folder}/{name}") for name in (EVALUATIONS, SPEC, RESULT)):
                yield StoredRun(_id_of(folder), folder)

    def _attempts(self) -> Iterator[tuple[str, int, Path]]:
        for folder in (self.path / UNFINISHED).glob("*.*"):
            if (named := ATTEMPT.fullmatch(folder.name)) and folder.is_dir():
                yield named["run"], int(named["number"]), folder

    def _without_runs(self) -> str:
        imported = self.imported()
        if imported:
            return f"the store has no runs of its own; imported tables are files: {next(iter(imported.values()))}."
        return (
            f"this is a directory without runs (no {EVALUATIONS} in it or one below); "
            "give a run's folder, a folder of them, or a CSV or Parquet file."
        )


def _disagreement(run: StoredRun, row: Mapping[Any, Any] | None) -> str:
    """In what the result of an ended run and its last evaluation are not of one mind; nothing of one without result."""
    try:
        result = run.result
    except InputError as error:
        return str(error).rstrip(".")
    if not result:
        return ""
    if row is None:
        return f"the run has ended, and its {EVALUATIONS} does not go to the end"
    for name in ("status", "step", VALIDATION_LOSS):
        one, other = result.get(name), row.get(name)
        if name in result and name in row and not (one == other or (one is None and other != other)):
            return f"{RESULT} has {name} {one}, and {EVALUATIONS} {other}"
    return ""


def _is_there(path: Path) -> bool:
    """Whether anything has this name. What it is, whoever reads it finds out: a FIFO in a file's place is damage, and
    no sign that there is no such file."""
    return os.path.lexists(path)


def _id_of(folder: Path) -> str:
    """A folder with the name of a run holds that run; of any other, the spec says which."""
    if RUN_ID.fullmatch(folder.name):
        return folder.name
    try:
        run_id = read_json(folder / SPEC)["run_id"]
    except (InputError, KeyError, TypeError):
        return folder.name
    return run_id if isinstance(run_id, str) and RUN_ID.fullmatch(run_id) else folder.name
