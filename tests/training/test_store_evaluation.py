"""Evaluating a store: what is there, what is not finished, kills, two at a time, and what becomes of a run table."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import EXECUTION, make_spec, make_text
from typer.testing import CliRunner, Result

from routelaw.cli.main import app
from routelaw.corpus import Corpus, Reading, build_corpus, validation_windows
from routelaw.errors import InputError
from routelaw.evaluation.likelihood import masked_likelihood
from routelaw.runs.files import read_runs, write_runs
from routelaw.runs.listing import export_table, list_runs
from routelaw.runs.store import Store
from routelaw.runs.table import last_rows
from routelaw.training.run import run
from routelaw.training.store_evaluation import Texts, evaluate_store, plan_evaluation
from routelaw.training.trained import Run


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(*words: object) -> str:
    error = call(*words).exception
    assert isinstance(error, InputError), error
    assert "\n" not in str(error)
    return str(error)


@pytest.fixture(scope="module")
def trained(tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four finished runs and one that was stopped."""
    store = tmp_path_factory.mktemp("evaluated") / "store"
    for router, seed in (("dense", 0), ("hash", 0), ("switch", 0), ("switch", 1)):
        spec = make_spec(tiny_corpus, router, steps=4, seed=seed)
        run(spec, EXECUTION, tiny_corpus, store / spec.run_id)
    spec = make_spec(tiny_corpus, "hash", steps=4, seed=5)
    run(spec, EXECUTION, tiny_corpus, store / "unfinished" / f"{spec.run_id}.1", stop=lambda: True)
    return store


@pytest.fixture
def store(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "store"))


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    paths = {"words": tmp_path / "words.txt", "lambada": tmp_path / "passages.jsonl"}
    paths["words"].write_text(make_text(6, seed=11))
    lines = make_text(5, seed=12).splitlines()
    paths["lambada"].write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return paths


def on(texts: dict[str, Path]) -> list[str]:
    return [word for name, path in texts.items() for word in ("--on", f"{name}={path}")]


def lines_of(store: Path) -> dict[str, list[dict]]:
    found = {}
    for folder in Store(store).runs():
        file = folder.folder / "eval.jsonl"
        found[folder.run_id] = [json.loads(row) for row in file.read_text().splitlines()] if file.exists() else []
    return found


def last(store: Path):
    return last_rows(read_runs(store).frame).query("status == 'finished'").set_index("run_id")


def test_results_are_columns_of_the_run_table(store: Path, texts: dict[str, Path], tmp_path: Path) -> None:
    done = call("eval", store, *on(texts), "--device", "cpu")
    assert done.exit_code == 0, done.exception
    assert "[4/4]" in done.stdout
    assert "4 finished runs" in done.stdout
    assert "1 run is not finished yet" in done.stderr
    table = read_runs(store)
    assert table.losses == ["loss_validation", "loss_lambada", "loss_words"]
    assert table.warnings == ()
    frame = last(store)
    assert len(frame) == 4
    for run_id, row in frame.iterrows():
        opened = Run(store / str(run_id), "cpu")
        words = opened.evaluate(texts["words"], record=False)
        passages = opened.evaluate(texts["lambada"], name="lambada", record=False)
        assert row["loss_words"] == words.nats_per_token
        assert row["bpb_words"] == words.bits_per_byte
        size = len(texts["words"].read_text().removesuffix("\n").encode())
        assert row["bpb_words"] == pytest.approx(words.nats_per_token * words.tokens / math.log(2) / size)
        assert (row["loss_lambada"], row["acc_lambada"]) == (passages.nats_per_token, passages.accuracy)
    assert "bpb_lambada" not in frame
    # A run's folder, an export, a copy as CSV and the listing know them too.
    folder = store / str(frame.index[0])
    assert last_rows(read_runs(folder).frame)["loss_words"].item() == frame["loss_words"].iloc[0]
    write_runs(export_table(Store(store), everything=True), tmp_path / "all.csv")
    copied = last_rows(read_runs(tmp_path / "all.csv").frame).set_index("run_id").loc[frame.index]
    for column in ("loss_words", "bpb_words", "acc_lambada"):
        assert copied[column].tolist() == frame[column].tolist()
    listed = list_runs(Store(store)).set_index("run_id").loc[frame.index]
    assert listed["loss_lambada"].tolist() == frame["loss_lambada"].tolist()


def test_what_is_there_is_not_measured_again(store: Path, texts: dict[str, Path]) -> None:
    words = {"words": texts["words"]}
    call("eval", store, *on(words), "--device", "cpu")
    before = lines_of(store)
    again = call("eval", store, *on(words), "--device", "cpu")
    assert again.exit_code == 0
    assert "4 of 4 results are there already" in again.stderr
    assert lines_of(store) == before
    both = json.loads(call("eval", store, *on(texts), "--device", "cpu", "--json").stdout)
    assert both["there"] == 4
    assert [list(found) for found in both["runs"].values()] == [["lambada"]] * 4
    # Half a sequence is the stride unless given; a renamed or packed copy of a text is the same text.
    same = texts["words"].with_name("copy.txt")
    same.write_text(texts["words"].read_text())
    assert plan_evaluation(Store(store), Texts({"words": same}, stride=8)).tasks == ()


def test_one_name_is_one_measurement(store: Path, texts: dict[str, Path], tiny_corpus: Corpus) -> None:
    words = {"words": texts["words"]}
    call("eval", store, *on(words), "--device", "cpu")
    before = lines_of(store)
    for options, what in (
        (["--limit", 1, "--documents", "line"], "text or excerpt"),
        (["--stride", 16], "stride"),
        (["--limit", 1, "--documents", "line", "--stride", 3], "text or excerpt and stride"),
    ):
        said = refused("eval", store, *on(words), *options, "--device", "cpu")
        assert f"measured with another {what}: choose another name, or" in said
    assert lines_of(store) == before
    first = Store(store).runs()[0]
    Run(first.folder, "cpu").evaluate(texts["words"], name="words", stride=16)
    table = read_runs(store)
    assert last(store)["loss_words"].isna().sum() == 1
    (warning,) = table.warnings
    assert "loss_words was measured in 2 ways" in warning
    assert first.run_id in warning
    done = call("eval", store, *on(words), "--stride", 16, "--replace", "--device", "cpu")
    assert done.exit_code == 0
    assert "1 of 4 results are there" in done.stderr
    assert read_runs(store).warnings == ()
    assert (last(store)["loss_words"] != [rows[0]["nats_per_token"] for rows in before.values() if rows]).all()


def build_other(folder: Path, corpus: Corpus, documents: int = 40, seed: int = 23) -> Corpus:
    """Another text in the same tokens; all of it is evaluated, more than EXECUTION.evaluate_tokens."""
    text = folder / f"other_{seed}.txt"
    text.write_text(make_text(documents, seed))
    tokenizer = corpus.path / corpus.manifest.tokenizer.file
    reading = Reading(documents="line")
    return build_corpus(
        [text], folder / f"other_{seed}", tokenizer=tokenizer, validation=0.0, reading=reading, workers=1
    )


@pytest.fixture
def mixed(tiny_corpus: Corpus, tmp_path: Path) -> tuple[Path, Corpus]:
    """A store of two runs that were evaluated on another corpus, c4, while they were trained, and of two that were
    not."""
    store, other = tmp_path / "mixed", build_other(tmp_path, tiny_corpus)
    for router, others in (("switch", {"c4": other}), ("hash", {"c4": other}), ("dense", {}), ("s-base", {})):
        spec = make_spec(tiny_corpus, router, steps=6)
        run(spec, EXECUTION, tiny_corpus, store / spec.run_id, others=others)
    return store, other


def test_training_and_eval_agree(mixed: tuple[Path, Corpus], tiny_corpus: Corpus) -> None:
    """What training wrote, what eval makes of the same corpus under its name and another, and the windows by hand."""
    store, other = mixed
    frame = last(store).dropna(subset="loss_c4")
    assert len(frame) == 2
    for run_id, row in frame.iterrows():
        folder = store / str(run_id)
        on_both = ("--on", f"c4={other.path}", "--on", f"again={other.path}", "--on", f"own={tiny_corpus.path}")
        done = json.loads(call("eval", folder, *on_both, "--device", "cpu", "--json").stdout)["results"]
        model = Run(folder, "cpu").trained.model
        batches = [*validation_windows(other, 16, 7, tokens=EXECUTION.evaluate_tokens, split=other.train.name)]
        marked = ((rows, np.ones((len(rows), 16), bool)) for rows in batches)
        by_hand = masked_likelihood(model, marked, "cpu")
        assert by_hand.tokens == 256 < len(other.train.tokens) / 2
        bits = row["loss_c4"] / math.log(2) * len(other.train.tokens) / other.train.bytes
        for name in ("c4", "again"):
            found = done[name]
            assert found["nats_per_token"] == pytest.approx(row["loss_c4"], abs=1e-6)
            assert found["nats_per_token"] == pytest.approx(by_hand.nats_per_token, abs=1e-6)
            assert found["bits_per_byte"] == pytest.approx(bits, abs=1e-6)
            assert (found["metric"], found["tokens"]) == ("training's windows", 256)
            assert found["options"] == {"stride": None, "evaluate_tokens": 256}
            assert {block: pytest.approx(shares) for block, shares in found["load"].items()} == {
                str(block): shares for block, shares in by_hand.load.items()
            }
        assert row["bpb_c4"] == pytest.approx(bits, abs=1e-6)
        assert done["own"]["nats_per_token"] == pytest.approx(row["loss_validation"], abs=1e-6)
        after = last(folder).loc[run_id]
        assert (after["loss_c4"], after["bpb_c4"]) == (row["loss_c4"], row["bpb_c4"]), "what training wrote stays"
        assert after["loss_again"] == pytest.approx(row["loss_c4"], abs=1e-6)
        whole = Run(folder, "cpu").evaluate(other.path, stride=16, record=False)
        assert whole.measurement.metric == "text"
        assert whole.tokens == len(other.train.tokens)
        assert abs(whole.nats_per_token - row["loss_c4"]) > 1e-4


def test_some_evaluated_in_training_and_the_others_afterwards(
    mixed: tuple[Path, Corpus], tiny_corpus: Corpus, tmp_path: Path
) -> None:
    store, other = mixed
    before = last(store)
    assert before["loss_c4"].isna().sum() == 2
    copy = shutil.copytree(other.path, tmp_path / "copy")
    done = call("eval", store, "--on", f"c4={copy}", "--device", "cpu")
    assert done.exit_code == 0, done.exception
    assert "2 of 4 results are there already" in done.stderr
    table = read_runs(store)
    assert (table.warnings, table.losses) == ((), ["loss_validation", "loss_c4"])
    assert not [note for note in table.notes if "text" in note]
    after = last(store).loc[before.index]
    assert after[["loss_c4", "bpb_c4"]].notna().all(axis=None)
    trained = before["loss_c4"].notna()
    assert after.loc[trained, ["loss_c4", "bpb_c4"]].equals(before.loc[trained, ["loss_c4", "bpb_c4"]])
    assert [len(rows) for run_id, rows in lines_of(store).items() if trained.get(run_id)] == [0, 0]
    assert {"evaluate_tokens", "text_c4"}.isdisjoint(table.frame)
    for run_id in after.index[~trained]:
        spec, folder = Run(store / str(run_id), "cpu").spec, tmp_path / "anew" / str(run_id)
        run(spec, EXECUTION, tiny_corpus, folder, others={"c4": other})
        anew = last(folder).loc[run_id]
        for column in ("loss_c4", "bpb_c4"):
            assert after.loc[run_id, column] == pytest.approx(anew[column], abs=1e-6)
    again = call("eval", store, "--on", f"c4={other.path}", "--device", "cpu")
    assert "4 of 4 results are there already" in again.stderr


def test_a_name_that_training_uses(
    mixed: tuple[Path, Corpus], tiny_corpus: Corpus, texts: dict[str, Path], tmp_path: Path
) -> None:
    """Another text or other windows under the name are refused, with --replace too: what training wrote stays."""
    store, other = mixed
    third = build_other(tmp_path, tiny_corpus, seed=31)
    for path, options, what in (
        (texts["words"], (), "metric and text or excerpt"),
        (third.path, (), "text or excerpt"),
        (other.path, ("--stride", 8), "metric"),
        (other.path, ("--limit", 3), "metric and text or excerpt"),
    ):
        for replace in ((), ("--replace",)):
            said = refused("eval", store, "--on", f"c4={path}", *options, *replace, "--device", "cpu")
            assert f"was measured while it was trained (--evaluate-on), with another {what}: choose another" in said
    assert not list(store.rglob("eval.jsonl"))
    first = last(store).dropna(subset="loss_c4").iloc[0]
    Run(store / str(first.name), "cpu").evaluate(texts["words"], name="c4")
    assert last(store).loc[first.name, "loss_c4"] == first["loss_c4"], "one run, one vote each: that of training stays"
    # Of what was measured otherwise afterwards, --replace makes training's windows.
    bare = next(folder for folder in Store(store).runs() if folder.run_id not in lines_of_training(store))
    Run(bare.folder, "cpu").evaluate(other.path, name="c4", stride=8)
    assert bare.run_id in " ".join(read_runs(store).warnings)
    assert "with another metric" in refused("eval", store, "--on", f"c4={other.path}", "--device", "cpu")
    assert call("eval", store, "--on", f"c4={other.path}", "--replace", "--device", "cpu").exit_code == 0
    assert read_runs(store).warnings == ()
    assert last(store)["loss_c4"].notna().all()


def lines_of_training(store: Path) -> set[str]:
    """Runs whose evaluations know c4."""
    return {f.run_id for f in Store(store).runs() if "loss_c4" in (f.folder / "evaluations.jsonl").read_text()}


def test_two_corpora_under_one_name(mixed: tuple[Path, Corpus], tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Losses of two texts are no column: training under the name on another corpus is left out, and said."""
    store, _ = mixed
    spec = make_spec(tiny_corpus, "hash", steps=6, seed=3)
    third = build_other(tmp_path, tiny_corpus, seed=31)
    run(spec, EXECUTION, tiny_corpus, store / spec.run_id, others={"c4": third})
    table, frame = read_runs(store), last(store)
    (warning,) = table.warnings
    assert "loss_c4 was measured in 2 ways" in warning
    assert spec.run_id in warning
    assert frame["loss_c4"].notna().sum() == 2
    assert math.isnan(frame.loc[spec.run_id, "loss_c4"])
    assert math.isnan(frame.loc[spec.run_id, "bpb_c4"])


def forget(store: Path, run_ids: set[str]) -> None:
    """Evaluations as they were before they said what was measured."""
    for folder in Store(store).runs():
        if folder.run_id in run_ids:
            file = folder.folder / "evaluations.jsonl"
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            drop = {"evaluate_tokens", "text_c4", "bpb_c4"}
            rows = [{key: value for key, value in row.items() if key not in drop} for row in rows]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_runs_that_do_not_say_what_training_measured(mixed: tuple[Path, Corpus]) -> None:
    store, other = mixed
    before, trained = last(store), lines_of_training(store)
    forget(store, {sorted(trained)[0]})
    assert last(store)["loss_c4"].equals(before["loss_c4"])
    on_it = ("eval", store, "--on", f"c4={other.path}", "--device", "cpu")
    assert "by a version that did not say on what text: choose another name" in refused(*on_it)
    forget(store, set(before.index))
    assert last(store)["loss_c4"].equals(before["loss_c4"])
    assert "or measure all runs anew with --replace" in refused(*on_it)
    done = call(*on_it, "--replace")
    assert done.exit_code == 0
    assert "does not say on how many tokens it was evaluated: taken as 262,144" in done.stderr
    table = read_runs(store)
    assert table.warnings == ()
    windows = {run_id: rows[-1]["nats_per_token"] for run_id, rows in lines_of(store).items()}
    assert last(store)["loss_c4"].to_dict() == windows


@pytest.mark.long
def test_two_at_a_time_and_several_processes(store: Path, texts: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "routelaw", "eval", str(store), "--device", "cpu", "--threads", "1"]
    both = [
        subprocess.Popen([*command, "--on", f"{name}={path}", "--jobs", "2"], stdout=subprocess.PIPE, text=True)
        for name, path in texts.items()
    ]
    for process in both:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0, out
    frame = last(store)
    assert frame[["loss_words", "loss_lambada", "acc_lambada", "bpb_words"]].notna().all(axis=None)
    alone = Run(store / str(frame.index[1]), "cpu").evaluate(texts["words"], record=False)
    assert frame["loss_words"].iloc[1] == pytest.approx(alone.nats_per_token, rel=1e-6)


@pytest.mark.long
def test_killed_and_asked_again(store: Path, texts: dict[str, Path]) -> None:
    """Killed once two runs have their results: these stay as they are, the others are measured, no line is broken."""
    texts["words"].write_text(make_text(400, seed=3))
    command = [sys.executable, "-m", "routelaw", "eval", str(store), *on(texts), "--device", "cpu", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 300
    while sum(map(bool, lines_of(store).values())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    killed = {run_id: rows for run_id, rows in lines_of(store).items() if rows}
    assert 2 <= len(killed) < 4
    assert {len(rows) for rows in killed.values()} == {2}, "all results of a run, or none"
    done = call("eval", store, *on(texts), "--device", "cpu")
    assert done.exit_code == 0
    after = lines_of(store)
    assert {run_id: after[run_id] for run_id in killed} == killed
    assert last(store)[["loss_words", "loss_lambada"]].notna().all(axis=None)


def test_half_a_line_is_taken_away(store: Path, texts: dict[str, Path]) -> None:
    words = {"words": texts["words"]}
    call("eval", store, *on(words), "--device", "cpu")
    complete = last(store)
    file = store / str(complete.index[0]) / "eval.jsonl"
    line = file.read_bytes()
    file.write_bytes(line[: len(line) // 2])
    assert last(store)["loss_words"].isna().sum() == 1
    assert call("eval", store, *on(words), "--device", "cpu").exit_code == 0
    assert last(store)["loss_words"].tolist() == complete["loss_words"].tolist()
    file.write_bytes(b"nonsense\n" + line)
    assert "line 1 is damaged" in refused("fit", store)
    file.write_bytes(line.replace(file.parent.name.encode(), b"0123456789ab"))
    assert "has results of run 0123456789ab" in refused("fit", store)


def test_a_store_that_is_being_trained(store: Path, texts: dict[str, Path], tiny_corpus: Corpus) -> None:
    """Runs appear while others are evaluated; they are evaluated next time. Tables are read all the while."""
    words = {"words": texts["words"]}
    stop = threading.Event()
    faults: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            try:
                read_runs(store)
            except BaseException as error:
                faults.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    plan = plan_evaluation(Store(store), Texts(words), device="cpu")
    spec = make_spec(tiny_corpus, "switch", steps=2, seed=9)
    for nth, _ in enumerate(evaluate_store(plan)):
        if nth == 1:
            attempt = store / "unfinished" / f"{spec.run_id}.1"
            run(spec, EXECUTION, tiny_corpus, attempt)
            attempt.rename(store / spec.run_id)
    stop.set()
    reader.join()
    assert faults == []
    assert last(store)["loss_words"].isna().sum() == 1
    assert call("eval", store, *on(words), "--device", "cpu").exit_code == 0
    assert last(store)["loss_words"].notna().all()


def test_runs_that_cannot_be_evaluated(store: Path, texts: dict[str, Path]) -> None:
    words = {"words": texts["words"]}
    gone, damaged, *whole = [found for found in Store(store).runs() if found.ended]
    shutil.rmtree(gone.folder / "checkpoints")
    (damaged.folder / "spec.json").write_text("{}")
    done = call("eval", store, *on(words), "--device", "cpu")
    assert done.exit_code == 1
    assert f"run {gone.run_id} is not evaluated" in done.stderr
    assert "no whole checkpoint" in done.stderr
    assert f"run {damaged.run_id} is not evaluated: {damaged.folder / 'spec.json'}: model is missing" in done.stderr
    assert "2 finished runs" in done.stdout
    assert "2 could not be evaluated" in done.stdout
    found = lines_of(store)
    assert [len(found[each.run_id]) for each in (gone, damaged, *whole)] == [0, 0, 1, 1]


BAD: dict[str, tuple[str, bytes | None, str]] = {
    "empty": ("a.txt", b"", "there is no text in"),
    "nothing but white space": ("a.jsonl", b'{"text": " "}\n\n', "there is no text in"),
    "not UTF-8": ("a.txt", b"th\xe9 and more\n", "not valid UTF-8"),
    "not UTF-8 far inside": ("a.txt", b"word " * 300_000 + b"\xff\n", "not valid UTF-8"),
    "not JSON": ("a.jsonl", b'{"text": "a"}\n{"te', "not JSON"),
    "another key": ("a.jsonl", b'{"txt": "a"}\n', "no key 'text'"),
    "cut short": ("a.txt.xz", b"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F", "a.txt.xz"),
    "no format": ("a.csv", b"a,b\n", "unknown suffix"),
    "not there": ("a.txt", None, "there is no such file or folder"),
}


@pytest.mark.parametrize("case", BAD)
def test_texts_that_cannot_be_read(case: str, store: Path, texts: dict[str, Path], tmp_path: Path) -> None:
    """One sentence, and nothing measured: not even on the other texts."""
    name, content, sentence = BAD[case]
    bad = tmp_path / name
    if content is not None:
        bad.write_bytes(content)
    for target in ("bad", "lambada_bad"):
        said = refused("eval", store, "--on", f"words={texts['words']}", "--on", f"{target}={bad}", "--device", "cpu")
        assert sentence in said, said
    assert not list(store.rglob("eval.jsonl"))


def test_what_is_no_text_at_all(store: Path, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.txt"
    os.mkfifo(fifo)
    assert str(fifo) in refused("eval", store, "--on", f"a={fifo}")
    (tmp_path / "folder").mkdir()
    assert "no .txt, .jsonl or .parquet file" in refused("eval", store, "--on", f"a={tmp_path / 'folder'}")
    assert not list(store.rglob("eval.jsonl"))


def test_options_that_cannot_be(store: Path, texts: dict[str, Path], tmp_path: Path) -> None:
    words, passages = f"words={texts['words']}", f"lambada={texts['lambada']}"
    first = Store(store).runs()[0].folder
    cases: dict[tuple[object, ...], str] = {
        (store, "--on", passages, "--stride", 4): "--stride has no effect",
        (store, "--on", words, "--stride", 0): "--stride must be at least 1",
        (store, "--on", words, "--stride", 17): "between 1 and the sequence length 16",
        (store, "--on", words, "--device", "tpu"): "--device is auto, cpu or cuda",
        (store, "--on", words, "--plugin", tmp_path / "none.py"): "none.py",
        (store, "--on", words, "--plugin", tmp_path / "none.py", "--jobs", 2): "none.py",
        (first, "--on", words, "--jobs", 2): "--jobs has no effect on a single run",
        (first, "--on", words, "--replace"): "--replace has no effect on a single run",
        (tmp_path / "nowhere", "--on", words): "nor a store with a finished run",
        (store / "unfinished", "--on", words): "nor a store with a finished run",
    }
    for given, sentence in cases.items():
        assert sentence in refused("eval", *given), given
    assert not list(store.rglob("eval.jsonl"))


def test_a_store_without_a_finished_run(trained: Path, texts: dict[str, Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(trained / "unfinished", store / "unfinished")
    said = refused("eval", store, *on(texts))
    assert "nor a store with a finished run: 1 run is not finished yet" in said
