"""What lies in a store and is not what was written is refused or said, never read as something else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from calling import command
from tiny_runs import EXECUTION, make_spec, tiny_corpus

from routelaw.corpus import Corpus
from routelaw.errors import InputError
from routelaw.report.runs.training import sampled_log
from routelaw.runs.folders import LONGEST_LINE, last_row
from routelaw.runs.store import Store
from routelaw.training.run import run

__all__ = ["command", "tiny_corpus"]


@pytest.fixture(scope="module")
def trained(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ended runs, dense and hash."""
    store = tmp_path_factory.mktemp("damaged") / "store"
    for router in ("dense", "hash"):
        spec = make_spec(tiny_corpus, router, steps=4)
        run(spec, replace(EXECUTION, evaluate_every=2), tiny_corpus, store / spec.run_id)
    return store


@pytest.fixture
def store(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "store"))


def folders(store: Path) -> tuple[Path, Path]:
    one, other = sorted(folder for folder in store.iterdir() if folder.name != "unfinished")
    return one, other


def changed(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_the_spec_of_another_run(store: Path) -> None:
    one, other = folders(store)
    shutil.copy(other / "spec.json", one / "spec.json")
    with pytest.raises(InputError, match="is the spec of run"):
        _ = Store(store).find(one.name).spec


@pytest.mark.parametrize(
    "values",
    [{"run_id": "000000000000"}, {"loss_validation": 1.23}, {"step": 3}, {"step": -1}, {"status": "diverged"}],
    ids=str,
)
def test_a_result_that_the_evaluations_contradict(store: Path, values: dict, command: Callable) -> None:
    one, _ = folders(store)
    changed(one / "result.json", **values)
    with pytest.raises(InputError, match="damaged"):
        Store(store).table()
    listed = command("runs", "list", store)
    assert listed.code in (0, 2)
    assert f"{one} is damaged" in listed.err


@pytest.mark.parametrize("loss", [None, [5.0]], ids=["no loss", "a list"])
def test_a_last_loss_that_is_none_is_not_replaced_by_an_earlier_one(store: Path, loss: object) -> None:
    one, _ = folders(store)
    lines = (one / "evaluations.jsonl").read_text().splitlines()
    lines[-1] = json.dumps(json.loads(lines[-1]) | {"loss_validation": loss})
    (one / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="damaged"):
        Store(store).table()


def test_rows_of_two_runs_in_one_folder(store: Path) -> None:
    one, _ = folders(store)
    text = (one / "evaluations.jsonl").read_text()
    (one / "evaluations.jsonl").write_text(text + text.splitlines()[0].replace(one.name, "0" * 12) + "\n")
    with pytest.raises(InputError, match="rows of several runs"):
        Store(store).table()


def test_resuming_removes_rows_that_are_not_of_this_run(tiny_corpus: Corpus, tmp_path: Path) -> None:
    spec, steps = make_spec(tiny_corpus, "hash", steps=9), iter(range(100))
    run(spec, EXECUTION, tiny_corpus, tmp_path / "run", stop=lambda: next(steps) >= 5)
    file = tmp_path / "run" / "evaluations.jsonl"
    row = file.read_text()
    file.write_text(row + row + row.replace(spec.run_id, "0" * 12))
    notices: list[str] = []
    run(spec, EXECUTION, tiny_corpus, tmp_path / "run", notice=notices.append)
    assert f"{file}: 2 broken lines removed." in notices
    whole = run(spec, EXECUTION, tiny_corpus, tmp_path / "whole")
    assert whole.status == "finished"
    assert file.read_text() == (tmp_path / "whole" / "evaluations.jsonl").read_text()


def test_a_link_is_not_removed(store: Path, tmp_path: Path) -> None:
    one, _ = folders(store)
    one.rename(tmp_path / "elsewhere")
    one.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link"):
        Store(store).remove(one.name)
    assert one.is_symlink()
    assert not (tmp_path / "elsewhere" / ".claim").exists()


def sweep_file(corpus: Corpus, folder: Path, more: str = "") -> Path:
    file = folder / "sweep.toml"
    file.write_text(
        f"corpus = {str(corpus.path)!r}\n"
        "model = { d_model = 16, blocks = 2, heads = 2, kv_size = 8, sequence_length = 16 }\n"
        "train = { steps = 4, batch = 4, learning_rate = 3e-3 }\nexecution = { device = 'cpu', threads = 1 }\n" + more
    )
    return file


@pytest.mark.parametrize("folder", ["run", "corpus"])
def test_a_sweep_needs_a_store(
    store: Path, tiny_corpus: Corpus, tmp_path: Path, command: Callable, folder: str
) -> None:
    there = folders(store)[0] if folder == "run" else Path(shutil.copytree(tiny_corpus.path, tmp_path / "corpus"))
    before = sorted(there.iterdir())
    done = command("sweep", sweep_file(tiny_corpus, tmp_path), "--store", there)
    assert done.code == 2
    assert "and no store" in done.err
    assert sorted(there.iterdir()) == before


def test_a_run_of_the_sweep_under_another_name(
    store: Path, tiny_corpus: Corpus, tmp_path: Path, command: Callable
) -> None:
    dense = make_spec(tiny_corpus, "dense", steps=4).run_id
    (store / dense).rename(store / "mine")
    done = command("sweep", sweep_file(tiny_corpus, tmp_path), "--store", store)
    assert done.code == 2
    assert f"rename it to {dense}" in done.err


@pytest.mark.parametrize("name", ["a/b", "\\u001b[31mred", "a\\nb", "", "validation"])
def test_names_of_other_texts_in_a_sweep(tiny_corpus: Corpus, tmp_path: Path, command: Callable, name: str) -> None:
    more = f'[evaluate_on]\n"{name}" = {str(tiny_corpus.path)!r}\n'
    done = command("sweep", sweep_file(tiny_corpus, tmp_path, more), "--store", tmp_path / "store", "--dry-run")
    assert done.code == 2


def test_a_log_larger_than_memory_is_not_read_whole(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "loss": 2.0}\n')
    os.truncate(log, 8 * LONGEST_LINE)
    assert last_row(log) == {}
    assert sampled_log(log) == [{"step": 1, "loss": 2.0}]
