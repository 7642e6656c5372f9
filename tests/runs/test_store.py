"""A store as its readers see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from routelaw.errors import InputError
from routelaw.fitting import select_points
from routelaw.runs.files import read_runs
from routelaw.runs.listing import export_table, filtered, import_table, list_runs
from routelaw.runs.store import Store
from routelaw.runs.table import RunTable
from routelaw.specs.architecture import Architecture
from routelaw.specs.files import to_mapping
from routelaw.specs.run import ModelSpec, RouterSpec, RunSpec, TrainSpec


def write_run(store: Path, experts: int, steps: list[int], *, ended: bool = True, failure: str = "") -> RunSpec:
    router = RouterSpec("switch", experts) if experts > 1 else RouterSpec()
    model = ModelSpec(Architecture(16, 2, 2, 8), 320, 16)
    spec = RunSpec(model, router, TrainSpec(steps=100, batch=4), "c0ffee")
    folder = store / spec.run_id if ended else store / "unfinished" / f"{spec.run_id}.2"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(json.dumps({"run_id": spec.run_id, "spec": to_mapping(spec), "tokenizer": ""}))
    rows = [
        {
            "run_id": spec.run_id,
            "router": router.name,
            "experts": experts,
            "active_params": spec.counts.active_params,
            "step": step,
            "status": "finished" if ended and step == steps[-1] else "running",
            "loss_validation": 5.0 - step / 100,
        }
        for step in steps
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "log.jsonl").write_text("".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in steps))
    if ended:
        (folder / "result.json").write_text(json.dumps({"run_id": spec.run_id, "status": "finished"}))
    if failure:
        (folder / "failure.json").write_text(json.dumps({"reason": failure}))
    return spec


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_ended_begun_and_failed_runs(store: Store) -> None:
    dense = write_run(store.path, 1, [50, 100])
    begun = write_run(store.path, 4, [50], ended=False)
    failed = write_run(store.path, 8, [], ended=False, failure="out of luck")
    by_id = {run.run_id: run for run in store.runs()}
    assert {run.run_id: run.status for run in by_id.values()} == {
        dense.run_id: "finished",
        begun.run_id: "stopped",
        failed.run_id: "failed",
    }
    assert by_id[begun.run_id].spec == begun
    assert by_id[begun.run_id].last_logged()["step"] == 50
    assert by_id[failed.run_id].last_logged() == {}
    assert by_id[failed.run_id].failure["reason"] == "out of luck"
    table = store.table()
    assert table.frame["status"].tolist().count("finished") == 1
    assert read_runs(store.path).frame.equals(table.frame)
    listed = list_runs(store).set_index("run_id")
    assert listed["status"].to_dict() == {dense.run_id: "finished", begun.run_id: "stopped", failed.run_id: "failed"}
    assert listed.loc[dense.run_id, "loss_validation"] == 4.0


def test_the_newest_attempt_speaks_and_a_published_run_speaks_alone(store: Store) -> None:
    spec = write_run(store.path, 4, [50], ended=False)
    older = store.path / "unfinished" / f"{spec.run_id}.1"
    older.mkdir()
    (older / "evaluations.jsonl").write_text("")
    assert [run.folder.name for run in store.runs()] == [f"{spec.run_id}.2"]
    write_run(store.path, 4, [50, 100])
    assert [run.folder.name for run in store.runs()] == [spec.run_id]
    assert len(store.table().frame) == 2


def test_by_the_beginning_of_its_id(store: Store) -> None:
    ids = [write_run(store.path, experts, [100]).run_id for experts in (1, 2, 4, 8, 16)]
    assert store.find(ids[0][:10]).run_id == ids[0]
    with pytest.raises(InputError, match=r"has no run 'zzz'"):
        store.find("zzz")
    with pytest.raises(InputError, match="has no run ''"):
        store.find("")


def test_filters(store: Store) -> None:
    for experts in (1, 2, 4):
        write_run(store.path, experts, [100])
    rows = list_runs(store)
    assert filtered(rows, {"router": "Switch"})["experts"].tolist() == [2, 4]
    assert filtered(rows, {"experts": "1,4", "router": "switch"})["experts"].tolist() == [4]
    assert filtered(rows, {"status": "failed"}).empty
    with pytest.raises(InputError, match="not by 'speed'"):
        filtered(rows, {"speed": "high"})


def test_imported_tables_are_shown_and_never_mixed(store: Store, tmp_path: Path) -> None:
    write_run(store.path, 1, [100])
    csv = tmp_path / "theirs.csv"
    csv.write_text("run_id,router,experts,active_params,loss_validation\nx,moe,8,1e9,2.5\ny,dense,1,1e9,2.7\n")
    assert import_table(store, read_runs(csv), "theirs") == 2
    assert store.table().frame["run_id"].nunique() == 1
    assert list_runs(store)["source"].tolist() == ["own", "theirs", "theirs"]
    both = export_table(store, everything=True)
    assert set(both.frame["from_table"]) == {"own", "theirs"}
    with pytest.raises(InputError, match=r"put together from several tables \(own, theirs\)"):
        select_points(both, "moe")
    assert export_table(store, everything=False).frame["run_id"].nunique() == 1
    for table, name, words in (
        (read_runs(csv), "theirs", "already"),
        (read_runs(csv), "again", "run x is in"),
        (read_runs(csv), "../up", "letters, digits"),
    ):
        with pytest.raises(InputError, match=words):
            import_table(store, table, name)
    store.remove("theirs")
    assert list_runs(store)["source"].tolist() == ["own"]


def test_only_imported(store: Store, released: RunTable) -> None:
    import_table(store, released, "clark2022")
    assert len(list_runs(store)) == 223
    with pytest.raises(InputError, match=r"no runs of its own; imported tables are files: .*clark2022\.parquet"):
        store.table()


def test_removed_for_good(store: Store) -> None:
    spec = write_run(store.path, 4, [100])
    other = write_run(store.path, 8, [50], ended=False)
    store.remove(spec.run_id)
    store.remove(other.run_id)
    assert store.runs() == []
    assert [p.name for p in store.path.rglob("*")] == ["unfinished"]


def test_the_last_row_of_a_long_log(store: Store) -> None:
    spec = write_run(store.path, 1, [100])
    log = store.path / spec.run_id / "log.jsonl"
    wide = json.dumps({"step": 7, "load": [0.123456789] * 40_000})
    log.write_text(json.dumps({"step": 1}) + "\n" + wide + "\n" + '{"step": 8, "lo')
    assert store.runs()[0].last_logged()["step"] == 7
