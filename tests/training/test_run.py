"""Whole runs: they learn, they stop and continue as if nothing had happened, they diverge openly."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import EXECUTION, ROUTERS, make_spec

from routelaw.corpus import Corpus
from routelaw.errors import InputError
from routelaw.model.transformer import Transformer
from routelaw.routers.hashing import greedy_table
from routelaw.runs.files import read_runs
from routelaw.specs.run import RouterSpec
from routelaw.training import state as state_module
from routelaw.training.checkpoint import list_checkpoints, load_checkpoint
from routelaw.training.optimizer import Optimizer
from routelaw.training.run import Progress, check_run, run


class Stopped(Exception):
    pass


def stop_after(step: int):
    def observe(progress: Progress) -> None:
        if progress.info.step == step:
            raise Stopped

    return observe


def rows(path: Path) -> list[dict]:
    """Without what the clock says."""
    return [
        {k: v for k, v in json.loads(line).items() if k not in ("tokens_per_second", "seconds")}
        for line in path.read_text().splitlines()
    ]


def assert_same(one: Path, two: Path, spec) -> None:
    a, b = (load_checkpoint(list_checkpoints(folder / "checkpoints")[-1], spec) for folder in (one, two))
    assert (a.step, a.counters) == (b.step, b.counters)
    for left, right in ((a.model, b.model), (a.optimizer, b.optimizer)):
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)
    for name in ("log.jsonl", "evaluations.jsonl"):
        assert rows(one / name) == rows(two / name)


@pytest.mark.parametrize("name", ROUTERS)
def test_every_router_learns(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    spec = make_spec(tiny_corpus, name, steps=40, learning_rate=1e-2)
    execution = replace(EXECUTION, evaluate_every=100, save_every=100)
    seen: list[Progress] = []
    result = run(spec, execution, tiny_corpus, tmp_path / "run", observe=seen.append)
    assert (result.status, result.step, result.skipped) == ("finished", 40, 0)
    assert seen[0].info.loss == pytest.approx(math.log(spec.model.vocabulary), abs=0.1)
    assert result.loss_validation < seen[0].info.loss - 1.0
    assert seen[-1].seconds_left == 0
    assert json.loads((tmp_path / "run" / "result.json").read_text())["loss_validation"] == result.loss_validation


@pytest.mark.parametrize("name", ["s-base", "rl-r", "hash greedy"])
def test_stopped_at_any_step_it_continues_bit_for_bit(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    spec = make_spec(tiny_corpus, name, steps=8)
    undisturbed = run(spec, EXECUTION, tiny_corpus, tmp_path / "whole")
    for step in range(1, 8) if name == "s-base" else (2, 5):
        folder = tmp_path / f"stopped-{step}"
        with pytest.raises(Stopped):
            run(spec, EXECUTION, tiny_corpus, folder, observe=stop_after(step))
        assert run(spec, EXECUTION, tiny_corpus, folder) == undisturbed
        assert_same(tmp_path / "whole", folder, spec)


def test_stopped_again_and_again(tiny_corpus: Corpus, tmp_path: Path) -> None:
    spec, execution = make_spec(tiny_corpus, steps=7), replace(EXECUTION, save_every=1, keep=1)
    run(spec, execution, tiny_corpus, tmp_path / "whole")
    for step in range(1, 7):
        with pytest.raises(Stopped):
            run(spec, execution, tiny_corpus, tmp_path / "often", observe=stop_after(step))
    run(spec, execution, tiny_corpus, tmp_path / "often")
    assert_same(tmp_path / "whole", tmp_path / "often", spec)


def test_a_finished_run_is_not_trained_again(tiny_corpus: Corpus, tmp_path: Path) -> None:
    spec = make_spec(tiny_corpus, "dense", steps=3)
    first = run(spec, EXECUTION, tiny_corpus, tmp_path)
    (tmp_path / "result.json").unlink()
    taken: list[Progress] = []
    assert run(spec, EXECUTION, tiny_corpus, tmp_path, observe=taken.append) == first
    assert not taken
    assert (tmp_path / "result.json").is_file()


def test_a_broken_last_line_is_mended(tiny_corpus: Corpus, tmp_path: Path) -> None:
    spec, notices = make_spec(tiny_corpus, steps=6), []
    run(spec, EXECUTION, tiny_corpus, tmp_path / "whole")
    with pytest.raises(Stopped):
        run(spec, EXECUTION, tiny_corpus, tmp_path / "cut", observe=stop_after(5))
    log = tmp_path / "cut" / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:2]) + lines[2][:-1])  # whole but for its end
    with log.open("ab") as file:
        file.write(b'\n{"step": 4, "los')
    run(spec, EXECUTION, tiny_corpus, tmp_path / "cut", notice=notices.append)
    assert any("log.jsonl: 1 broken line removed" in sentence for sentence in notices)
    assert_same(tmp_path / "whole", tmp_path / "cut", spec)


def test_another_meaning_is_refused(tiny_corpus: Corpus, tmp_path: Path) -> None:
    spec = make_spec(tiny_corpus, steps=2)
    run(spec, EXECUTION, tiny_corpus, tmp_path)
    other = replace(spec, router=replace(spec.router, k=2), train=replace(spec.train, seed=5))
    with pytest.raises(InputError, match=r"holds another run.*router\.k: default → 2; train\.seed: default → 5"):
        run(other, EXECUTION, tiny_corpus, tmp_path)
    (tmp_path / "spec.json").unlink()
    with pytest.raises(InputError, match=r"holds checkpoints of another run.*router\.k"):
        run(other, EXECUTION, tiny_corpus, tmp_path)
    assert not (tmp_path / "spec.json").exists()  # a refusal must not change whose folder this is
    run(spec, replace(EXECUTION, save_every=1, log_every=7, micro_batches=2), tiny_corpus, tmp_path)


def test_a_run_keeps_the_recipe_it_was_begun_with(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """The same run, but its rows would be of two variants."""
    spec = make_spec(tiny_corpus, steps=2)
    run(spec, EXECUTION, tiny_corpus, tmp_path)
    named = replace(spec, recipe="clark2022")
    assert (named.run_id, named.variant) == (spec.run_id, f"{spec.variant},shuffle_groups=1")
    with pytest.raises(InputError, match="was begun with no recipe and is asked for with recipe 'clark2022'"):
        run(named, EXECUTION, tiny_corpus, tmp_path)
    run(spec, EXECUTION, tiny_corpus, tmp_path)


def test_wrong_input_writes_nothing(tiny_corpus: Corpus, tmp_path: Path) -> None:
    def refused(match: str, execution=EXECUTION, others=None, router="s-base", **train) -> None:
        with pytest.raises(InputError, match=match):
            run(make_spec(tiny_corpus, router, **train), execution, tiny_corpus, tmp_path / "no", others=others)
        assert not (tmp_path / "no").exists()

    refused("fewer than the 4096 of a batch", batch=4096)
    refused("options of router s-base", router=RouterSpec("s-base", 4, options={"tolerances": 1}))
    refused("did you mean", router=RouterSpec("s-bse", 4))
    refused("option variant of router rl-r", router=RouterSpec("rl-r", 4, options={"variant": "Q"}))
    refused("do not divide a batch", replace(EXECUTION, micro_batches=3))
    refused("execution.save_every must be at least 1", replace(EXECUTION, save_every=0))
    refused("execution.compile is one of auto", replace(EXECUTION, compile="all"))
    refused("needs a GPU", replace(EXECUTION, compile="step"))
    refused(
        "execution.optimizer_state_dtype is one of float32, bfloat16", replace(EXECUTION, optimizer_state_dtype="int8")
    )
    refused("for runs of one GPU", replace(EXECUTION, optimizer_state_dtype="bfloat16"))
    with pytest.raises(InputError, match="for runs of one GPU"):  # before a sweep is planned
        check_run(
            make_spec(tiny_corpus), replace(EXECUTION, optimizer_state_dtype="bfloat16"), {"validation": tiny_corpus}
        )
    refused("precision is auto", replace(EXECUTION, precision="int8"))
    if not torch.cuda.is_available():
        refused("no GPU", replace(EXECUTION, device="cuda"))


def test_a_diverged_run_ends_and_says_so(tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From step 5 on every loss is NaN; the run ends after the limit, and its table has no NaN."""
    honest, calls = Transformer.token_nll, []

    def poisoned(self, hidden_TD, target_T):
        calls.append(1)
        return honest(self, hidden_TD, target_T) * (float("nan") if len(calls) > 4 else 1.0)

    monkeypatch.setattr(Transformer, "token_nll", poisoned)
    monkeypatch.setattr(state_module, "MOST_SKIPPED", 3)
    spec = make_spec(tiny_corpus, steps=30)
    execution = replace(EXECUTION, evaluate_every=100, save_every=2)
    result = run(spec, execution, tiny_corpus, tmp_path)
    assert (result.status, result.step, result.skipped, result.loss_validation) == ("diverged", 7, 3, None)
    for name in ("log.jsonl", "evaluations.jsonl", "result.json"):
        assert "NaN" not in (tmp_path / name).read_text()
    table = read_runs(tmp_path).frame
    assert table["status"].tolist() == ["diverged"]
    assert table["loss_validation"].isna().all()
    assert [row["skipped"] for row in rows(tmp_path / "log.jsonl")] == [False] * 4 + [True] * 3
    steps_taken: list[Progress] = []
    assert run(spec, execution, tiny_corpus, tmp_path, observe=steps_taken.append) == result
    assert not steps_taken, "a diverged run stays so"


def test_a_run_without_a_loss_has_not_finished(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Transformer.token_nll

    def poisoned(self, hidden_TD, target_T):
        return honest(self, hidden_TD, target_T) * (1.0 if self.training else float("inf"))

    monkeypatch.setattr(Transformer, "token_nll", poisoned)
    result = run(make_spec(tiny_corpus, steps=5), EXECUTION, tiny_corpus, tmp_path)
    assert (result.status, result.step, result.skipped, result.loss_validation) == ("diverged", 5, 0, None)
    assert read_runs(tmp_path).frame["status"].tolist() == ["running", "diverged"]


def test_greedy_hashing_learns_the_corpus_s_frequencies(tiny_corpus: Corpus) -> None:
    """Also where the model has more words than the corpus: those never occur."""
    spec = make_spec(tiny_corpus, "hash greedy", model={"vocabulary": 330})
    state = state_module.TrainState.start(spec, tiny_corpus, torch.device("cpu"), torch.float32)
    counts_V = torch.zeros(330, dtype=torch.int64)
    counts_V[:320] = torch.from_numpy(tiny_corpus.train.frequencies_V.copy())
    assert torch.equal(state.model.blocks[0].router.table_VK, greedy_table(counts_V, 4, 1))


@pytest.mark.parametrize("name", ["s-base", "base", "rl-r", "switch"])
def test_an_absurd_rate_leaves_no_nan(tiny_corpus: Corpus, tmp_path: Path, name: str) -> None:
    spec = make_spec(tiny_corpus, name, steps=25, learning_rate=1e30, start_rate=1e30)
    result = run(spec, replace(EXECUTION, evaluate_every=5), tiny_corpus, tmp_path)
    assert result.status == "diverged"
    assert result.skipped >= 1
    for file in ("log.jsonl", "evaluations.jsonl", "result.json"):
        assert "NaN" not in (tmp_path / file).read_text()
        assert "Infinity" not in (tmp_path / file).read_text()
    read_runs(tmp_path)


def test_a_skipped_step_changes_nothing_and_is_counted(
    tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, seen = Optimizer.gradient_norm, []

    def once_infinite(self):
        seen.append({name: p.detach().clone() for name, p in self.parameters.items()})
        return honest(self) * (float("inf") if len(seen) == 3 else 1.0)

    monkeypatch.setattr(Optimizer, "gradient_norm", once_infinite)
    result = run(make_spec(tiny_corpus, steps=5), EXECUTION, tiny_corpus, tmp_path)
    assert (result.status, result.skipped) == ("finished", 1)
    assert all(torch.equal(seen[2][name], seen[3][name]) for name in seen[2])
    assert any(not torch.equal(seen[1][name], seen[2][name]) for name in seen[1])


def test_rows_load_as_a_run_table(tiny_corpus: Corpus, tmp_path: Path) -> None:
    for name in ("dense", "s-base"):
        others = {"again": tiny_corpus}
        run(make_spec(tiny_corpus, name, steps=6), EXECUTION, tiny_corpus, tmp_path / name, others=others)
    table = read_runs(tmp_path)
    assert table.losses == ["loss_validation", "loss_again"]
    assert table.frame["loss_again"].equals(table.frame["loss_validation"].rename("loss_again"))
    assert table.frame["step"].tolist() == [4, 6, 4, 6]
    assert table.frame["status"].tolist() == ["running", "finished"] * 2
    assert table.frame["tokens"].tolist() == [256, 384] * 2
    assert "load" not in table.frame
    assert table.frame["experts"].tolist() == [1, 1, 4, 4]
    single = read_runs(tmp_path / "s-base")
    assert single.routers == ["s-base"]
