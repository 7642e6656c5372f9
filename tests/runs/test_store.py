"""A store as its readers see it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from routelaw.errors import InputError
from routelaw.fitting import select_points
from routelaw.runs.files import read_runs
from routelaw.runs.listing import export_table, filtered, import_table, list_runs
from routelaw.runs.locks import lock
from routelaw.runs.store import Store
from routelaw.runs.table import RunTable
from routelaw.specs.counting import Architecture
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


@pytest.mark.parametrize("name", ["unfinished", "imported", "own", "RUN", "0123456789ab", "..", ".x", "a/b", "", "é"])
def test_a_table_cannot_take_a_name_of_the_store_s(store: Store, tmp_path: Path, name: str) -> None:
    """`remove` goes by names: of a table called `unfinished` it once took every attempt with it."""
    spec = write_run(store.path, 1, [100])
    begun = write_run(store.path, 4, [50], ended=False)
    csv = tmp_path / "theirs.csv"
    csv.write_text("run_id,router,experts,active_params,loss_validation\nx,moe,8,1e9,2.5\ny,dense,1,1e9,2.7\n")
    before = sorted(store.path.rglob("*"))
    with pytest.raises(InputError):
        import_table(store, read_runs(csv), name.replace("RUN", spec.run_id))
    with pytest.raises(InputError, match="has no run or imported table"):
        store.remove(name.replace("RUN", "nothing"))
    assert sorted(store.path.rglob("*")) == before
    assert {run.run_id for run in store.runs()} == {spec.run_id, begun.run_id}


def test_to_remove_takes_what_was_named_and_nothing_else(store: Store, tmp_path: Path) -> None:
    """Even where a table is called after the store's own folders, as an earlier version let it be."""
    spec, begun = write_run(store.path, 1, [100]), write_run(store.path, 4, [50], ended=False)
    csv = tmp_path / "theirs.csv"
    csv.write_text("run_id,router,experts,active_params,loss_validation\nx,moe,8,1e9,2.5\ny,dense,1,1e9,2.7\n")
    import_table(store, read_runs(csv), "theirs")
    for name in ("unfinished", "imported"):
        shutil.copy(store.path / "imported" / "theirs.parquet", store.path / "imported" / f"{name}.parquet")
        store.remove(name)
    assert {run.run_id for run in store.runs()} == {spec.run_id, begun.run_id}
    assert list(store.imported()) == ["theirs"]
    shutil.copy(store.path / "imported" / "theirs.parquet", store.path / "imported" / f"{spec.run_id}.parquet")
    with pytest.raises(InputError, match="is a run and an imported table"):
        store.remove(spec.run_id)


@pytest.mark.parametrize("file", [".lock", ".claim"])
def test_what_is_being_trained_is_not_removed(store: Store, file: str) -> None:
    ended, begun = write_run(store.path, 1, [100]), write_run(store.path, 4, [50], ended=False)
    for run_id, folder in (
        (ended.run_id, store.path / ended.run_id),
        (begun.run_id, store.path / "unfinished" / f"{begun.run_id}.2"),
    ):
        held = lock(folder / file)
        with pytest.raises(InputError, match="is being trained"):
            store.remove(run_id)
        assert (folder / "spec.json").exists()
        held.close()
        store.remove(run_id)
        assert not folder.exists()


def test_a_run_under_a_name_of_its_own_is_one_run(store: Store) -> None:
    """`train --out STORE/mine`: it was listed twice, once by its name and once by its id."""
    spec = write_run(store.path, 4, [50, 100])
    (store.path / spec.run_id).rename(store.path / "mine")
    assert [(run.run_id, run.folder.name) for run in store.runs()] == [(spec.run_id, "mine")]
    assert list_runs(store)["run_id"].tolist() == [spec.run_id]
    assert store.find(spec.run_id).status == "finished"
    write_run(store.path, 4, [50, 100])
    with pytest.raises(InputError, match="hold the same run"):
        store.table()
    store.remove(spec.run_id)
    assert store.runs() == []


def test_an_ended_run_without_its_evaluations_is_damage_and_no_point_lost_in_silence(store: Store) -> None:
    write_run(store.path, 1, [100])
    spec = write_run(store.path, 4, [50, 100])
    evaluations = store.path / spec.run_id / "evaluations.jsonl"
    whole = evaluations.read_bytes()
    for content in (None, b"", whole[: len(whole) // 2], whole[:-10]):
        evaluations.unlink() if content is None else evaluations.write_bytes(content)
        with pytest.raises(InputError, match=r"is damaged: the run has ended, and its evaluations.jsonl does not go"):
            store.table()
        said: list[str] = []
        assert spec.run_id in list_runs(store, said.append)["run_id"].tolist()
        assert len(said) == 1
    for content in (b"null\n" + whole, whole + b"[]\n", whole + b"7\n", whole + b'{"run_id": "\\ud800"}\n'):
        evaluations.write_bytes(content)
        with pytest.raises(InputError, match="is damaged"):
            store.table()
    evaluations.unlink()
    os.mkfifo(evaluations)
    for read in (store.table, lambda: list_runs(store), lambda: read_runs(store.path)):
        with pytest.raises(InputError, match="FIFO"):
            read()


def test_names_that_are_no_attempts(store: Store) -> None:
    spec = write_run(store.path, 4, [50], ended=False)
    for name in (
        f"{spec.run_id}.²",
        f"{spec.run_id}.-1",
        "x.",
        ".y.3",
        f"{spec.run_id}.99999999999999999999",
        "a\nb.1",
    ):
        (store.path / "unfinished" / name).mkdir()
    assert [folder.name for _, folder in store.attempts(spec.run_id)] == [f"{spec.run_id}.2"]


@pytest.mark.parametrize("content", ["{}", '{"status": "[/x]"}', '{"status": "finished", "step": "six"}', "[]", "7"])
def test_a_damaged_result_is_one_sentence(store: Store, content: str) -> None:
    spec = write_run(store.path, 4, [100])
    (store.path / spec.run_id / "result.json").write_text(content)
    with pytest.raises(InputError, match=r"result.json is damaged"):
        _ = store.find(spec.run_id).status


@pytest.mark.parametrize(
    "line",
    ["null", "[]", '{"step": "six"}', '{"step": -1}', '{"step": true}', '{"loss": 3.0}', '{"step": 1e999}', "9" * 5000],
)
def test_a_line_that_is_no_row_of_a_log(store: Store, line: str) -> None:
    spec = write_run(store.path, 1, [100])
    (store.path / spec.run_id / "log.jsonl").write_text(f"{line}\n")
    assert store.find(spec.run_id).last_logged() == {}


def test_numbers_that_are_none_are_left_out_of_a_row(store: Store) -> None:
    spec = write_run(store.path, 1, [100])
    layers = [{"block": 2, "load": [0.5, 0.5], "dropped": 0.1}]
    row = {"step": 3, "loss": "high", "seconds": 2.5, "layers": layers}
    log = store.path / spec.run_id / "log.jsonl"
    log.write_text(json.dumps(row) + "\n")
    assert store.find(spec.run_id).last_logged() == {"step": 3, "seconds": 2.5, "layers": layers}
    for damaged in ({"block": "x"}, {"load": None}, {"load": [None]}, {"dropped": "few"}):
        log.write_text(json.dumps(row | {"layers": [layers[0] | damaged]}) + "\n")
        assert "layers" not in store.find(spec.run_id).last_logged()


def test_the_studies_that_a_store_was_made_for(store: Store, tmp_path: Path) -> None:
    assert store.studies() == []
    write_run(store.path, 2, [50, 100])
    for study in ("seeds", "k", "seeds"):
        store.record_study(study, f"{study}.toml")
    assert store.studies() == ["k", "seeds"], "in the paper's order, each once"
    (store.path / "studies" / "other.json").write_text("{}")
    assert store.studies() == ["k", "seeds"], "of a newer version, say"
    assert len(store.runs()) == 1, "their folder is no run"
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        Store(tmp_path / "file").record_study("k", "k.toml")
