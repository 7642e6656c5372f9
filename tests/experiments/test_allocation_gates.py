"""What an allocation leaves out, and what is left of it where it is killed: no run is trained here."""

from __future__ import annotations

import json
import shutil
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from experiments.miniature.studies import DATA, HERE, MAIN, SWEEPS, EndedRun, recorded_in, specs_in, specs_of
from experiments.miniature.train import allocation
from experiments.miniature.train.allocation import Allocation
from experiments.miniature.train.tables import add_allocation, write_tables
from routelaw.errors import InputError
from routelaw.runs.files import decompress, read_runs
from routelaw.runs.store import Store
from routelaw.specs.files import to_mapping
from routelaw.specs.run import RunSpec
from routelaw.specs.sizes import size_label
from routelaw.sweeps.progress import Event, RunEnded, Started
from routelaw.sweeps.task import Task

CORPUS, VOCABULARY = "c", 8192
WEIGHTS = "rl_weights"
MACHINE = SimpleNamespace(devices=("cpu",), threads=1, jobs=2, execution=lambda execution: execution)


class Workers:
    """Instead of those that train: they take note of what they are given, and do as they are told."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.events: list[Event] = []
        self.seen: list[set[str]] = []
        """Which runs the pack has when the event before has been dealt with."""

    def __call__(self, tasks: Sequence[Task], store: Store, **_: object) -> Iterator[Event]:
        self.given = [task.run_id for task in tasks]
        specs = {spec.run_id: spec for spec in specs_of(MAIN, CORPUS, VOCABULARY)}
        for event in self.events:
            if isinstance(event, RunEnded):
                ends(store, specs[event.run_id])
            yield event
            self.seen.append(packed(store.path.parent / "runs.tar.gz"))


def packed(file: Path) -> set[str]:
    """Runs of a pack that say how they began."""
    if not file.is_file():
        return set()
    with tarfile.open(file) as archive:
        return {name.partition("/")[0] for name in archive.getnames() if name.endswith("/allocation.json")}


def ends(store: Store, spec: RunSpec) -> None:
    folder, counts = store.path / spec.run_id, spec.counts
    folder.mkdir(parents=True)
    row = {
        "run_id": spec.run_id, "router": spec.router.name, "variant": spec.variant,
        "size": size_label(counts.active_params), "experts": spec.router.experts, "step": spec.train.steps,
        "active_params": counts.active_params, "total_params": counts.total_params, "status": "finished",
        "loss_validation": 4.0,
    }  # fmt: skip
    result = {"status": "finished", "loss_validation": 4.0, "seconds": 1.0, "device": "none", "precision": "float32"}
    (folder / "spec.json").write_text(json.dumps({"run_id": spec.run_id, "spec": to_mapping(spec)}))
    (folder / "evaluations.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "log.jsonl").write_text(json.dumps({"step": spec.train.steps, "seconds": 1.0}) + "\n")
    (folder / "result.json").write_text(json.dumps({**result, "step": spec.train.steps}))


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Workers:
    made = Workers()
    monkeypatch.setattr(allocation, "run_local", made)
    monkeypatch.setattr(allocation, "machine_for", lambda *_: (MACHINE, ""))
    monkeypatch.setattr(allocation, "check_run", lambda *_: None)
    monkeypatch.setattr(Allocation, "_opened", lambda *_: SimpleNamespace(id=CORPUS, vocabulary=VOCABULARY))
    return made


def going(tmp_path: Path, place: Path = HERE) -> Allocation:
    store = Store(tmp_path / "runs")
    return Allocation(store, place, jobs=2, until=time.monotonic() + 60, pack_to=tmp_path / "runs.tar.gz")


def ids(*studies: str, router: str = "") -> set[str]:
    every = (spec for study in studies for spec in specs_of(study, CORPUS, VOCABULARY))
    return {spec.run_id for spec in every if router in ("", spec.router.name)}


def tried(best: str) -> dict[str, EndedRun]:
    """All of rl_weights, one of its variants better than the others."""
    specs = specs_of(WEIGHTS, CORPUS, VOCABULARY)
    return {spec.run_id: EndedRun(spec, 3.0 if spec.variant == best else 4.0) for spec in specs}


CHOSEN = next(spec.variant for spec in specs_of(MAIN, CORPUS, VOCABULARY) if spec.router.name == "rl-r")
ANOTHER = next(spec.variant for spec in specs_of(WEIGHTS, CORPUS, VOCABULARY) if spec.variant != CHOSEN)


def test_rl_r_waits_until_its_weights_have_been_tried(workers: Workers, tmp_path: Path, capsys) -> None:
    studies = (WEIGHTS, "paper_weights", MAIN, "seeds", "robustness", "rl_variants", "largest")
    now = going(tmp_path)
    now.recorded = dict(list(tried(CHOSEN).items())[1:])
    now.train(studies)
    waiting = ids(*studies[2:], router="rl-r") - ids(WEIGHTS)
    assert waiting
    assert set(workers.given) == ids(*studies) - waiting - now.recorded.keys()
    assert ids(MAIN, router="dense") | ids("paper_weights") - ids(WEIGHTS) <= set(workers.given)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert f"{len(waiting)} runs of rl-r wait for its weights: 1 of 40 runs of rl_weights have not ended" in said[0]
    now.as_chosen = True
    now.train(studies)
    assert set(workers.given) == ids(*studies) - now.recorded.keys()


def test_rl_r_waits_until_the_best_of_those_tried_is_chosen(workers: Workers, tmp_path: Path, capsys) -> None:
    now = going(tmp_path)
    now.recorded = tried(ANOTHER)
    now.train([MAIN])
    assert not ids(MAIN, router="rl-r") & set(workers.given)
    assert f"chosen.toml does not have the best of rl_weights, {ANOTHER}" in capsys.readouterr().out
    now.recorded = tried(CHOSEN)
    now.train([MAIN])
    assert set(workers.given) == ids(MAIN) - ids(WEIGHTS)
    assert "wait" not in capsys.readouterr().out


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Sweep files, and a folder for predictions."""
    made = tmp_path / "miniature"
    shutil.copytree(SWEEPS, made / "sweeps")
    (made / "predictions").mkdir()
    return made


def test_a_run_that_was_killed_over_keeps_its_first_beginning(
    workers: Workers, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = specs_of(MAIN, CORPUS, VOCABULARY)[0]
    (place / "predictions" / "predictions.json").write_text("{}")
    first = going(tmp_path, place)
    workers.events = [Started(spec.run_id)]
    monkeypatch.setattr(first, "record", lambda: None)  # killed before it could
    first.train([MAIN])
    begun = json.loads((tmp_path / "begun" / f"{spec.run_id}.json").read_text())
    assert begun["committed"] == "cannot be checked", "there is no repository"

    (place / "predictions" / "predictions.json").write_text('{"size": "8M"}')
    monkeypatch.setattr(
        Allocation, "_beginning", lambda _: dict.fromkeys(("began", "predictions", "committed"), "later")
    )
    workers.events = [Started(spec.run_id), RunEnded(spec.run_id)]
    going(tmp_path, place).train([MAIN])
    about = json.loads((tmp_path / "runs" / spec.run_id / "allocation.json").read_text())
    assert about == {**begun, "machine": about["machine"], "date": about["date"]}


def test_a_run_that_ended_as_its_allocation_was_killed_says_how_it_began(workers: Workers, tmp_path: Path) -> None:
    spec = specs_of(MAIN, CORPUS, VOCABULARY)[0]
    workers.events = [Started(spec.run_id)]
    going(tmp_path).train([MAIN])
    ends(Store(tmp_path / "runs"), spec)
    assert going(tmp_path).pack() == 1
    assert packed(tmp_path / "runs.tar.gz") == {spec.run_id}


def test_what_has_ended_is_packed_on_the_way(workers: Workers, tmp_path: Path) -> None:
    first, *others = [spec.run_id for spec in specs_of(MAIN, CORPUS, VOCABULARY)][:4]
    for run_id in (first, *others):
        workers.events += [Started(run_id), RunEnded(run_id)]
    going(tmp_path).train([MAIN])
    assert workers.seen[1::2] == [{first}] * 3 + [{first, *others}]
    assert [path.name for path in tmp_path.glob("*runs.tar.gz*")] == ["runs.tar.gz"]


def test_how_long_the_device_was_held_is_kept(tmp_path: Path) -> None:
    """An allocation says so whenever it packs; its last word counts, whatever order words come in."""
    table, held = tmp_path / "allocations.csv", tmp_path / "held.json"
    made = going(tmp_path)
    made.began = datetime.now(UTC) - timedelta(seconds=70)
    made.pack()
    add_allocation(held, table)
    first = held.read_text()
    made.began -= timedelta(days=1)  # another one
    made.pack()
    add_allocation(held, table)
    held.write_text(first.replace('"seconds": 7', '"seconds": 1'))  # of the first again, from before its end
    add_allocation(held, table)
    add_allocation(tmp_path / "nothing", table)
    rows = pd.read_csv(table)
    assert rows["began"].is_monotonic_increasing
    assert rows["seconds"].tolist() == [pytest.approx(86_470, abs=3), pytest.approx(71, abs=2)]
    assert rows["jobs"].tolist() == [2, 2]


def test_a_run_of_no_study_is_kept_apart(tmp_path: Path) -> None:
    """As all runs are once other learning rates are chosen: beside new ones they would be seeds."""
    out, store = tmp_path / "tables", Store(tmp_path / "store")
    ours, *_ = specs_of(MAIN, CORPUS, VOCABULARY)
    other = replace(ours, train=replace(ours.train, learning_rate=0.5))
    for spec in (ours, other):
        ends(store, spec)
    rows = write_tables(store, out)
    assert (rows["runs.csv.gz"], rows["runs_of_no_study.csv.gz"]) == (1, 1)
    assert read_runs(out / "runs.csv.gz").frame["run_id"].tolist() == [ours.run_id]
    assert read_runs(out / "runs_of_no_study.csv.gz").frame["run_id"].tolist() == [other.run_id]
    again = Store(tmp_path / "again")
    ends(again, ours)
    assert write_tables(again, out) == rows, "what was kept apart stays"
    assert recorded_in(out).keys() == {ours.run_id, other.run_id}


def test_studies_in_the_committed_tables_are_those_of_the_sweep_files(tmp_path: Path) -> None:
    """If not, a sweep file was changed since: `python -m experiments.miniature.train.tables` looks them up again."""
    names = ("runs.csv.gz", "rates.csv.gz", "routing.csv.gz", "costs.csv", "specs.jsonl")
    for name in names:
        (tmp_path / name).write_bytes((DATA / name).read_bytes())
    assert write_tables(None, tmp_path)["specs.jsonl"] == len(specs_in(DATA))
    before, after = ([decompress((folder / name).read_bytes(), name) for name in names] for folder in (DATA, tmp_path))
    assert [name for name, old, new in zip(names, before, after, strict=True) if old != new] == []
    with pytest.raises(InputError, match="no run has ended"):
        write_tables(None, tmp_path / "nothing")


def test_every_run_of_the_committed_tables_is_of_a_study(tmp_path: Path) -> None:
    """And adding to them leaves the others as they are."""
    names = ("runs.csv.gz", "rates.csv.gz", "costs.csv", "specs.jsonl")
    for name in names:
        (tmp_path / name).write_bytes((DATA / name).read_bytes())
    known = next(iter(specs_in(DATA).values()))
    new = replace(known, train=replace(known.train, learning_rate=0.5))
    ends(Store(tmp_path / "store"), new)
    write_tables(Store(tmp_path / "store"), tmp_path)
    assert read_runs(tmp_path / "runs_of_no_study.csv.gz").frame["run_id"].tolist() == [new.run_id]
    for name in names[:3]:
        before, after = (pd.read_csv(folder / name, dtype=str) for folder in (DATA, tmp_path))
        after = after[after["run_id"] != new.run_id].reset_index(drop=True)
        same = [column for column in before if column != "studies"]  # looked up again
        pd.testing.assert_frame_equal(after[same], before[same])
