"""An allocation on a CPU, stopped and continued: nothing is lost, nothing is trained twice, and the tables follow."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from unittest.mock import Mock

import pytest

from experiments.miniature.studies import DATA, HERE, MAIN, OF_LARGEST, SWEEPS, ended_in, recorded_in, specs_of
from experiments.miniature.train.allocation import Allocation, build_quick_corpora, main
from experiments.miniature.train.rates import write_chosen
from experiments.miniature.train.tables import PACKED, opened, pack, unpack, write_tables
from routelaw.errors import InputError
from routelaw.runs.files import read_runs
from routelaw.runs.store import Store
from routelaw.specs.files import to_mapping
from routelaw.sweeps.progress import Started

QUICK_RUNS = 5
PLACE = Path("experiments", "miniature")
TABLES = PLACE / "data"
TIMEOUT_S = 300


def allocation(root: Path, *more: object) -> subprocess.Popen[str]:
    words = ("--quick", "--minutes", "10", "--jobs", "1", "--root", root, "--out", root / "packed", *more)
    known = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "experiments.miniature.train.allocation", *map(str, words)]
    return subprocess.Popen(command, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def allocations(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The packs of an allocation stopped after its first run and of one on another machine that had its tables."""
    first, second = (tmp_path_factory.mktemp(name) for name in ("first", "second"))
    stopped = allocation(first)
    assert stopped.stdout is not None
    said = []
    for line in stopped.stdout:
        said.append(line)
        if "rate 0.001" in line:
            stopped.send_signal(signal.SIGTERM)
            break
    said += stopped.communicate(timeout=TIMEOUT_S)[0]
    assert stopped.returncode == 0, "".join(said)
    tabled(first / "packed" / "runs.tar.gz", second / TABLES)
    finished = allocation(second)
    words = finished.communicate(timeout=TIMEOUT_S)[0]
    assert finished.returncode == 0, words
    assert f"quick: {QUICK_RUNS} of {QUICK_RUNS} runs have ended" in words
    return first / "packed" / "runs.tar.gz", second / "packed" / "runs.tar.gz"


def tabled(packed: Path, out: Path) -> dict[str, int]:
    with opened(packed) as store:
        return write_tables(store, out)


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        members = [(member.name, archive.extractfile(member)) for member in archive]
        return {name: opened_file.read() for name, opened_file in members if opened_file}


def test_a_run_that_ends_while_workers_are_stopped_is_recorded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, store = tmp_path / PLACE, Store(tmp_path / "runs")
    shutil.copytree(SWEEPS, place / "sweeps")
    build_quick_corpora(tmp_path / "out" / "miniature")
    going = Allocation(store, place, jobs=2, until=time.monotonic() + TIMEOUT_S)
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

    monkeypatch.setattr("experiments.miniature.train.allocation.run_local", local)
    assert going.train(["quick"]) == {}
    about = json.loads((store.path / first.spec.run_id / "allocation.json").read_text())
    assert about["runs_at_a_time"] == 2
    assert not (store.path / second.spec.run_id).exists()


@pytest.mark.long
def test_what_the_tables_have_is_not_trained_again_and_the_rest_is(allocations: tuple[Path, Path]) -> None:
    before, after = map(contents, allocations)
    first, second = ({name.partition("/")[0] for name in each} for each in (before, after))
    assert 1 <= len(first) < QUICK_RUNS, "it was stopped in the middle"
    assert not first & second
    assert len(first | second) == QUICK_RUNS
    assert {name.partition("/")[2] for name in after} == set(PACKED), "and no weights"
    about = json.loads(next(text for name, text in after.items() if name.endswith("allocation.json")))
    assert set(about) == {"machine", "runs_at_a_time", "torch", "python", "date", "began", "predictions", "committed"}


@pytest.mark.long
def test_an_allocation_without_time_trains_nothing(tmp_path: Path) -> None:
    short = allocation(tmp_path, "--minutes", "0.1")
    words = short.communicate(timeout=TIMEOUT_S)[0]
    assert short.returncode == 0, words
    assert f"quick: 0 of {QUICK_RUNS} runs have ended" in words
    assert contents(tmp_path / "packed" / "runs.tar.gz") == {}


@pytest.mark.long
def test_an_allocation_that_breaks_packs_what_has_ended(
    allocations: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    store = Store(tmp_path / "out" / "miniature" / "runs")
    unpack(allocations[0], store)

    def broken(*_: object) -> dict[str, str]:
        raise OSError("no space left on device")

    monkeypatch.setattr(Allocation, "train", broken)
    words = ["allocation", "--quick", "--minutes", "1", "--root", str(tmp_path), "--out", str(tmp_path / "packed")]
    monkeypatch.setattr(sys, "argv", words)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.raises(OSError, match="no space"):
        main()
    for number, handler in before.items():
        signal.signal(number, handler)
    assert (tmp_path / "packed" / "runs.tar.gz").read_bytes() == allocations[0].read_bytes()
    assert "1 ended runs in" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("study", OF_LARGEST)
def test_the_blind_test_waits_for_its_predictions(tmp_path: Path, study: str) -> None:
    eager = allocation(tmp_path, "--only", study)
    words = eager.communicate(timeout=TIMEOUT_S)[0]
    assert eager.returncode == 1
    assert "the largest size is trained after it has been committed" in words


@pytest.mark.long
def test_tables_are_the_same_bytes_for_the_same_runs_added_at_once_or_in_parts(
    allocations: tuple[Path, Path], tmp_path: Path
) -> None:
    together = Store(tmp_path / "together")
    for packed in allocations:
        unpack(packed, together)
    rows = write_tables(together, tmp_path / "once")
    for packed in (allocations[1], allocations[0], allocations[1]):  # in either order, and twice
        tabled(packed, tmp_path / "parts")
    assert {path.name: path.read_bytes() for path in (tmp_path / "once").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "parts").iterdir()
    }
    assert (rows["specs.jsonl"], rows["costs.csv"]) == (QUICK_RUNS, QUICK_RUNS)
    frame = read_runs(tmp_path / "once" / "runs.csv.gz").frame
    assert frame["run_id"].nunique() == QUICK_RUNS
    assert {"loss_validation", "loss_c4", "loss_lambada_text", "learning_rate", "studies"} <= set(frame.columns)
    routed, blocks, logged = 4, 2, 5
    assert rows["routing.csv.gz"] == routed * blocks * logged
    assert recorded_in(tmp_path / "parts") == ended_in(together)


@pytest.mark.long
def test_what_is_tabled_stays(allocations: tuple[Path, Path], tmp_path: Path) -> None:
    tabled(allocations[0], tmp_path)
    costs = (tmp_path / "costs.csv").read_text().splitlines()
    changed = [costs[0], *(line.replace("finished", "as it was") for line in costs[1:])]
    (tmp_path / "costs.csv").write_text("".join(f"{line}\n" for line in changed))
    before = recorded_in(tmp_path)
    tabled(allocations[1], tmp_path)
    assert set(changed) <= set((tmp_path / "costs.csv").read_text().splitlines())
    assert before.items() < recorded_in(tmp_path).items()


@pytest.mark.long
def test_runs_of_another_text_are_refused(allocations: tuple[Path, Path], tmp_path: Path) -> None:
    place = tmp_path / TABLES
    place.mkdir(parents=True)
    for name in ("runs.csv.gz", "rates.csv.gz", "specs.jsonl"):
        (place / name).write_bytes((DATA / name).read_bytes())
    with pytest.raises(InputError, match="another text"):
        tabled(allocations[0], place)
    assert (place / "specs.jsonl").read_bytes() == (DATA / "specs.jsonl").read_bytes()
    other = allocation(tmp_path)
    words = other.communicate(timeout=TIMEOUT_S)[0]
    assert other.returncode == 1
    assert "its tables are of another text" in words


@pytest.mark.long
def test_a_run_counts_as_trained_once_all_tables_have_it(
    allocations: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tabled(allocations[0], tmp_path)
    before = recorded_in(tmp_path)
    writing = "experiments.miniature.train.tables.write_atomically"
    with monkeypatch.context() as patch:
        patch.setattr(writing, Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tabled(allocations[1], tmp_path)
    assert recorded_in(tmp_path) == before
    tabled(allocations[1], tmp_path)
    assert len(recorded_in(tmp_path)) == QUICK_RUNS


def test_a_recorded_run_has_its_loss_and_a_diverged_one_none(tmp_path: Path) -> None:
    header = "run_id,router,size,experts,step,active_params,total_params,status,loss_validation\n"
    specs = specs_of(MAIN, "c", 8192)[:2]
    rows = [f"{spec.run_id},s-base,8M,2,{step},8e6,9e6," for spec in specs for step in (1, 2)]
    ends = ("running,5", "finished,4", "running,7", "diverged,9")
    table = header + "".join(f"{row}{end}\n" for row, end in zip(rows, ends, strict=True))
    (tmp_path / "runs.csv.gz").write_bytes(gzip.compress(table.encode()))
    lines = [json.dumps({"run_id": spec.run_id, "spec": to_mapping(spec)}) for spec in specs]
    (tmp_path / "specs.jsonl").write_text("\n".join(lines))
    assert [run.loss for run in recorded_in(tmp_path).values()] == [4, inf]
    (tmp_path / "runs.csv.gz").unlink()
    with pytest.raises(InputError, match="have no row of"):
        recorded_in(tmp_path)


@pytest.mark.long
def test_packing_leaves_out_what_is_not_ended_and_weights(allocations: tuple[Path, Path], tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    unpack(allocations[1], store)
    runs = len(store.runs())
    run = store.runs()[0]
    (run.folder / "checkpoints").mkdir()
    (run.folder / "checkpoints" / "model.safetensors").write_bytes(b"weights")
    other = store.path / "unfinished" / "0123456789ab.1"
    other.mkdir(parents=True)
    (other / "log.jsonl").write_text("{}\n")
    assert pack(store, tmp_path / "again.tar.gz") == runs
    assert (tmp_path / "again.tar.gz").read_bytes() == allocations[1].read_bytes()
    assert write_chosen(ended_in(store), tmp_path / "chosen.toml") is None
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
