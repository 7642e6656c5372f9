"""Damage of every kind is found and named; what is left is used; a full disk harms nothing."""

from __future__ import annotations

import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import EXECUTION, make_spec

from routelaw.corpus import Corpus
from routelaw.distributed.tensor_shards import TensorShard
from routelaw.errors import InputError
from routelaw.specs.run import RunSpec
from routelaw.training.checkpoint import (
    MODEL,
    OPTIMIZER,
    Damaged,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    read_state,
    rendered,
    save_checkpoint,
)
from routelaw.training.folder import RunFolder
from routelaw.training.run import run
from routelaw.training.state import TrainState
from routelaw.training.trained import open_trained

FILES = ("state.json", "model-00000.safetensors", "optimizer-00000.safetensors")


@pytest.fixture(scope="module")
def spec(tiny_corpus: Corpus) -> RunSpec:
    return make_spec(tiny_corpus, steps=6)


@pytest.fixture(scope="module")
def finished(tiny_corpus: Corpus, spec: RunSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints after steps 3 and 6."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(spec, EXECUTION, tiny_corpus, folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_contents(finished: Path, spec: RunSpec) -> None:
    assert [p.name for p in list_checkpoints(finished / "checkpoints")] == ["step-00000003", "step-00000006"]
    assert not list((finished / "checkpoints").glob(".*"))
    for path in list_checkpoints(finished / "checkpoints"):
        assert sorted(p.name for p in path.iterdir()) == sorted(FILES)


def in_the_former_format(checkpoint: Path) -> None:
    """As a single process wrote it until November 2026: whole tensors in files without a number, and no index."""
    state = read_state(checkpoint)
    del state["index"]
    state["sha256"] = {name.removesuffix("-00000.safetensors"): sha for name, sha in state["sha256"].items()}
    (checkpoint / "state.json").write_bytes(rendered(state))
    for kind in (MODEL, OPTIMIZER):
        (checkpoint / f"{kind}-00000.safetensors").rename(checkpoint / f"{kind}.safetensors")


def test_the_former_format_of_one_process_is_continued_bit_for_bit(
    tiny_corpus: Corpus, folder: Path, finished: Path, spec: RunSpec
) -> None:
    before, newest = list_checkpoints(folder / "checkpoints")
    in_the_former_format(before)
    shutil.rmtree(newest)
    notices: list[str] = []
    assert run(spec, EXECUTION, tiny_corpus, folder, notice=notices.append).step == 6
    assert "continuing after step 3" in notices[-1]
    assert read_state(newest)["sha256"] == read_state(list_checkpoints(finished / "checkpoints")[-1])["sha256"]
    in_the_former_format(newest)
    with (newest / "optimizer.safetensors").open("r+b") as file:
        file.truncate(10)
    with pytest.raises(Damaged, match=r"optimizer\.safetensors does not match its sha256"):
        load_checkpoint(newest, spec)
    (newest / "optimizer.safetensors").unlink()
    with pytest.raises(Damaged, match=r"optimizer\.safetensors is missing"):
        load_checkpoint(newest, spec)


def test_none_is_kept_of_a_run_that_ended_if_none_is_wanted(tiny_corpus: Corpus, spec: RunSpec, tmp_path: Path) -> None:
    """Stopped, it still leaves its last; ended, it cannot be trained over by mistake."""
    none, folder = replace(EXECUTION, keep=0), tmp_path / "run"
    assert run(spec, none, tiny_corpus, folder, stop=lambda: True).status == "running"
    assert [p.name for p in list_checkpoints(folder / "checkpoints")] == ["step-00000001"]
    assert run(spec, none, tiny_corpus, folder).status == "finished"
    assert not (folder / "checkpoints").exists()
    before = (folder / "log.jsonl").read_bytes()
    for execution in (none, EXECUTION):
        with pytest.raises(InputError, match="ended and without checkpoints"):
            run(spec, execution, tiny_corpus, folder)
    assert (folder / "log.jsonl").read_bytes() == before
    with pytest.raises(InputError, match="keep must be 0"):
        run(spec, replace(EXECUTION, keep=-1), tiny_corpus, tmp_path / "other")


@pytest.mark.parametrize("name", FILES)
def test_every_flip_and_cut_is_found_and_named(folder: Path, spec: RunSpec, name: str) -> None:
    newest = list_checkpoints(folder / "checkpoints")[-1]
    file = newest / name
    whole = file.read_bytes()
    offsets = range(0, len(whole), 1 if name == "state.json" else max(1, len(whole) // 40))
    for offset in (*offsets, len(whole) - 1):
        bit = 1 << (offset % 8)
        file.write_bytes(whole[:offset] + bytes([whole[offset] ^ bit]) + whole[offset + 1 :])
        with pytest.raises(Damaged, match=name):
            load_checkpoint(newest, spec)
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        with pytest.raises(Damaged, match=name):
            load_checkpoint(newest, spec)
    file.write_bytes(whole + b"\0")
    with pytest.raises(Damaged, match=name):
        load_checkpoint(newest, spec)
    file.unlink()
    with pytest.raises(Damaged, match=name):
        load_checkpoint(newest, spec)
    file.write_bytes(whole)
    assert load_checkpoint(newest, spec).step == 6


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [1, 2])
def test_the_one_before_is_used(tiny_corpus: Corpus, folder: Path, finished: Path, spec: RunSpec, name, keep) -> None:
    newest = list_checkpoints(folder / "checkpoints")[-1]
    with (newest / name).open("r+b") as file:
        file.truncate(10)
    notices: list[str] = []
    run(spec, replace(EXECUTION, keep=keep, save_every=1), tiny_corpus, folder, notice=notices.append)
    assert f"{newest} is damaged ({name}" in notices[0]
    assert "continuing after step 3" in notices[1]
    ours, theirs = (load_checkpoint(list_checkpoints(f / "checkpoints")[-1], spec) for f in (folder, finished))
    assert ours.step == theirs.step == 6
    assert all(bool((ours.model[key] == value).all()) for key, value in theirs.model.items())
    assert len(list_checkpoints(folder / "checkpoints")) == keep


def test_whoever_may_read_the_folder_may_read_its_files(finished: Path) -> None:
    newest = list_checkpoints(finished / "checkpoints")[-1]
    assert {file.stat().st_mode & 0o777 for file in newest.iterdir()} == {newest.stat().st_mode & 0o666}


def test_a_damaged_newer_one_does_not_push_out_a_whole_one(spec: RunSpec, tiny_corpus: Corpus, tmp_path: Path) -> None:
    """keep = 1, the newest damaged: what is saved after resuming must survive, though its number is smaller."""
    tensors = {"x": (torch.ones(2), TensorShard.whole((2,)))}
    for step in (8, 10):
        save_checkpoint(tmp_path, spec, step, {}, {MODEL: tensors, OPTIMIZER: tensors}, keep=2)
    (tmp_path / "step-00000010" / "model-00000.safetensors").write_bytes(b"")
    save_checkpoint(tmp_path, spec, 9, {}, {MODEL: tensors, OPTIMIZER: tensors}, keep=1)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["step-00000009"]


def test_nothing_whole_left_starts_over(tiny_corpus: Corpus, folder: Path, spec: RunSpec) -> None:
    for path in list_checkpoints(folder / "checkpoints"):
        (path / "state.json").unlink()
    notices: list[str] = []
    assert run(spec, EXECUTION, tiny_corpus, folder, notice=notices.append).step == 6
    assert len([n for n in notices if "state.json is missing" in n]) == 2
    assert any("no whole checkpoint is left" in n for n in notices)
    assert latest_checkpoint(folder / "checkpoints", spec, notices.append).step == 6


def test_unfinished_and_strange_names_are_no_checkpoints(folder: Path, spec: RunSpec) -> None:
    shutil.copytree(folder / "checkpoints" / "step-00000003", folder / "checkpoints" / ".step-00000009.77")
    (folder / "checkpoints" / "step-old").mkdir()
    assert latest_checkpoint(folder / "checkpoints", spec, pytest.fail).step == 6


def test_a_full_disk_leaves_the_one_before(tiny_corpus: Corpus, spec: RunSpec, tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: writes fail half-way, as they would."""
    state = TrainState.start(spec, tiny_corpus, torch.device("cpu"), torch.float32)
    state.save(tmp_path, keep=1)
    state.step = 1
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"step-00000001: .*cannot be written .*step-00000000, is intact"):
            state.save(tmp_path, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000000"]
    assert load_checkpoint(tmp_path / "step-00000000", spec).step == 0
    state.save(tmp_path, keep=1)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_a_damaged_tokenizer_or_spec_is_named(folder: Path) -> None:
    assert open_trained(folder, "cpu").step == 6
    tokenizer = folder / "tokenizer.model"
    whole = tokenizer.read_bytes()
    for offset in range(0, len(whole), len(whole) // 10):
        tokenizer.write_bytes(whole[:offset] + bytes([whole[offset] ^ 4]) + whole[offset + 1 :])
        with pytest.raises(InputError, match=r"tokenizer\.model is damaged"):
            open_trained(folder, "cpu")
    tokenizer.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"tokenizer\.model is damaged"):
        open_trained(folder, "cpu")
    tokenizer.write_bytes(whole)
    stored = folder / "spec.json"
    text = stored.read_text()
    for damaged in (text.replace('"steps": 6', '"steps": 7'), text[:-10], text.replace('"spec"', '"spic"')):
        stored.write_text(damaged)
        with pytest.raises(InputError, match=r"spec\.json is damaged"):
            open_trained(folder, "cpu")
    with pytest.raises(InputError, match=r"not the folder of a run"):
        open_trained(folder / "checkpoints", "cpu")


def test_a_second_process_is_refused(tiny_corpus: Corpus, spec: RunSpec, folder: Path) -> None:
    """A lock held through another open file is what another process has."""
    with RunFolder(folder).claimed(), pytest.raises(InputError, match="being trained by another process"):
        run(spec, EXECUTION, tiny_corpus, folder)
    run(spec, EXECUTION, tiny_corpus, folder)
