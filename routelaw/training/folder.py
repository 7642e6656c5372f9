"""A run's directory.

    spec.json            what the run is, and the hash of its tokenizer
    tokenizer.model      the corpus's, so that any text can be evaluated later
    log.jsonl            every n steps: loss, rate, and each routed layer's load, drops, losses and figures
    evaluations.jsonl    one row of the run table per evaluation
    loads.jsonl          beside each, the share of every expert in every routed layer
    checkpoints/         the last few
    result.json          how it ended

One process at a time owns it, the first of those that train it; the others only read. A run that was killed continues
from its newest whole checkpoint; what the files hold beyond it is cut off first, so that they read as if the run had
never stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from routelaw.corpus.shards import Corpus
from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError, unwritable
from routelaw.runs.folders import EVALUATIONS, LOG, RESULT, SPEC, last_row
from routelaw.runs.leases import TRAINS
from routelaw.runs.locks import lock
from routelaw.runs.writing import write_atomically
from routelaw.specs.difference import refuse_another
from routelaw.specs.files import from_stored, to_mapping
from routelaw.specs.run import RunSpec
from routelaw.training.checkpoint import Damaged, list_checkpoints, read_state


class RunFolder:
    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.checkpoints = path / "checkpoints"
        self.log = JsonLines(path / LOG, writes)
        self.evaluations = JsonLines(path / EVALUATIONS, writes)
        self.loads = JsonLines(path / "loads.jsonl", writes)
        self._spec, self._tokenizer, self._result = (path / n for n in (SPEC, "tokenizer.model", RESULT))

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """One writer per run directory: the lock dies with its holder."""
        if not self.writes:
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            locked = lock(self.path / TRAINS)
        except OSError as error:
            raise unwritable(self.path, error) from None
        if locked is None:
            raise InputError(f"{self.path} is being trained by another process; wait for it, or choose another --out.")
        with locked:
            for half_written in self.path.glob(".*.part"):  # by a process that was killed
                half_written.unlink(missing_ok=True)
            yield

    def identify(self, spec: RunSpec, corpus: Corpus) -> None:
        """Say whose folder this is; refuse the folder of another run."""
        if not self.writes:
            return
        model = (corpus.path / corpus.manifest.tokenizer.file).read_bytes()
        if self._spec.exists():
            refuse_another(self.spec(), spec, f"{self.path} holds another run")
        else:
            self._refuse_checkpoints_of_another(spec)
            content = {"run_id": spec.run_id, "spec": to_mapping(spec), "tokenizer": hashlib.sha256(model).hexdigest()}
            write_atomically(json.dumps(content, indent=2).encode(), self._spec)
        if not self._tokenizer.exists() or self._tokenizer.read_bytes() != model:
            write_atomically(model, self._tokenizer, force=True)

    def _refuse_checkpoints_of_another(self, spec: RunSpec) -> None:
        """A folder that lost its spec.json is still whose checkpoints it holds."""
        for checkpoint in reversed(list_checkpoints(self.checkpoints)):
            with suppress(Damaged):
                stored = from_stored(read_state(checkpoint)["spec"], str(checkpoint))
                refuse_another(stored, spec, f"{self.path} holds checkpoints of another run")
                return

    def spec(self) -> RunSpec:
        return self._identity()[0]

    def tokenizer(self) -> Tokenizer:
        """The run's own, if it is still what it was."""
        _, sha256 = self._identity()
        try:
            model = self._tokenizer.read_bytes()
        except OSError as error:
            raise InputError(f"{self._tokenizer}: cannot be read ({error.strerror}).") from None
        if hashlib.sha256(model).hexdigest() != sha256:
            raise InputError(
                f"{self._tokenizer} is damaged (it does not match its sha256); copy that of the run's corpus here."
            )
        return Tokenizer(model, str(self._tokenizer))

    def _identity(self) -> tuple[RunSpec, str]:
        try:
            content = json.loads(self._spec.read_bytes())
            spec, run_id, tokenizer = content["spec"], content["run_id"], content["tokenizer"]
            stored = from_stored(spec, str(self._spec))
        except FileNotFoundError:
            raise InputError(f"{self.path} is not the folder of a run: it has no {self._spec.name}.") from None
        except InputError:
            raise  # readable, and not a spec: its sentence says where
        except (OSError, ValueError, KeyError, TypeError):
            stored, run_id, tokenizer = None, "", ""
        if stored is None or stored.run_id != run_id:
            raise InputError(f"{self._spec} is damaged; every checkpoint's state.json has the spec, too.")
        return stored, tokenizer

    def refuse_to_forget(self) -> None:
        """A run that ended and left no checkpoints (execution.keep = 0) would begin anew, over its own results."""
        if self._result.exists() and not list_checkpoints(self.checkpoints):
            raise InputError(f"{self.path} holds this run, ended and without checkpoints: remove it to train it again.")

    def drop_checkpoints(self) -> None:
        if self.writes:
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def cut_after(self, step: int, notice: Callable[[str], None]) -> None:
        for rows in (self.log, self.evaluations, self.loads):
            rows.cut_after(step, notice)

    def flush(self) -> None:
        """To disk: before a checkpoint that says these rows exist."""
        for rows in (self.log, self.evaluations, self.loads):
            rows.flush()

    def seconds_logged(self) -> float:
        """Seconds of work up to the last row of the log."""
        return float(last_row(self.log.path).get("seconds", 0.0))

    def conclude(self, result: dict[str, Any]) -> None:
        if self.writes:
            write_atomically(json.dumps(result, allow_nan=False).encode(), self._result, force=True)


class JsonLines:
    """Rows appended one by one, each with the number of steps it was written after."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes

    def append(self, row: dict[str, Any]) -> None:
        if not self.writes:
            return
        line = json.dumps(row, allow_nan=False) + "\n"
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            advice = "; the run goes on from its last checkpoint when the same command is given again"
            raise unwritable(self.path, error, advice) from None

    def cut_after(self, step: int, notice: Callable[[str], None]) -> None:
        """Keep the rows up to `step`; what is no row (a line broken off by a kill, or damaged) goes too."""
        if not self.writes or not self.path.exists():
            return
        content = self.path.read_bytes()
        kept, broken = [], 0
        for line in content.splitlines():
            try:
                within = int(json.loads(line)["step"]) <= step
            except (ValueError, KeyError, TypeError):
                broken += 1
            else:
                kept += [line + b"\n"] if within else []
        if broken:
            notice(f"{self.path}: {broken} broken line{'s' if broken > 1 else ''} removed.")
        if content != b"".join(kept):
            write_atomically(b"".join(kept), self.path, force=True)

    def flush(self) -> None:
        if self.writes and self.path.exists():
            with self.path.open("ab") as file:
                os.fsync(file.fileno())
