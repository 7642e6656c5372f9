"""A sitting on a CPU, stopped and continued: nothing is lost, nothing is trained twice, and the tables follow."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.miniature.corpora import build_quick_corpora
from experiments.miniature.packing import PACKED, opened, pack, unpack
from experiments.miniature.rates import write_chosen
from experiments.miniature.sitting import Sitting
from experiments.miniature.studies import HERE
from experiments.miniature.table import write_tables
from routelaw.errors import InputError
from routelaw.runs.files import read_runs
from routelaw.runs.store import Store
from routelaw.specs.files import to_mapping
from routelaw.sweeps.events import Started

QUICK_RUNS = 5
PATIENCE = 120


def sitting(root: Path, *more: object) -> subprocess.Popen[str]:
    words = ("--quick", "--minutes", "10", "--jobs", "1", "--root", root, "--out", root / "packed", *more)
    known = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "experiments.miniature.sitting", *map(str, words)]
    return subprocess.Popen(command, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def sittings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The packs of a sitting that was stopped after its first run and of one on another machine that went on."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("first", "second"))
    stopped = sitting(first)
    assert stopped.stdout is not None
    said = []
    for line in stopped.stdout:
        said.append(line)
        if "rate 0.001" in line:
            stopped.send_signal(signal.SIGTERM)
            break
    said += stopped.communicate(timeout=PATIENCE)[0]
    assert stopped.returncode == 0, "".join(said)
    finished = sitting(second, "--kept", first / "packed" / "runs.tar.gz")
    words = finished.communicate(timeout=PATIENCE)[0]
    assert finished.returncode == 0, words
    assert f"quick: {QUICK_RUNS} of {QUICK_RUNS} runs have ended" in words
    return first / "packed" / "runs.tar.gz", second / "packed" / "runs.tar.gz"


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        members = [(member.name, archive.extractfile(member)) for member in archive]
        return {name: opened_file.read() for name, opened_file in members if opened_file}


def test_a_run_that_ends_while_workers_are_stopped_is_recorded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, store = tmp_path / "experiments" / "miniature", Store(tmp_path / "runs")
    place.mkdir(parents=True)
    for name in ("quick.toml", "recipe.toml"):
        (place / name).write_bytes((HERE / name).read_bytes())
    build_quick_corpora(tmp_path / "out" / "miniature")
    going = Sitting(store, place, jobs=2, until=time.monotonic() + PATIENCE)
    first, second, *_ = going.planned(["quick"]).values()
    result = {"status": "finished", "loss_validation": 5.0, "seconds": 1.0, "device": "a CPU"}

    def local(*_: object, **__: object) -> Iterator[Started]:
        try:
            yield Started(first.spec.run_id)
            going.stopped = True
            yield Started(second.spec.run_id)
        finally:  # the first gets to its end, the second does not
            folder = store.path / first.spec.run_id
            folder.mkdir(parents=True)
            stored = {"run_id": first.spec.run_id, "spec": to_mapping(first.spec)}
            (folder / "spec.json").write_text(json.dumps(stored))
            (folder / "result.json").write_text(json.dumps(result))
            (folder / "evaluations.jsonl").touch()

    monkeypatch.setattr("experiments.miniature.sitting.run_local", local)
    assert going.train(["quick"]) == {}
    about = json.loads((store.path / first.spec.run_id / "sitting.json").read_text())
    assert about["runs_at_a_time"] == 2
    assert not (store.path / second.spec.run_id).exists()


@pytest.mark.slow
def test_what_was_done_is_kept_and_the_rest_is_done(sittings: tuple[Path, Path]) -> None:
    before, after = map(contents, sittings)
    assert 1 <= len({name.partition("/")[0] for name in before}) < QUICK_RUNS, "it was stopped in the middle"
    assert len({name.partition("/")[0] for name in after}) == QUICK_RUNS
    assert before.items() <= after.items(), "to the byte: nothing was trained again"
    assert {name.partition("/")[2] for name in after} == set(PACKED), "and no weights"
    about = json.loads(next(text for name, text in after.items() if name.endswith("sitting.json")))
    assert set(about) == {"machine", "runs_at_a_time", "torch", "python", "date", "began", "predictions"}


@pytest.mark.slow
def test_a_sitting_without_time_trains_nothing_and_keeps_everything(
    sittings: tuple[Path, Path], tmp_path: Path
) -> None:
    begun = time.monotonic()
    short = sitting(tmp_path, "--minutes", "0.1", "--kept", sittings[0])
    words = short.communicate(timeout=PATIENCE)[0]
    assert short.returncode == 0, words
    assert time.monotonic() - begun < PATIENCE
    assert (tmp_path / "packed" / "runs.tar.gz").read_bytes() == sittings[0].read_bytes()


@pytest.mark.slow
def test_the_blind_test_waits_for_its_predictions(tmp_path: Path) -> None:
    eager = sitting(tmp_path, "--only", "largest")
    words = eager.communicate(timeout=PATIENCE)[0]
    assert eager.returncode == 1
    assert "the largest size is trained after it has been committed" in words


@pytest.mark.slow
def test_tables_are_the_same_bytes_for_the_same_runs(sittings: tuple[Path, Path], tmp_path: Path) -> None:
    once, again = tmp_path / "once", tmp_path / "again"
    for out in (once, again):
        with opened(sittings[1]) as store:
            rows = write_tables(store, out)
    assert {path.name: path.read_bytes() for path in once.iterdir()} == {
        path.name: path.read_bytes() for path in again.iterdir()
    }
    assert (rows["specs.jsonl"], rows["costs.csv"]) == (QUICK_RUNS, QUICK_RUNS)
    frame = read_runs(once / "runs.csv.gz").frame
    assert frame["run_id"].nunique() == QUICK_RUNS
    assert {"loss_validation", "loss_c4", "loss_lambada_text", "learning_rate", "studies"} <= set(frame.columns)
    routed, blocks, logged = 4, 2, 5
    assert rows["routing.csv.gz"] == routed * blocks * logged


@pytest.mark.slow
def test_packing_leaves_out_what_is_not_ended_and_weights(sittings: tuple[Path, Path], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert unpack(sittings[1], store) == QUICK_RUNS
    assert unpack(sittings[1], store) == 0, "they are there already"
    run = store.runs()[0]
    (run.folder / "checkpoints").mkdir()
    (run.folder / "checkpoints" / "model.safetensors").write_bytes(b"weights")
    other = store.path / "unfinished" / "0123456789ab.1"
    other.mkdir(parents=True)
    (other / "log.jsonl").write_text("{}\n")
    assert pack(store, tmp_path / "again.tar.gz") == QUICK_RUNS
    assert (tmp_path / "again.tar.gz").read_bytes() == sittings[1].read_bytes()
    assert write_chosen(store, tmp_path / "chosen.toml") is None
    assert not (tmp_path / "chosen.toml").exists()


def test_a_pack_that_is_none_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    (tmp_path / "text.tar.gz").write_bytes(b"no archive")
    with pytest.raises(InputError, match="not a file of packed runs"):
        unpack(tmp_path / "text.tar.gz", store)
    with tarfile.open(tmp_path / "escapes.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("../escaped.txt")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(InputError, match="not a file of packed runs"):
        unpack(tmp_path / "escapes.tar.gz", store)
    assert not list(tmp_path.rglob("escaped.txt"))
    assert not list(store.path.glob(".unpacked.*")), "nothing is left behind"
