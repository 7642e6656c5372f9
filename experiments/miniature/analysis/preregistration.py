"""Were the blind test's predictions there before the runs they are about?

An allocation writes into every run when it began and the hash of the predictions that lay in predictions/ then
(allocation.json, costs.csv). The hash needs no clock: predictions that were changed since, or were not there, do not
have it. The times are those of two machines, and of the commit where there is a repository. A lent machine may have
none: its runs record that a commit could not be checked, and then only the repository that has the predictions can show
it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd

from experiments.miniature.analysis.study import Study
from routelaw.errors import InputError

FILE = "predictions.json"
YES, NO, UNKNOWN = "yes", "no", "cannot be checked"
"""Were the predictions committed as they were, where a run began?"""


@dataclass(frozen=True)
class Preregistration:
    shown: bool
    """Whether every run of the size is known to have begun after the predictions, and these are unchanged."""
    words: str


def hash_of(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def committed_at(file: Path) -> datetime | None:
    """When the file's content last changed in its repository; None where it is not committed as it is, or that cannot
    be told. To be moved is no change."""
    if not is_committed(file):
        return None
    if _git(file, "rev-parse", "--is-shallow-repository") == "true":  # its one commit seems to add every file
        return None
    when = _git(file, "log", "-1", "--follow", "--diff-filter=AM", "--format=%aI", "--", file.name)
    return datetime.fromisoformat(when) if when else None


def is_committed(file: Path) -> bool:
    """As it is now: neither new nor ignored nor changed."""
    return _git(file, "status", "--porcelain", "--ignored", "--", file.name) == ""


def in_repository(file: Path) -> bool:
    return _git(file, "rev-parse", "--is-inside-work-tree") == "true"


def committed_here(file: Path) -> str | None:
    """What a run records when it begins; None where there are no predictions."""
    if not file.is_file():
        return None
    if not in_repository(file):
        return UNKNOWN
    return YES if is_committed(file) else NO


def _git(file: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(file.parent), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def check_before_training(file: Path) -> str:
    """A word on predictions that may be tested now; InputError where they are missing, or not committed as they are."""
    if not file.is_file():
        raise InputError(f"{file.parent} has no {file.name}: the largest size is trained after it has been committed.")
    committed = committed_here(file)
    if committed == UNKNOWN:
        return (
            f"{file.name} is not in a repository here: that it was committed cannot be checked. The runs record this; "
            "what shows it later is the repository that has the file, if it had it before they began."
        )
    if committed == NO:
        raise InputError(f"{file} is not committed as it is: commit it, then train the largest size.")
    return f"{file.name} is committed as it is."


def preregistration(study: Study, file: Path) -> Preregistration:
    """What the runs of the predicted size recorded, against the file."""
    said = json.loads(file.read_text(encoding="utf-8"))
    rows = study.finals[study.finals["size"] == said["size"]]
    costs = pd.DataFrame(columns=["run_id"]) if study.costs is None else study.costs
    recorded = costs.set_index("run_id").reindex(rows["run_id"]).reindex(columns=["began", "predictions", "committed"])
    silent = int(recorded["began"].isna().sum())
    if silent or "date" not in said:
        who = (
            f"{silent} of {len(rows)} runs of {said['size']} do not say when they began"
            if silent
            else "they bear no date"
        )
        return Preregistration(False, f"That the predictions came first is not shown: {who}.")
    others = int((recorded["predictions"] != hash_of(file)).sum())
    if others:
        return Preregistration(False, f"Not blind: {others} of {len(rows)} runs began without these predictions beside "
                          "them, or they were changed since.")  # fmt: skip
    made, first = datetime.fromisoformat(said["date"]), pd.to_datetime(recorded["began"], utc=True).min()
    if first < made:
        began = f"Not blind: the first run began on {first.isoformat()}"
        return Preregistration(False, f"{began}, the predictions were made on {made.isoformat()}.")
    words = (
        f"The predictions were made on {made.isoformat()} and are unchanged; all {len(rows)} runs of {said['size']} "
        f"began with them in place, the first on {first.isoformat()}."
    )
    unchecked = int((recorded["committed"] != YES).sum())
    return _with_commit(words, committed_at(file), first, unchecked)


def _with_commit(words: str, committed: datetime | None, first: datetime, unchecked: int) -> Preregistration:
    """`unchecked` is how many runs do not say that the predictions were committed where they began."""
    if committed is None and unchecked:
        unknown = f"That they were committed before is not shown: {unchecked} of the runs began where that could not be"
        return Preregistration(False, f"{words} {unknown} checked, and it cannot be told from here.")
    if committed is None:
        return Preregistration(True, f"{words} They were committed then; when cannot be told from here.")
    if committed > first:
        return Preregistration(False, f"{words} But they were committed only on {committed.isoformat()}.")
    return Preregistration(True, f"{words} They were committed on {committed.isoformat()}.")
