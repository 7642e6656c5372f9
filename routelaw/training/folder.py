"""A run's directory.

    spec.json            what the run is, and the hash of its tokenizer
    tokenizer.model      the corpus's, so that any text can be evaluated later
    log.jsonl            every n steps: loss, rate, and each routed layer's load, drops, losses and figures
    evaluations.jsonl    one row of the run table per evaluation
    loads.jsonl          beside each, the share of every expert in every routed layer
    checkpoints/         the last few
    result.json          how it ended
    eval.jsonl           what `routelaw eval` measured on other texts (runs/text_results.py)

One process at a time owns it, the first of those that train it; the others only read. A run that was killed continues
from its newest whole checkpoint; what the files hold beyond it is cut off first, so that they read as if the run had
never stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from routelaw.corpus.shards import Corpus
from routelaw.corpus.tokenizer import Tokenizer
from routelaw.errors import InputError, unwritable
from routelaw.evaluation.corpora import corpus_bits_per_byte, hash_corpus
from routelaw.evaluation.likelihood import Likelihood
from routelaw.files import parse_json, read_bytes, read_json, write_atomically
from routelaw.formatting import finite, shortened
from routelaw.runs.folders import EVALUATIONS, LOG, MOST_LOG_BYTES, RESULT, SPEC, VALIDATION, columns_of, last_row
from routelaw.runs.locks import LEASE, TRAINS, lock
from routelaw.runs.store import FAILURE, OUTPUT
from routelaw.runs.text_results import BITS_PER_BYTE, EVALUATE_TOKENS, EVALUATED, LOSS, TEXT_HASH
from routelaw.specs.files import from_stored, require_same_run, to_mapping
from routelaw.specs.run import RunSpec
from routelaw.training.checkpoint import Damaged, list_checkpoints, read_state

TRACKED = ("tensorboard", "wandb")
"""What trackers keep beside a run (training/tracking.py), from before its first step."""


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
        self._require_run_folder()
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

    def _require_run_folder(self) -> None:
        """A new run may begin in an empty folder, or in one that a worker has prepared; not among a user's files."""
        if os.path.lexists(self.checkpoints) and not self.checkpoints.is_dir():
            raise InputError(f"{self.checkpoints} is damaged: it is not a folder. Remove it to train the run again.")
        if self._spec.exists() or not self.path.is_dir():
            return
        foreign = sorted(entry.name for entry in self.path.iterdir() if not self._is_own(entry.name))
        if foreign:
            raise InputError(
                f"{self.path} is not the folder of a run: it holds {shortened(foreign[0])}. Choose another --out."
            )

    def _is_own(self, name: str) -> bool:
        rows = (self.log, self.evaluations, self.loads)
        own = [self.checkpoints, self._tokenizer, self._result, *(each.path for each in rows)]
        return name.startswith(".") or name in (
            LEASE,
            FAILURE,
            OUTPUT,
            EVALUATED,
            *TRACKED,
            *(path.name for path in own),
        )

    def identify(self, spec: RunSpec, corpus: Corpus) -> None:
        """Say whose folder this is; refuse the folder of another run."""
        if not self.writes:
            return
        model = read_bytes(corpus.path / corpus.manifest.tokenizer.file)
        if self._spec.exists():
            stored = self.spec()
            require_same_run(stored, spec, f"{self.path} holds another run")
            if stored.recipe != spec.recipe:
                raise InputError(
                    f"{self.path} was begun with {_recipe(stored)} and is asked for with {_recipe(spec)}: its rows "
                    f"would be of two variants; ask for it as it was begun, or choose another folder."
                )
        else:
            self._refuse_checkpoints_of_another(spec)
            content = {"run_id": spec.run_id, "spec": to_mapping(spec), "tokenizer": hashlib.sha256(model).hexdigest()}
            write_atomically(json.dumps(content, indent=2).encode(), self._spec)
        if not self._tokenizer.exists() or read_bytes(self._tokenizer) != model:
            write_atomically(model, self._tokenizer, force=True)

    def _refuse_checkpoints_of_another(self, spec: RunSpec) -> None:
        """A folder that lost its spec.json is still whose checkpoints it holds."""
        for checkpoint in reversed(list_checkpoints(self.checkpoints)):
            with suppress(Damaged):
                stored = from_stored(read_state(checkpoint)["spec"], str(checkpoint))
                require_same_run(stored, spec, f"{self.path} holds checkpoints of another run")
                return

    def spec(self) -> RunSpec:
        return self._identity()[0]

    def tokenizer(self) -> Tokenizer:
        """The run's own, if it is still what it was."""
        _, sha256 = self._identity()
        model = read_bytes(self._tokenizer)
        if hashlib.sha256(model).hexdigest() != sha256:
            raise InputError(
                f"{self._tokenizer} is damaged (it does not match its sha256); copy that of the run's corpus here."
            )
        return Tokenizer(model, str(self._tokenizer))

    def _identity(self) -> tuple[RunSpec, str]:
        if not self._spec.exists():
            raise InputError(f"{self.path} is not the folder of a run: it has no {self._spec.name}.")
        content = read_json(self._spec)
        if not isinstance(content, dict):
            content = {}
        run_id, tokenizer = content.get("run_id"), content.get("tokenizer")
        stored = from_stored(content.get("spec"), str(self._spec)) if "spec" in content else None
        if stored is None or stored.run_id != run_id or not isinstance(tokenizer, str):
            raise InputError(f"{self._spec} is damaged; every checkpoint's state.json has the spec, too.")
        return stored, tokenizer

    def require_resumable(self) -> None:
        """A run that ended and left no checkpoints (execution.keep = 0) would begin anew, over its own results."""
        if self._result.exists() and not list_checkpoints(self.checkpoints):
            raise InputError(f"{self.path} holds this run, ended and without checkpoints: remove it to train it again.")

    def drop_checkpoints(self) -> None:
        if self.writes:
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def cut_after(self, step: int, notice: Callable[[str], None]) -> None:
        run_id = self.spec().run_id if self.writes else ""
        for rows in (self.log, self.evaluations, self.loads):
            rows.cut_after(step, run_id, notice)

    def flush(self) -> None:
        """To disk: before a checkpoint that says these rows exist."""
        for rows in (self.log, self.evaluations, self.loads):
            rows.flush()

    def seconds_logged(self) -> float:
        """Seconds of work up to the last row of the log."""
        return float(last_row(self.log.path).get("seconds", 0.0))

    def write_result(self, result: dict[str, Any]) -> None:
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

    def cut_after(self, step: int, run_id: str, notice: Callable[[str], None]) -> None:
        """Keep the rows up to `step`. What is no row of this run goes too: a line broken off by a kill, one that was
        damaged, that stands there twice or that is another run's."""
        if not self.writes or not self.path.exists():
            return
        content = read_bytes(self.path, MOST_LOG_BYTES)
        kept, broken, last = [], 0, -1
        for line in content.splitlines():
            try:
                row = parse_json(line, "")
                at, whose = int(row["step"]), row.get("run_id", run_id)
            except (ValueError, KeyError, TypeError, AttributeError):
                broken += 1
                continue
            if at <= last or whose != run_id:  # a run's steps only go up; a copy of a line stands there twice
                broken += 1
            elif at <= step:
                kept.append(line + b"\n")
                last = at
        if broken:
            notice(f"{self.path}: {broken} broken line{'s' if broken > 1 else ''} removed.")
        if content != b"".join(kept):
            write_atomically(b"".join(kept), self.path, force=True)

    def flush(self) -> None:
        if self.writes and self.path.exists():
            with self.path.open("ab") as file:
                os.fsync(file.fileno())


def _recipe(spec: RunSpec) -> str:
    return f"recipe {spec.recipe!r}" if spec.recipe else "no recipe"


def evaluation_row(
    spec: RunSpec,
    step: int,
    status: str,
    measured: Mapping[str, Likelihood],
    corpora: Mapping[str, Corpus],
    evaluate_tokens: int,
) -> dict[str, Any]:
    """Losses that are not finite are left empty: a table has no NaN. What was measured stands beside them, so that
    `routelaw eval` can tell whether it would measure the same."""
    others = {name: corpus for name, corpus in corpora.items() if name != VALIDATION}
    bits = {name: corpus_bits_per_byte(corpus, measured[name].nats_per_token) for name, corpus in others.items()}
    return {
        **columns_of(spec),
        "step": step,
        "tokens": spec.tokens_after(step),
        "status": status,
        **losses_of(measured),
        **{f"{BITS_PER_BYTE}{name}": finite(value) for name, value in bits.items()},
        **{f"{TEXT_HASH}{name}": hash_corpus(corpus) for name, corpus in others.items()},
        EVALUATE_TOKENS: evaluate_tokens,
    }


def losses_of(measured: Mapping[str, Likelihood]) -> dict[str, float | None]:
    return {f"{LOSS}{name}": finite(m.nats_per_token) for name, m in measured.items()}
