"""`routelaw sweep` and `routelaw runs` as a shell calls them: errors before any run begins, plugins, the store."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tiny_runs import build

from routelaw.cli.sweep import note_what_is_there, watch
from routelaw.runs.store import Store
from routelaw.sweeps import local
from routelaw.sweeps.local import Machine
from routelaw.sweeps.progress import Event, Tick
from routelaw.sweeps.run_sweep import SweepTraining, load_sweep
from routelaw.sweeps.sweep import Sweep

SWEEP = """
corpus = "corpus"
[model]
d_model = 16
blocks = 2
heads = 2
kv_size = 8
sequence_length = 16
[train]
steps = 6
batch = 4
learning_rate = 1e-2
[execution]
device = "cpu"
threads = 1
evaluate_every = 3
evaluate_tokens = 256
[[grid]]
router.name = ["dense", "hash"]
router.experts = [2, 4]
"""
ROUTER = """
import torch
from routelaw.routers.router import Router, Routing, register

@register("by-position")
class ByPosition(Router):
    \"\"\"Token t goes to expert t mod E: as balanced as can be, and blind.\"\"\"

    def route(self, x_TD, token_ids_T, ctx):
        token_N = torch.arange(len(token_ids_T), device=x_TD.device).repeat_interleave(self.k)
        choice_N = torch.arange(self.k, device=x_TD.device).repeat(len(token_ids_T))
        return Routing(token_N, (ctx.token_T[token_N] + choice_N) % self.experts, None)
"""
LAW = """
from routelaw import PowerSum, coefficient
LAW = PowerSum(name="mine", formula="log L = a·log N + b·log E + d", source="me", inputs=("active_params", "experts"),
               second=lambda x: x["experts"],
               terms=((coefficient("a", "slope in log N", (1, 0)), coefficient("b", "slope in log E", (0, 1)),
                       coefficient("d", "level", (0, 0))),))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweeps")
    build(folder)
    return folder


def written(place: Path, text: str, name: str = "sweep.toml") -> Path:
    (place / name).write_text(text)
    return place / name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("steps = 6", "stepz = 6"), r"unknown key 'stepz' \(did you mean 'steps'\?\)"),
        (("router.experts = [2, 4]", "router.expertz = [2, 4]"), r"unknown key 'expertz' \(did you mean 'experts'\?\)"),
        (("[[grid]]", "[[grids]]"), r"unknown key 'grids' \(did you mean 'grid'\?\)"),
        (("d_model = 16\nblocks = 2\nheads = 2\nkv_size = 8", 'size = "0.9M"'), "Unknown size '0.9M'"),
        (('corpus = "corpus"', 'corpus = "nowhere"'), "nowhere.*not a corpus"),
        (('"hash"', '"hush"'), r"router 'hush'.*did you mean 'hash'"),
        (("router.experts = [2, 4]", "router.experts = [2, 4]\nrouter.k = 3"), r"router.k must lie between 1 and"),
        (("router.experts = [2, 4]", "router.experts = [2, 900_000]"), r"hash .*E=900000.* GB"),
        (("batch = 4", "batch = 4_000_000"), "fewer than the 4000000 of a batch"),
        (("router.experts = [2, 4]", 'router.experts = [2, 4]\nrouter.options.scheem = "greedy"'), "scheem"),
        (("steps = 6", "steps = "), "is not TOML"),
    ],
    ids=["key", "grid field", "grids", "size", "corpus", "router", "k", "memory", "batch", "option", "toml"],
)
def test_wrong_input_is_one_sentence_before_any_run_begins(command, place, tmp_path, change, words) -> None:
    assert change[0] in SWEEP
    file = written(place, SWEEP.replace(*change), "wrong.toml")
    code, out, err = command("sweep", file, "--store", tmp_path / "store", "--jobs", "1")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert re.search(words, err), err
    assert not (tmp_path / "store").exists()


def test_options_are_checked_too(command, place, tmp_path) -> None:
    file = written(place, SWEEP)
    for more, words in (
        (("--backend", "slurm"), "--backend takes local, ray, not 'slurm'"),
        (("--jobs", "0"), "--jobs must lie between 1 and 1024"),
        (("--set", "train.step=3"), "did you mean 'steps'"),
        (("--set", "steps"), "--set takes table.key=value"),
        (("--set", "recipe=clark"), "unknown recipe 'clark' (did you mean 'clark2022'?)"),
        (("--plugin", tmp_path / "none.py"), "none.py is not a Python file"),
    ):
        code, _, err = command("sweep", file, "--store", tmp_path / "store", *more)
        assert (code, err.startswith("error: ")) == (2, True)
        assert words in err
    assert not (tmp_path / "store").exists()


def test_a_store_knows_which_study_it_was_made_for(place, tmp_path, monkeypatch) -> None:
    """Said by a sweep that trains, not by one that only says what it would."""
    monkeypatch.setattr(local, "run_local", lambda tasks, *_, **__: (_ for _ in ()))
    for study in ("", "k"):
        head = f'study = "{study}"\n' if study else ""
        training = SweepTraining(load_sweep(written(place, head + SWEEP)), Store(tmp_path), Machine(("cpu",), 1))
        assert training.store.studies() == []
        list(training.events())
    assert training.store.studies() == ["k"]


def test_a_store_that_cannot_be_written_is_one_sentence_not_one_per_run(command, place, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = command("sweep", written(place, SWEEP), "--store", tmp_path / "file", "--jobs", "1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot be written" in err


def test_where_nothing_is_missing_nothing_is_started(place, tmp_path, monkeypatch, capsys) -> None:
    sweep, store = load_sweep(written(place, SWEEP)), Store(tmp_path / "store")
    asked = []
    monkeypatch.setattr(
        local, "run_local", lambda tasks, *_, **__: asked.append({t.run_id for t in tasks}) or (_ for _ in ())
    )
    ids = [run.spec.run_id for run in sweep.runs]
    for ended in (ids[:1], ids):
        for run_id in ended:
            (store.path / run_id).mkdir(parents=True, exist_ok=True)
            (store.path / run_id / "result.json").write_text("{}")
        training = SweepTraining(sweep, store, Machine(("cpu",), 1))
        note_what_is_there(training)
        assert watch(training.events(), sweep, store, quiet=True) == {}
        assert f"{len(ended)} of 3 runs are in {store.path} already" in capsys.readouterr().err
    assert asked == [set(ids[1:])]


def test_ctrl_c_is_answered_before_the_workers_are_waited_for(tmp_path, capsys) -> None:
    told_by_then = []

    def interrupted() -> Iterator[Event]:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            yield Tick()
        finally:  # here a backend waits for checkpoints
            told_by_then.append(capsys.readouterr().err)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(typer.Exit) as end:
        watch(interrupted(), Sweep("none", (), 0), Store(tmp_path), quiet=False)
    assert end.value.exit_code == 130
    assert "stopping" in told_by_then[0]
    assert "the same command continues" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_a_dry_run_starts_nothing(command, place, tmp_path) -> None:
    file = written(place, SWEEP)
    code, out, err = command("sweep", file, "--store", tmp_path / "store", "--dry-run", "--price", "2", "--jobs", "1")
    assert code == 0, err
    assert out.count("hash") == 2
    assert out.count("dense") == 1
    assert "memory" in out
    assert not (tmp_path / "store").exists()
    code, out, _ = command("sweep", file, "--store", tmp_path / "store", "--dry-run", "--jobs", "1", "--json")
    told = json.loads(out)
    assert [run["router"] for run in told["runs"]] == ["dense", "hash", "hash"]
    assert all(run["seconds"] > 0 and run["memory"]["total"] > 0 for run in told["runs"])


@pytest.mark.long
def test_a_router_and_a_law_of_one_s_own(command, place, tmp_path) -> None:
    """One file each, in a directory of the user's: they take part in the sweep and show up in the report."""
    sizes = "model.d_model = [16, 24, 32]"
    text = SWEEP.replace("d_model = 16\n", "").replace(
        '["dense", "hash"]', f'["dense", "hash", "by-position"]\n{sizes}'
    )
    file, store = written(place, text, "plugin.toml"), tmp_path / "store"
    router, law = tmp_path / "my_router.py", tmp_path / "my_law.py"
    router.write_text(ROUTER)
    law.write_text(LAW)
    code, out, err = command("sweep", file, "--store", store, "--jobs", "2", "--plugin", router)
    assert code == 0, err
    assert out.count("by-position") == 6
    code, out, err = command("runs", "list", store, "--where", "router=by-position", "--json")
    assert [row["status"] for row in json.loads(out)] == ["finished"] * 6
    code, out, err = command("report", store, "--out", tmp_path / "report", "--plugin", law, "--law", "mine", "--json")
    assert code == 0, err
    own = json.loads(out)["sources"]["own"]
    assert "by-position" in own["techniques"]
    assert own["law"] == "mine"
    page = (tmp_path / "report" / "index.html").read_text()
    assert "by-position" in page
    first, second = (row["run_id"] for row in json.loads(command("runs", "list", store, "--json").out)[:2])
    assert "router.experts: " in command("runs", "diff", first, second, "--store", store).out
    assert command("runs", "show", first[:8], "--store", store).out.startswith(first)
    assert "15 runs, 30 rows" in command("runs", "export", store, "--out", tmp_path / "x.csv").out
    assert command("runs", "remove", first[:8], "--store", store, "--yes").code == 2, "only by its whole id"
    assert command("runs", "remove", first, "--store", store, "--yes").code == 0
    assert len(json.loads(command("runs", "list", store, "--json").out)) == 14
