"""`routelaw sweep` and `routelaw runs` as a shell calls them: errors before any run begins, plugins, the store."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny_runs import build

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
        (("router.experts = [2, 4]", "router.experts = [2, 5_000_000]"), r"hash .*E=5000000.* GB"),
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
        (("--jobs", "0"), "--jobs must be at least 1"),
        (("--set", "train.step=3"), "did you mean 'steps'"),
        (("--set", "steps"), "--set takes table.key=value"),
        (("--plugin", tmp_path / "none.py"), "none.py is not a Python file"),
    ):
        code, _, err = command("sweep", file, "--store", tmp_path / "store", *more)
        assert (code, err.startswith("error: ")) == (2, True)
        assert words in err
    assert not (tmp_path / "store").exists()


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


@pytest.mark.slow
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
