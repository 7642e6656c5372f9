"""Ended runs in one file that travels: what they are and how they went, without weights.

    RUN_ID/spec.json, result.json, evaluations.jsonl, log.jsonl
    RUN_ID/loads.jsonl     the last row: the load of every expert on every evaluation set
    RUN_ID/allocation.json    the machine, the day, and how it began

The same runs are the same bytes. Beside the pack, held.json says how long an allocation held the device.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from routelaw.errors import InputError
from routelaw.files import write_atomically
from routelaw.runs.folders import EVALUATIONS, LOG, RESULT, SPEC
from routelaw.runs.store import Store, StoredRun

LOADS, ALLOCATION, HELD = "loads.jsonl", "allocation.json", "held.json"
PACKED = (SPEC, RESULT, EVALUATIONS, LOG, LOADS, ALLOCATION)


def pack(store: Store, file: Path) -> int:
    """Write every ended run of the store to `file`; returns how many."""
    runs = [run for run in store.runs() if run.ended]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for run in runs:
            for name in PACKED:
                if (run.folder / name).is_file():
                    _add(archive, f"{run.run_id}/{name}", _content(run, name))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(gzip.compress(buffer.getvalue(), mtime=0), file, force=True)
    return len(runs)


def unpack(file: Path, store: Store) -> None:
    """Put the runs of `file` into a store that does not have them, each by one rename."""
    store.check_writable()
    with tempfile.TemporaryDirectory(dir=store.path, prefix=".unpacked.") as folder:
        try:
            with tarfile.open(file, "r:gz") as archive:
                archive.extractall(folder, filter="data")
        except (OSError, EOFError, tarfile.TarError) as error:
            raise InputError(f"{file}: this is not a file of packed runs, or it is damaged ({error}).") from None
        for path in sorted(Path(folder).iterdir()):
            run = StoredRun(path.name, path)
            if run.spec.run_id != path.name or not run.result:
                raise InputError(f"{file}: {path.name} is not the ended run that its name says.")
            path.rename(store.path / path.name)


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The store at `path`, or one made of a file of packed runs for as long as it is needed."""
    if path.is_dir():
        yield Store(path)
        return
    folder = Path(tempfile.mkdtemp(prefix="routelaw-runs-"))
    try:
        unpack(path, Store(folder))
        yield Store(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _content(run: StoredRun, name: str) -> bytes:
    """The file's content; of the loads only the last row, since those of all evaluations would be most of it."""
    content = (run.folder / name).read_bytes()
    return b"".join(content.splitlines(keepends=True)[-1:]) if name == LOADS else content


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
