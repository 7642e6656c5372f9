"""`routelaw train` and `routelaw eval`, as a shell would call them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tiny_runs import make_text, tiny_corpus
from typer.testing import CliRunner, Result

from routelaw.cli.eval import evaluate
from routelaw.cli.train import train
from routelaw.corpus import Corpus, Reading, build_corpus
from routelaw.errors import InputError
from routelaw.runs.files import read_runs

__all__ = ["tiny_corpus"]

app = typer.Typer()
app.command()(train)
app.command("eval")(evaluate)

TINY = """
[model]
d_model = 16
blocks = 2
heads = 2
kv_size = 8
sequence_length = 16

[router]
name = "S-Base"
experts = 4
group_tokens = 32

[train]
steps = 6
batch = 4
learning_rate = 3e-3

[execution]
evaluate_every = 3
save_every = 2
device = "cpu"
threads = 1
"""


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(*words: object) -> str:
    error = call(*words).exception
    assert isinstance(error, InputError), error
    return str(error)


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(TINY)
    return path


def test_train_then_evaluate(tiny_corpus: Corpus, spec_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("train", "--spec", spec_file, "--corpus", tiny_corpus.path, "--out", out)
    told = call(*words, "--evaluate-on", f"same={tiny_corpus.path}", "--track", "tensorboard")
    assert told.exit_code == 0, told.exception
    for part in ("s-base, 4 experts; routed blocks: 1, in groups of 32 tokens", "vocabulary 320", "6 steps", "N 6,784"):
        assert part in told.stdout
    assert "384 tokens" in told.stdout
    assert "finished after 6 steps: loss_validation 5." in told.stdout
    assert "step 3: loss_validation 5." in told.stderr
    assert list((out / "tensorboard").glob("events*"))
    again = json.loads(call(*words, "--json").stdout)
    assert again.keys() == {"run_id", "status", "step", "loss_validation"}
    assert (again["status"], again["step"]) == ("finished", 6)
    assert read_runs(out).losses == ["loss_validation", "loss_same"]

    text, passages = tmp_path / "t.jsonl", tmp_path / "p.jsonl"
    for path, seed in ((text, 11), (passages, 12)):
        path.write_text("".join(json.dumps({"text": t}) + "\n" for t in make_text(6, seed).splitlines()))
    on = ("--on", f"words={text}", "--on", f"lambada={passages}", "--on", f"own={tiny_corpus.path}", "--device", "cpu")
    found = json.loads(call("eval", out, *on, "--stride", 4, "--json").stdout)
    assert (found["run_id"], found["step"]) == (again["run_id"], 6)
    assert found["results"]["words"]["bytes"] == sum(map(len, make_text(6, 11).splitlines()))
    assert found["results"]["words"]["stride"] == 4
    assert found["results"]["lambada"]["passages"] == 6
    assert abs(found["results"]["own"]["nats_per_token"] - again["loss_validation"]) < 0.3
    table = call("eval", out, *on, "--limit", 2).stdout
    for part in ("nats per token", "bits per byte", "accuracy", "most used", "lambada"):
        assert part in table
    rows = [json.loads(line) for line in (out / "eval.jsonl").read_text().splitlines()]
    assert [row["name"] for row in rows] == ["words", "lambada", "own"] * 2
    assert rows[0]["load"].keys() == {"1"}
    columns = read_runs(out).frame
    assert columns["step"].tolist() == [3, 6]
    last = columns.iloc[-1]
    assert last["loss_words"] == rows[3]["nats_per_token"], "of two with one name the last counts"
    assert last["bpb_words"] == rows[3]["bits_per_byte"]
    assert (last["loss_lambada"], last["acc_lambada"]) == (rows[4]["nats_per_token"], rows[4]["accuracy"])
    assert columns.iloc[0][["loss_words", "loss_lambada"]].isna().all(), "step 3 was not evaluated on them"


def test_options_win_over_the_file_and_set_over_both(tiny_corpus: Corpus, spec_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    call(
        *("train", "--spec", spec_file, "--corpus", tiny_corpus.path, "--out", out, "--json"),
        *("--router", "hash", "--steps", 2, "--seed", 3, "--micro-batches", 2),
        *("--set", "train.seed=4", "--set", "router.options.scheme=random", "--set", "router.capacity_factor=1.5"),
    )
    stored = json.loads((out / "spec.json").read_text())["spec"]
    assert stored["router"]["name"] == "hash"
    assert stored["router"]["options"] == {"scheme": "random"}
    assert stored["router"]["capacity_factor"] == 1.5
    assert (stored["train"]["steps"], stored["train"]["seed"], stored["train"]["batch"]) == (2, 4, 4)
    assert stored["model"]["vocabulary"] == tiny_corpus.vocabulary


def test_the_file_may_name_the_corpus_and_the_folder_has_a_default(
    tiny_corpus: Corpus, spec_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").symlink_to(tiny_corpus.path)
    spec_file.write_text('corpus = "text"\n' + TINY)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = json.loads(call("train", "--spec", spec_file, "--steps", 1, "--json").stdout)
    assert (tmp_path / "elsewhere" / "runs" / result["run_id"] / "result.json").is_file()


def test_wrong_input_is_one_sentence(tiny_corpus: Corpus, spec_file: Path, tmp_path: Path) -> None:
    words = ("train", "--spec", spec_file, "--corpus", tiny_corpus.path, "--out", tmp_path / "no")
    cases = {
        ("--set", "router.kk=2"): "unknown key 'kk'",
        ("--set", "rooter.k=2"): "did you mean 'router'",
        ("--set", "k=2"): "--set takes table.key=value",
        ("--set", "recipe=clark"): "unknown recipe 'clark' (did you mean 'clark2022'?)",
        ("--set", "execution.save_evry=2"): "unknown key 'save_evry'",
        ("--set", "train.steps=many"): "not 'many'",
        ("--router", "s-bass"): "s-base",
        ("--size", "nonsense"): "nonsense",
        ("--device", "tpu"): "--device is auto, cpu or cuda",
        ("--track", "paper"): "--track is tensorboard or wandb",
        ("--evaluate-on", "same"): "--evaluate-on takes NAME=PATH",
        ("--evaluate-on", "validation=x"): "choose another",
        ("--evaluate-on", f"x={tmp_path}"): "not a corpus",
        ("--experts", "0"): "experts",
        ("--batch", "3"): "does not hold whole shuffle blocks",
    }
    for options, sentence in cases.items():
        said = refused(*words, *options)
        assert sentence in said, (options, said)
        assert "\n" not in said
        assert not (tmp_path / "no").exists()
    assert "name a corpus with --corpus" in refused("train", "--spec", spec_file)
    assert "not a corpus" in refused("train", "--spec", spec_file, "--corpus", tmp_path)
    assert "there is no such file" in refused("train", "--spec", tmp_path / "nowhere.toml")
    assert "not the folder of a run" in refused("eval", tmp_path, "--on", f"a={spec_file}")


def test_evaluation_refuses_what_it_cannot_read(tiny_corpus: Corpus, spec_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    call("train", "--spec", spec_file, "--corpus", tiny_corpus.path, "--out", out, "--steps", 1, "--json")
    assert "unknown suffix" in refused("eval", out, "--on", f"a={spec_file}")
    assert "between 1 and the sequence length 16" in refused(
        "eval", out, "--on", f"a={tiny_corpus.path}", "--stride", 17
    )
    assert "given twice" in refused("eval", out, "--on", f"a={tiny_corpus.path}", "--on", f"a={tiny_corpus.path}")
    assert not (out / "eval.jsonl").exists()


def test_the_modules_import_nothing_heavy() -> None:
    program = (
        "import sys, routelaw.cli.train, routelaw.cli.eval\n"
        "print(sorted({'numpy', 'pandas', 'torch', 'sentencepiece', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['rich']")  # typer brings rich


def test_a_flipped_bit_in_a_shard_is_named_before_training(
    tiny_corpus: Corpus, spec_file: Path, tmp_path: Path
) -> None:
    damaged = tmp_path / "corpus"
    shutil.copytree(tiny_corpus.path, damaged)
    shard = next(damaged.glob("train-*.tokens"))
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    assert shard.name in refused("train", "--spec", spec_file, "--corpus", damaged, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_corpus_that_holds_nothing_out_is_refused(spec_file: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(make_text())
    build_corpus(
        [tmp_path / "text.txt"], tmp_path / "all", vocabulary=320, validation=0.0, reading=Reading(documents="line")
    )
    message = refused("train", "--spec", spec_file, "--corpus", tmp_path / "all", "--out", tmp_path / "run")
    assert "holds no text out" in message
    assert not (tmp_path / "run").exists()


def test_a_router_of_ones_own_is_trained_and_evaluated(tiny_corpus: Corpus, spec_file: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from routelaw.routers.router import register\nfrom routelaw.routers.switch import Switch\n"
        "@register('mine')\nclass Mine(Switch):\n    pass\n"
    )
    words = ("--spec", spec_file, "--corpus", tiny_corpus.path, "--out", tmp_path / "run", "--router", "mine")
    result = call("train", *words, "--plugin", plugin, "--json")
    assert json.loads(result.stdout)["status"] == "finished"
    (tmp_path / "t.txt").write_text(make_text(3))
    # In a process of its own, which has not loaded the plugin.
    ask = [sys.executable, "-m", "routelaw", "eval", str(tmp_path / "run"), "--on", f"t={tmp_path / 't.txt'}", "--json"]
    without = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert without.returncode == 2
    assert "unknown router 'mine'" in without.stderr
    with_it = subprocess.run([*ask, "--plugin", str(plugin)], capture_output=True, text=True, check=False)
    assert json.loads(with_it.stdout)["results"]["t"]["tokens"] > 0


def test_a_plugin_that_fails_or_registers_nothing_is_one_sentence(
    tiny_corpus: Corpus, spec_file: Path, tmp_path: Path
) -> None:
    words = ("--spec", spec_file, "--corpus", tiny_corpus.path, "--out", tmp_path / "run", "--plugin")
    (tmp_path / "broken.py").write_text("def x(:\n")
    assert "fails when it is loaded: SyntaxError" in refused("train", *words, tmp_path / "broken.py")
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "registers no router" in refused("train", *words, tmp_path / "empty.py")


def test_a_diverged_run_has_an_exit_code_of_its_own(tiny_corpus: Corpus, spec_file: Path, tmp_path: Path) -> None:
    words = ("--spec", spec_file, "--corpus", tiny_corpus.path, "--out", tmp_path / "run", "--steps", 60)
    result = call("train", *words, "--learning-rate", 1e30, "--json")
    assert json.loads(result.stdout)["status"] == "diverged"
    assert result.exit_code == 3


ROUTER = """
import torch
from routelaw.routers.gating import linear_logits, linear_parameters
from routelaw.routers.router import Router, Routing, register, token_major

@register("best-of-all")
class Best(Router):
    def __init__(self, width, vocabulary, layer, spec):
        super().__init__(width, vocabulary, layer, spec)
        self.weight, self.bias = linear_parameters(width, self.experts)

    def route(self, x_TD, token_ids_T, ctx):
        logits_TE = linear_logits(x_TD, self.weight, self.bias)
        weight_TK, expert_TK = (logits_TE).topk(self.k)
        return Routing(token_major(len(x_TD), self.k, x_TD.device), expert_TK.flatten(), weight_TK.sigmoid().flatten())
"""


def test_an_edited_plugin_is_another_run(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Its old folder is refused with the reason, and the old loss is not given out as the new one's."""
    (tmp_path / "run.toml").write_text(TINY.replace("S-Base", "best-of-all"))
    plugin = tmp_path / "best.py"
    words = ("--spec", tmp_path / "run.toml", "--corpus", tiny_corpus.path, "--plugin", plugin, "--json")
    plugin.write_text(ROUTER)
    first = json.loads(call("train", *words, "--out", tmp_path / "first").stdout)
    again = json.loads(call("train", *words, "--out", tmp_path / "again").stdout)
    assert first == again
    plugin.write_text(ROUTER.replace("(logits_TE)", "(-logits_TE)"))
    assert "holds another run (stored → asked): router.plugin" in refused("train", *words, "--out", tmp_path / "first")
    assert "the run means a plugin with" in refused(
        "eval", tmp_path / "first", "--on", f"text={tmp_path / 'run.toml'}", "--plugin", plugin
    )
    edited = json.loads(call("train", *words, "--out", tmp_path / "edited").stdout)
    assert edited["run_id"] != first["run_id"]
    assert edited["loss_validation"] != first["loss_validation"]
    variants = {read_runs(tmp_path / name).frame["variant"].iloc[0] for name in ("first", "edited")}
    assert len(variants) == 2, "nothing averages or fits the two together"


def test_a_plugin_cannot_take_another_router_s_name_or_end_the_program(tiny_corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(TINY)
    plugin = tmp_path / "mine.py"
    words = ("train", "--spec", tmp_path / "run.toml", "--corpus", tiny_corpus.path, "--plugin", plugin)
    for text, said in (
        (ROUTER.replace("best-of-all", "switch"), "a router named 'switch' is there already"),
        (ROUTER.replace("best-of-all", "Best Of"), "lower case with hyphens"),
        ("import sys; sys.exit(0)", "fails when it is loaded: SystemExit"),
        ("raise KeyError('[red]')", "fails when it is loaded: KeyError"),
    ):
        plugin.write_text(text)
        assert said in refused(*words)
    with_plugin = ("--set", "router.plugin=abc", "--out", tmp_path / "run")
    plugin.write_text(ROUTER)
    assert "plugin is filled in" in refused(*words, *with_plugin)
    assert not (tmp_path / "run").exists()


def test_bfloat16_where_the_fast_path_ends_the_process(tiny_corpus: Corpus, tmp_path: Path) -> None:
    """Simulated by a child process that ends itself as such a CPU would."""
    (tmp_path / "run.toml").write_text(TINY)
    words = ("--spec", tmp_path / "run.toml", "--corpus", tiny_corpus.path, "--out", tmp_path / "run", "--json")
    environment = {
        **os.environ,
        "ROUTELAW_SIMULATE_SIGILL": "native",
        "ROUTELAW_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-m", "routelaw", "train", *map(str, words), "--set", "execution.precision=bfloat16"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("bfloat16 products fail on this CPU (a trial was ended by SIGILL)") == 1
    assert json.loads(done.stdout)["status"] == "finished"
    assert json.loads((tmp_path / "run" / "result.json").read_text())["precision"] == "bfloat16"
