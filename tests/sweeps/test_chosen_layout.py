"""`layout = "auto"`, and sweeps priced from their files alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import EXECUTION, make_spec

from routelaw.corpus import Corpus
from routelaw.costs.layouts import Cluster, choose_layout, plan_layouts
from routelaw.costs.memory import CUDA_CONTEXT
from routelaw.costs.step_time import known_device
from routelaw.distributed.ranks import Rank
from routelaw.errors import InputError
from routelaw.runs.store import Store
from routelaw.specs.layout import AUTO, Layout
from routelaw.specs.run import ExecutionSpec, ModelSpec, RouterSpec, RunSpec, TrainSpec
from routelaw.specs.sizes import get_size
from routelaw.sweeps import chosen_layout
from routelaw.sweeps.chosen_layout import cluster_here, execution_here, kind_of, lay_out, named_cluster
from routelaw.sweeps.estimate.sweep_estimate import estimate_sweep
from routelaw.sweeps.local import Machine
from routelaw.sweeps.run_sweep import Ray, load_sweep, run_sweep
from routelaw.sweeps.sweep import PlannedRun, Sweep
from routelaw.training.run import check_without_corpus

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
STUDIES = sorted(path.stem for path in PAPER.glob("*.toml") if path.stem not in ("paper", "miniature"))
BIG = RunSpec(ModelSpec(get_size("370M")), RouterSpec("s-base", 128), TrainSpec(steps=100), "any")
ASKED = ExecutionSpec(layout=AUTO, device_kind="h100", devices=16)
SWEEP = """
corpus = "nowhere"
[model]
size = "15M"
vocabulary = 32_000
sequence_length = 16
[train]
steps = 100
batch = 64
[execution]
evaluate_tokens = 4096
[[grid]]
router.name = ["dense", "hash"]
router.experts = 8
"""
Give = Callable[..., Path]


@pytest.fixture
def file(tmp_path: Path) -> Give:
    def written(*changes: tuple[str, str]) -> Path:
        text = SWEEP
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (tmp_path / "sweep.toml").write_text(text)
        return tmp_path / "sweep.toml"

    return written


def auto(**fields: str | int) -> tuple[str, str]:
    lines = [f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in fields.items()]
    return "[execution]\n", "\n".join(["[execution]", 'layout = "auto"', *lines, ""])


# -- the choice ----------------------------------------------------------------------------------------------------


def test_the_layout_is_the_planner_s_best() -> None:
    chosen = choose_layout(BIG, replace(ASKED, save_every=7), named_cluster(ASKED))
    best = plan_layouts(BIG, Cluster.of(known_device("h100"), 16)).best
    assert (chosen.processes, chosen.micro_batches) == (best.layout, best.micro_batches)
    assert chosen.processes.world == 16
    assert (chosen.layout, chosen.device_kind, chosen.devices, chosen.save_every) == ("given", None, None, 7)


def test_what_else_bears_on_memory_bears_on_the_choice() -> None:
    dense, cluster = replace(BIG, router=RouterSpec()), Cluster.of(known_device("h100"), 1)
    kept, again = (choose_layout(dense, replace(ASKED, recompute=on), cluster).micro_batches for on in (False, True))
    assert again < kept


def test_an_unchosen_layout_is_not_reckoned_with() -> None:
    with pytest.raises(InputError, match="has to be chosen"):
        _ = ASKED.processes


@pytest.mark.parametrize(
    ("execution", "words"),
    [
        (ExecutionSpec(layout="autp"), "did you mean 'auto'"),
        (ExecutionSpec(devices=8), "execution.devices has no effect"),
        (ExecutionSpec(device_kind="h100"), "execution.device_kind has no effect"),
        (replace(ASKED, data=2), "chooses data"),
        (replace(ASKED, micro_batches=2), "chooses micro_batches"),
        (replace(ASKED, devices=0), "at least 1, not 0"),
        (replace(ASKED, device="cpu"), "plans for GPUs"),
        (replace(ASKED, device_kind="h10"), "did you mean 'h100'"),
    ],
)
def test_what_is_wrong_or_has_no_effect_is_refused(execution: ExecutionSpec, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_without_corpus(BIG, execution)


# -- on the devices that are here ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("Tesla V100", None),
    ],
)
def test_gpus_are_known_by_their_drivers_names(name: str, kind: str | None) -> None:
    found = kind_of(name)
    assert (found and found.name) == kind


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    return lambda name, count: monkeypatch.setattr(chosen_layout, "gpus_here", lambda: (name, count))


def test_here_it_is_laid_over_the_gpus_that_are_there(here: Callable[[str, int], None]) -> None:
    here("NVIDIA H100 80GB HBM3", 8)
    anything = ExecutionSpec(layout=AUTO)
    assert execution_here(BIG, anything) == choose_layout(BIG, anything, Cluster.of(known_device("h100"), 8))
    assert execution_here(BIG, replace(anything, devices=4)).processes.world == 4
    assert execution_here(BIG, anything, Rank(3, 16, 3)).processes.world == 16  # that were started together
    assert execution_here(BIG, ExecutionSpec(data=2)) == ExecutionSpec(data=2)


def test_all_processes_come_to_the_layout_of_the_one_that_starts_them(here: Callable[[str, int], None]) -> None:
    here("NVIDIA H200", 8)
    asked = ExecutionSpec(layout=AUTO, devices=4)
    alone = execution_here(BIG, asked)
    assert all(execution_here(BIG, asked, Rank(n, 4, n)) == alone for n in range(4))


@pytest.mark.parametrize(
    ("gpus", "asked", "rank", "words"),
    [
        (("", 0), {}, Rank(), "none can be used here"),
        (("NVIDIA A100-SXM4-80GB", 8), {"device_kind": "h100"}, Rank(), "execution.device_kind=a100"),
        (("Tesla V100", 8), {}, Rank(), "Tesla V100 is not among the devices known here"),
        (("NVIDIA H100", 8), {"devices": 16}, Rank(), "this machine has 8"),
        (("NVIDIA H100", 8), {"devices": 16}, Rank(0, 8, 0), "8 processes were started"),
    ],
)
def test_what_does_not_match_the_devices_here_is_refused(
    here: Callable[[str, int], None], gpus: tuple[str, int], asked: dict, rank: Rank, words: str
) -> None:
    here(*gpus)
    with pytest.raises(InputError, match=words):
        cluster_here(ExecutionSpec(layout=AUTO, **asked), rank)


def test_a_gpu_that_is_not_known_is_what_the_file_says_it_is(here: Callable[[str, int], None]) -> None:
    here("Tesla V100", 2)
    assert cluster_here(ExecutionSpec(layout=AUTO, device_kind="l4")).device.name == "l4"


# -- the paper's files, without text -------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["paper", "miniature"])
@pytest.mark.parametrize("study", STUDIES)
def test_every_file_is_priced_where_no_corpus_is(study: str, base: str, tmp_path: Path) -> None:
    for path in PAPER.glob("*.toml"):
        (tmp_path / path.name).write_text(path.read_text().replace('base = "paper.toml"', f'base = "{base}.toml"'))
    sweep = load_sweep(tmp_path / f"{study}.toml", may_lack_corpus=True)
    assert {run.run_id for run in sweep.runs} == {None}
    runs, without = lay_out(sweep.runs, named_cluster)
    assert not without
    found = estimate_sweep(runs, Store(tmp_path / "store"), machine=Machine.elsewhere(1), device_name="h100")
    assert len(found.runs) == len(sweep.runs)
    for run in found.runs:
        assert run.required.device == run.memory.total + CUDA_CONTEXT <= known_device("h100").memory
        assert run.devices == run.run.execution.processes.world
    assert found.missing == [sweep.runs[0].corpus]


def test_the_main_sweep_as_the_command_shows_it(command, tmp_path: Path) -> None:
    store = tmp_path / "store"
    arguments = ("sweep", PAPER / "main.toml", "--dry-run", "--store", store, "--price", "2")
    code, out, err = command(*arguments, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert len(found["runs"]) == 168
    assert {run["run_id"] for run in found["runs"]} == {None}
    assert not found["without_layout"]
    assert found["missing_corpora"]
    assert found["tokens"] == 168 * 250_000 * 256 * 2048
    assert found["cost"] == pytest.approx(sum(run["cost"] for run in found["runs"]))
    assert found["device_hours"] == pytest.approx(sum(r["seconds"] * r["devices"] for r in found["runs"]) / 3600)
    largest = max(found["runs"], key=lambda run: run["total_params"])
    assert (largest["size"], largest["experts"]) == ("1.3B", 512)
    assert 0 < largest["need"]["device"] <= 80e9
    assert Layout(**largest["layout"]).world == largest["devices"] == 64
    code, out, err = command(*arguments, "--devices", "128", "--device-name", "h200", "--set", "router.name=hash")
    assert code == 0, err
    assert "128 × h200" in out
    assert "never timed" in out
    assert not store.exists()


# -- a sweep without its corpus ------------------------------------------------------------------------------------


def test_a_run_without_its_corpus_costs_what_it_costs_with_it(tiny_corpus: Corpus, tmp_path: Path) -> None:
    spec = make_spec(tiny_corpus, "s-base")
    there = PlannedRun(spec, EXECUTION, tiny_corpus.path, {})
    gone = PlannedRun(replace(spec, corpus="gone"), EXECUTION, tmp_path / "gone", {}, (tmp_path / "gone",))
    one, two = (
        estimate_sweep([run], Store(tmp_path / "store"), machine=Machine.elsewhere(1), device_name="a100")
        for run in (there, gone)
    )
    assert one.wall_seconds == two.wall_seconds  # it has as much text as evaluation asks for
    assert (one.runs[0].run.run_id, two.runs[0].run.run_id) == (spec.run_id, None)
    assert any("gone" in sentence for sentence in two.sentences())
    assert not any("there" in sentence for sentence in one.sentences()[1:])


def test_a_corpus_that_is_there_is_used(file: Give, tiny_corpus: Corpus, command) -> None:
    path = file(('"nowhere"', f'"{tiny_corpus.path}"'), ("vocabulary = 32_000\n", ""))
    code, out, err = command("sweep", path, "--dry-run", "--device-name", "h100", "--json")
    assert code == 0, err
    sweep = load_sweep(path)
    assert [run["run_id"] for run in json.loads(out)["runs"]] == [run.spec.run_id for run in sweep.runs]
    assert {run.spec.model.vocabulary for run in sweep.runs} == {tiny_corpus.vocabulary}


def test_the_id_of_a_run_does_not_depend_on_its_layout(file: Give, tiny_corpus: Corpus) -> None:
    here = ('"nowhere"', f'"{tiny_corpus.path}"')
    ids = [
        [run.spec.run_id for run in load_sweep(file(here, *changes)).runs]
        for changes in ((), (auto(),), (auto(devices=8, device_kind="h100"),))
    ]
    assert ids[0] == ids[1] == ids[2]


def test_what_needs_the_corpus_says_so(file: Give, command, tmp_path: Path) -> None:
    def refusal(*arguments: object) -> str:
        code, _, err = command("sweep", *arguments, "--store", tmp_path / "store")
        assert code == 2
        assert err.count("\n") == 1
        return err

    path = file()
    assert "build the corpus" in refusal(path, "--dry-run", "--measure")
    assert "is not there" in refusal(path, "--dry-run", "--measure")
    assert "no corpus" in refusal(path) or "manifest" in refusal(path)
    assert "--set model.vocabulary=32000" in refusal(file(("vocabulary = 32_000\n", "")), "--dry-run")
    with pytest.raises(InputError, match="is not there: build the corpus"):
        run_sweep(load_sweep(file(), may_lack_corpus=True), tmp_path / "store")


def test_what_is_said_wrongly_on_the_command_line(file: Give, command, tmp_path: Path) -> None:
    def refusal(path: Path, *arguments: object) -> str:
        code, _, err = command("sweep", path, *arguments, "--store", tmp_path / "store")
        assert (code, err.count("\n")) == (2, 1)
        return err

    assert "--devices has no effect, since no run" in refusal(file(), "--dry-run", "--devices", "8")
    assert "--devices has no effect without --dry-run" in refusal(file(), "--devices", "8")
    assert command("sweep", file(), "--dry-run", "--devices", "0")[0] == 2
    assert "did you mean 'h100'" in refusal(file(auto(device_kind="h10", devices=8)), "--dry-run")
    assert "at least 1, not 0" in refusal(file(auto(device_kind="h100", devices=0)), "--dry-run")
    assert "say execution.devices" in refusal(file(auto(device_kind="h100")), "--dry-run")
    assert "leave one out" in refusal(file(), "--dry-run", "--measure", "--device-name", "h100")


def test_runs_that_no_layout_fits_are_named_and_left_out_of_the_totals(file: Give, command, tmp_path: Path) -> None:
    sizes = ("[[grid]]\n", '[[grid]]\nmodel.size = ["15M", "7B"]\n')
    asked = auto(device_kind="l4", devices=1)
    path = file(asked, sizes, ('size = "15M"\nvocab', "vocab"))
    code, out, err = command("sweep", path, "--dry-run", "--price", "1")
    assert code == 0, err
    assert "No layout is found for 2 of 4 runs" in out
    assert "hash 7B E=8: no layout of 1 device fits" in " ".join(out.split())
    code, out, _ = command("sweep", path, "--dry-run", "--price", "1", "--json")
    found = json.loads(out)
    small = ("--set", "model.size=15M", "--dry-run", "--price", "1", "--json")
    alone = json.loads(command("sweep", path, *small)[1])
    assert found["runs"] == alone["runs"]
    assert (found["cost"], found["device_hours"]) == (alone["cost"], alone["device_hours"])
    assert [(run["size"], run["router"]) for run in found["without_layout"]] == [("7B", "dense"), ("7B", "hash")]
    assert all("fits" in run["reason"] for run in found["without_layout"])


def test_a_layout_is_timed_with_what_its_processes_send(tmp_path: Path) -> None:
    given = ExecutionSpec(data=4, expert=2, tensor=2)
    cluster = Cluster.of(known_device("h100"), 16)

    def estimated(steps: int) -> float:
        spec, gone = replace(BIG, train=TrainSpec(steps=steps)), tmp_path / "gone"
        run = PlannedRun(spec, given, gone, {}, (gone,))
        found = estimate_sweep([run], Store(tmp_path / "store"), machine=Machine.elsewhere(1), device_name="h100")
        assert found.device_hours == pytest.approx(found.runs[0].seconds * 16 / 3600)
        return found.runs[0].seconds

    plan = next(p for p in plan_layouts(BIG, cluster).fitting if p.layout == given.processes)
    assert plan.waited > 0
    assert estimated(200) - estimated(100) == pytest.approx(100 * plan.step_seconds)  # one evaluation in either


# -- training ------------------------------------------------------------------------------------------------------


def test_training_chooses_before_anything_starts(file: Give, tiny_corpus: Corpus, tmp_path: Path, here) -> None:
    sweep = load_sweep(file(('"nowhere"', f'"{tiny_corpus.path}"'), ("vocabulary = 32_000\n", ""), auto()))
    with pytest.raises(InputError, match="none can be used here"):
        run_sweep(sweep, tmp_path / "store")
    here("NVIDIA H100", 2)
    with pytest.raises(InputError, match="say execution\\.device_kind"):
        run_sweep(sweep, tmp_path / "store", ray=Ray())  # what a cluster's nodes have is not known here
    assert not (tmp_path / "store").exists()


def test_a_cluster_s_layouts_are_those_that_the_file_asks_for(file: Give, tiny_corpus: Corpus, tmp_path: Path) -> None:
    changes = ('"nowhere"', f'"{tiny_corpus.path}"'), ("vocabulary = 32_000\n", "")
    sweep: Sweep = load_sweep(file(*changes, auto(device_kind="h100", devices=4)))
    training = run_sweep(sweep, tmp_path / "store", ray=Ray(gpus=1.0))
    assert [run.execution.processes.world for run in training.sweep.runs] == [4, 4]
    expected = [choose_layout(run.spec, run.execution, named_cluster(run.execution)) for run in sweep.runs]
    assert [run.execution for run in training.sweep.runs] == expected


def test_train_with_a_layout_of_its_own_choice(tiny_corpus: Corpus, command, tmp_path: Path, here) -> None:
    arguments = ("train", "--corpus", tiny_corpus.path, "--size", "0.05M", "--steps", "2", "--batch", "4")
    arguments += ("--sequence-length", "16", "--out", tmp_path / "run", "--set", "execution.layout=auto")
    here("", 0)
    code, _, err = command(*arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert "none can be used here" in err
    assert "chooses data" in command(*arguments, "--data", "2")[2]
    here("NVIDIA H100", 1)  # what is chosen for it runs here, too
    code, out, err = command(*arguments)
    assert code == 0, err
    assert "finished after 2 steps" in out
