"""`import routelaw as rl`: every name documented, with an example that runs here; the import costs nothing.

The examples find themselves in a folder with a tiny corpus (`corpus`, made of `texts.txt`), a trained run (`trained`),
a sweep file whose runs are in the store `runs`, a table of losses (`losses.csv`), a law and a router of one's own.
"""

from __future__ import annotations

import doctest
import inspect
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny_runs import VOCABULARY, make_text

import routelaw as rl

CONSTANTS = {"PAPER_SIZES"}
"""Names without a docstring of their own."""
SWEEP = """
corpus = "corpus"
model = { size = "0.05M", sequence_length = 16 }
train = { steps = 2, batch = 2 }
execution = { device = "cpu", evaluate_tokens = 64 }
[[grid]]
router.name = ["dense", "hash"]
router.experts = [2]
"""
LAW = """
from routelaw import PowerSum, coefficient
LAW = PowerSum(name="mine", formula="log L = a·log N + b·log E + d", source="me", inputs=("active_params", "experts"),
               second=lambda x: x["experts"],
               terms=((coefficient("a", "slope in log N", (1, 0)), coefficient("b", "slope in log E", (0, 1)),
                       coefficient("d", "level", (0, 0))),))
"""
ROUTER = """
from routelaw.routers.router import register
from routelaw.routers.switch import Switch

@register("mine")
class Mine(Switch):
    pass
"""


def losses() -> pd.DataFrame:
    """Two routers on one set of dense models, from a bilinear law with noise."""
    rng, rows = np.random.default_rng(0), []
    for active in (15e6, 60e6, 250e6, 1e9):
        for router, behind in (("dense", 0.0), ("s-base", 0.0), ("hash", 0.01)):
            for experts in (1,) if router == "dense" else (2, 8, 32, 128):
                u, v = np.log10(active), np.log10(experts)
                log_loss = 1.1 - 0.08 * u - 0.12 * v + 0.01 * u * v + behind + 0.0005 * rng.standard_normal()
                rows.append((f"{router}-{active:g}-{experts}", router, experts, int(active), 10**log_loss))
    return pd.DataFrame(rows, columns=["run_id", "router", "experts", "active_params", "loss_validation"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("face")
    (folder / "texts.txt").write_text(make_text())
    reading = rl.Reading(documents="line")
    corpus = rl.build_corpus(
        [folder / "texts.txt"], folder / "corpus", vocabulary=VOCABULARY, validation=0.1, reading=reading, workers=1
    )
    losses().to_csv(folder / "losses.csv", index=False)
    for name, text in (("sweep.toml", SWEEP), ("my_law.py", LAW), ("my_router.py", ROUTER)):
        (folder / name).write_text(text)
    for run in rl.load_sweep(folder / "sweep.toml").runs:
        settings = {"execution.evaluate_tokens": 64}
        rl.train(run.spec, corpus, out=folder / "runs" / run.spec.run_id, device="cpu", settings=settings).finish()
    options: dict[str, Any] = {"size": "0.05M", "router": "switch", "experts": 2, "steps": 4, "evaluate_every": 2}
    rl.train(corpus=corpus, batch=2, sequence_length=16, out=folder / "trained", device="cpu", **options).finish()
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of its own: examples write."""
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def examples(name: str) -> list[doctest.DocTest]:
    """Those of a public name, and of its own methods."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [found for found in finder.find(getattr(rl, name), name, module=False) if found.examples]


def test_the_module_says_what_it_is() -> None:
    assert (rl.__doc__ or "").count("rl.") >= 10
    assert set(rl.__all__) == set(rl._HOME)
    assert rl.__all__ == sorted(rl.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n))
    assert set(rl.__all__) < set(dir(rl))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rl.nothing


@pytest.mark.parametrize("name", sorted(set(rl.__all__) - CONSTANTS))
def test_every_name_has_an_example_that_runs(name: str, place: Path) -> None:
    thing = getattr(rl, name)
    assert ">>>" in (inspect.getdoc(thing) or ""), f"rl.{name} has no example"
    globs: dict[str, Any] = {"rl": rl}
    globs["table"] = rl.read_runs("losses.csv")
    globs["fit"] = rl.fit_law("bilinear", rl.select_points(globs["table"], "s-base"))
    globs["run"] = rl.Run.load("trained")
    globs["training"] = rl.run_sweep(rl.load_sweep("sweep.toml"), "runs", jobs=1)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for example in examples(name):
        told: list[str] = []
        example.globs = {**globs}
        failed = doctest.DocTestRunner(optionflags=flags).run(example, out=told.append).failed
        assert not failed, "".join(told)


def test_an_example_that_is_wrong_fails() -> None:
    """What the test above rests on."""
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert doctest.DocTestRunner().run(wrong, out=lambda _: None).failed == 1


def test_importing_it_imports_next_to_nothing() -> None:
    program = "import sys; before = set(sys.modules); import routelaw; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pandas", "scipy", "torch", "matplotlib", "plotly", "typer", "rich", "pyarrow", "sentencepiece"}
    assert not heavy & set(eval(done.stdout))
    assert not [name for name in eval(done.stdout) if name.startswith("routelaw.")]


def test_the_analysis_half_needs_no_torch() -> None:
    trains = {"train", "Training", "Run", "load_sweep", "run_sweep", "SweepTraining", "Ray", "load_router"}
    trains |= {"RouterDescription", "RouterOption", "describe_router", "describe_routers"}
    names = sorted(set(rl.__all__) - trains)
    program = f"import sys, routelaw; [getattr(routelaw, name) for name in {names}]; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_type_checkers_see_what_python_sees() -> None:
    """The imports under TYPE_CHECKING are the names that load on first use; the package says that it is typed."""
    source = Path(rl.__file__).read_text()
    block = source[source.index("if TYPE_CHECKING:") : source.index("_HOME = {")]
    seen = types.ModuleType("seen").__dict__
    exec("\n".join(line.strip() for line in block.splitlines()[1:]), seen)
    assert {name: getattr(rl, name) for name in rl.__all__} == {name: seen[name] for name in rl.__all__}
    assert Path(rl.__file__).with_name("py.typed").is_file()


@pytest.fixture
def options() -> dict[str, Any]:
    return {"size": "0.05M", "steps": 6, "batch": 2, "sequence_length": 16, "save_every": 2, "device": "cpu"}


def test_a_run_that_was_left_continues(place: Path, options: dict[str, Any]) -> None:
    """Left in the middle of its loop, told to stop, then finished: as if nothing had happened."""
    whole = rl.train(corpus="corpus", out="whole", **options).finish()
    steps = []
    for progress in rl.train(corpus="corpus", out="left", **options):
        steps.append(progress.step)
        if progress.step == 3:
            break
    training = rl.train(corpus="corpus", out="left", **options)
    for progress in training:
        steps.append(progress.step)
        if progress.step == 5:
            training.stop()
    assert training.result is not None
    assert (training.result.status, training.result.step) == ("running", 5)
    steps += [progress.step for progress in training]
    assert steps == [1, 2, 3, 3, 4, 5, 6], "from the checkpoint after step 2, then from that after step 5"
    run = training.finish()
    assert run.result == whole.result
    assert all((one == two).all() for one, two in zip(run.model.parameters(), whole.model.parameters(), strict=True))


def test_the_command_line_and_python_name_the_same_run(place: Path, options: dict[str, Any]) -> None:
    training = rl.train(corpus="corpus", router="hash", experts=4, seed=3, settings={"train.clip": 0.5}, **options)
    words = "--router hash --experts 4 --seed 3 --set train.clip=0.5 --corpus corpus --size 0.05M --steps 6 --batch 2"
    words += " --sequence-length 16 --device cpu --json --out by-command"
    from typer.testing import CliRunner

    from routelaw.cli.main import app

    assert training.spec.run_id in CliRunner().invoke(app, ["train", *words.split()]).stdout
    assert str(training.folder) == f"runs/{training.spec.run_id}"
    assert not training.folder.exists(), "nothing is written before the first step"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"corpus": None}, "name a corpus"),
        ({"corpus": "texts.txt"}, "not a corpus"),
        ({"spec": "nowhere.toml"}, "no such file"),
        ({"size": "0.06M5"}, "Unknown size"),
        ({"router": "hush", "experts": 2}, "did you mean 'hash'"),
        ({"steps": "many"}, "must be a whole number, not 'many'"),
        ({"settings": {"router.kk": 2}}, "unknown key 'kk'"),
        ({"settings": {"train.batch": 10**9}}, "fewer than the"),
        ({"track": "paper"}, "tensorboard or wandb"),
        ({"evaluate_on": {"validation": "corpus"}}, "choose another"),
        ({"plugins": ["texts.txt"]}, "is not a Python file"),
        ({"device": "tpu"}, "auto, cpu or cuda"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_input_is_one_sentence(place: Path, options: dict[str, Any], changes, sentence: str) -> None:
    with pytest.raises(rl.InputError, match=sentence) as refused:
        rl.train(**{"corpus": "corpus", "out": "no", **options, **changes}).finish()
    assert "\n" not in str(refused.value)
    assert not Path("no").exists()


def test_a_spec_says_all_of_what_a_run_is(place: Path) -> None:
    spec = rl.Run.load("trained").spec
    with pytest.raises(rl.InputError, match="steps has no effect beside a RunSpec"):
        rl.train(spec, "corpus", steps=3)
    with pytest.raises(rl.InputError, match=r"train\.seed has no effect beside a RunSpec"):
        rl.train(spec, "corpus", settings={"train.seed": 3})
    again = rl.train(spec, "corpus", out="trained", settings={"execution.log_every": 1})
    assert [progress.step for progress in again] == [], "it has ended"
    assert again.result is not None
    assert again.result.status == "finished"


def test_a_run_that_is_none_and_texts_that_are_none(place: Path) -> None:
    with pytest.raises(rl.InputError, match="not the folder of a run"):
        rl.Run.load("corpus")
    run = rl.Run.load("trained")
    for given in ({}, {"path": "texts.txt", "text": "both"}):
        with pytest.raises(rl.InputError, match="either a path"):
            run.evaluate(**given)
    with pytest.raises(rl.InputError, match="stride has no effect"):
        run.evaluate("texts.txt", name="lambada", stride=2)
    run.evaluate("texts.txt", documents="line", record=False)
    assert not (run.folder / "eval.jsonl").exists()
    text = Path("texts.txt").read_text()
    found = run.evaluate(text=text)
    assert found.figures == run.evaluate("texts.txt", documents="file").figures
    assert str(found.path) == "text"
    assert not (run.folder / "eval.jsonl").exists(), "what has no name is no column of a table"
    with pytest.raises(rl.InputError, match="choose another"):
        run.evaluate("texts.txt", name="validation")
    named = run.evaluate("texts.txt", documents="file", name="mine")
    last = run.table.frame.iloc[-1]
    assert (last["loss_mine"], last["bpb_mine"]) == (named.nats_per_token, named.bits_per_byte)


def test_what_is_shown_is_escaped(place: Path) -> None:
    """Names of routers come from tables, and tables from anywhere."""
    frame = losses()
    frame["router"] = frame["router"].replace("hash", "<script>alert(1)</script>")
    table = rl.RunTable.from_frame(frame, "mine")
    router = table.routers[-1]
    report = rl.judge(rl.fit_law("bilinear", rl.select_points(table, router)), draws=50)
    found = rl.compare(table, laws=["bilinear"])
    for shown in (report, found):
        assert "<script" not in shown._repr_html_()
        assert "&lt;script" in shown._repr_html_()
        assert "script" in str(shown)
    for part in ("90 % interval", "leave size out", "slope in log N", "[-0."):
        assert part in str(report)
        assert part in report._repr_html_()


def test_a_point_beyond_the_data_is_called_one(place: Path) -> None:
    fit = rl.fit_law("bilinear", rl.select_points(rl.read_runs("losses.csv"), "s-base"))
    assert not any("extrapolation" in warning for warning in rl.judge(fit, draws=50).warnings)
    (warning,) = [w for w in rl.judge(fit, draws=50, active_params=1e12).warnings if "extrapolation" in w]
    assert "size is 1000.0× the largest fitted" in warning or "size is 1000× the largest fitted" in warning


def test_plans_refuse_what_has_no_effect(place: Path) -> None:
    budget, table = rl.Budget(total_params=1e9), rl.read_runs("losses.csv")
    with pytest.raises(rl.InputError, match="either a run table or fits"):
        rl.plan(budget, table, fits=["clark2022/hash"])
    with pytest.raises(rl.InputError, match="law bilinear needs a run table"):
        rl.plan(budget, law="bilinear")
    with pytest.raises(rl.InputError, match="experts has no effect with one router"):
        rl.compare(table, routers=["hash"], experts=8)


def test_a_store_that_cannot_be_written_is_said_before_any_worker_starts(place: Path) -> None:
    training = rl.run_sweep(rl.load_sweep("sweep.toml"), "fresh", jobs=1)
    assert len(training.missing) == 2
    Path("fresh").mkdir()
    Path("fresh", "unfinished").write_text("")
    with pytest.raises(rl.InputError, match="cannot be written"):
        training.finish()


@pytest.mark.long
def test_a_sweep_by_workers(place: Path) -> None:
    training = rl.run_sweep(rl.load_sweep("sweep.toml"), "fresh", jobs=1)
    shares = [progress.share for progress in training]
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert training.failed == {}
    fresh, before = training.finish().table().frame, rl.Store("runs").table().frame
    assert fresh["run_id"].tolist() == before["run_id"].tolist()
    assert np.allclose(fresh["loss_validation"], before["loss_validation"], rtol=1e-4), "up to the number of threads"
